"""For each gate the start that answers its question, and whether gate and engine agree."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from preflight_cases import DRAFTERS, Case
from preflight_engine import job_of, ran, variables_of, when
from vpatch.smoke import session
from vpatch.smoke.releases import ReleaseFacts
from vpatch.smoke.run import Children, Start, _run

Word = Literal["works", "wrong", "error", "went on", "silent", "none"]
_BY_NAME = {case.name: case for case in DRAFTERS}
_OTHER_CAUSE = (
    "MRV2, or several GPUs: the CPU's runner dies of its own cause, "
    "`'CPUModelRunner' object has no attribute 'drafter'`"
)
_TWO = "several ranks, which takes several GPUs"


@dataclass(frozen=True)
class Seen:
    """What an engine did.

    Attributes:
        word: ``works``: right states and guesses; ``went on``: it was not refused; ``silent``: it
            said nothing of what it was to warn of; ``none``: it was not asked here.
        when: Of an error: config, load, first-step.
        text: Of the error, or what came instead.
    """

    word: Word
    when: str = ""
    text: str = ""

    def as_dict(self) -> dict[str, str]:
        """For the committed list."""
        return {"word": self.word, "when": self.when, "text": self.text}


@dataclass(frozen=True)
class Probe:
    """A gate's question to an engine.

    Attributes:
        cases: The drafters of ci/preflight_cases.py; no start where there are none.
        behind: On v0.17.1: the last patch that has to be there for the question to be met.
        refuses: It has to be refused.
        warns: What the log has to warn of.
        options: More arguments of ``LLM(...)``.
        target: Another target than the usual one, of MORE_TARGETS, and its own drafter.
        why: Why no engine on this machine can answer; by release, or for all.
    """

    gate: str
    cases: tuple[str, ...] = ()
    behind: str = ""
    refuses: bool = False
    warns: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    target: str = ""
    why: Mapping[str, str] = field(default_factory=dict)

    def asked_of(self, tag: str) -> bool:
        """Whether an engine here can answer."""
        return bool(self.cases) and not self.why.get(tag)


_ALL = ("v0.17.1", "v0.26.0", "v0.32.0")
_NO_MLA = {"v0.26.0": "a kernel for MLA, which it has on no CPU"}
PROBES = (
    Probe("target", ("llama-nested",)),
    Probe("drafter", ("llama-top-level",), "0008"),
    Probe("placeholder", ("llama-top-level",), "0002"),
    Probe("embeddings", ("llama-shared-tables",), "0010"),
    Probe("interface", ("llama-no-ids",), "0004"),
    Probe("states", ("llama-top-level",), "0008"),
    Probe("ids-nested", ("llama-nested",), "0008"),
    Probe("drafter-fc", ("llama-five-nested", "llama-five-top-level"), "0010"),
    Probe("drafter-weights", ("llama-nested",), "0010"),
    Probe("drafter-mla", ("mla-yarn",), why=_NO_MLA),
    Probe("drafter-deepseek-v3", ("mla-deepseek-v3",)),
    Probe("drafter-norm", ("mla-norm",), why=_NO_MLA),
    Probe("drafter-speculators", ("mla-speculators",)),
    Probe("drafter-mla-kv", ("mla-yarn",), why=_NO_MLA),
    Probe("placeholder-new-schema", ("llama-nested",), target="new-schema",
          why=dict.fromkeys(("v0.17.1", "v0.26.0"), "a release that reads it")),
    Probe("states-float16", ("llama-nested",), target="float16"),
    Probe("dead-methods", ("llama-no-ids",), "0008"),
    Probe("states-at-ends", ("llama-first-and-last",)),
    Probe("states-pair", ("llama-absent",)),
    Probe("ids-top", ("llama-top-level",), "0008"),
    Probe("ids-layer-ids", ("llama-layer-ids",), "0008"),
    Probe("ids-numbering", ("llama-outputs-stated",)),
    Probe("ids-refused", ("llama-outside", "llama-repeated", "llama-descending"), refuses=True),
    Probe("ids-default", ("llama-no-ids",), warns=r"WARNING.*(default|\[2, 4, 5\])"),
    Probe("pipeline-parallel", ("llama-nested",), options={"pipeline_parallel_size": 2},
          refuses=True, why={"v0.32.0": _OTHER_CAUSE}),
    Probe("decode-context-parallel", why=dict.fromkeys(_ALL, _TWO)),
    Probe("drafter-attention", why=dict.fromkeys(_ALL, "MRV2 and CUDA graphs, on a Hopper GPU")),
    Probe("collection", ("llama-nested",),
          options={"hidden_states_collection": {"dir": "/dev/null", "layers": [1]}}),
    Probe("extraction", why=dict.fromkeys(_ALL, "a connector that stores states")),
    Probe("cache-key", why=dict.fromkeys(_ALL, "two compiled starts that share a cache")),
)  # fmt: skip
EXTRA = (
    Case(
        "llama-absent", "llama-random", (1, 3, 7), "nested",
        changes={"eagle_config": {"eagle_aux_hidden_state_layer_ids": [97, 98, 99]}},
    ),
)  # fmt: skip


# As smoke/plan_configs.py has them.
MORE_TARGETS: Mapping[str, Mapping[str, Any]] = {
    "float16": {"dtype": "float16"},
    "new-schema": {"schema": "new"},
}


def add_more(models: Path, children: Children) -> None:
    """Targets that preflight does not have, and a drafter of each."""
    scratch = models / "more"
    if not scratch.is_dir():
        scratch.mkdir()
        spec = {
            "shape": {"preset": "cpu"},
            "targets": [
                {"name": "kimi"},
                *({"name": name, **entry} for name, entry in MORE_TARGETS.items()),
            ],
            "drafters": [
                {
                    "name": f"for-{name}", "target": name, "kind": "llama-random",
                    "ids": [1, 3, 7], "form": "nested", "vocabulary": "reduced", "changes": {},
                }
                for name in MORE_TARGETS
            ],
        }  # fmt: skip
        session.write_models(spec, children, scratch)


def add_extra(models: Path) -> None:
    """The drafters that preflight does not have: others' weights under another config."""
    place = models / "llama" / "models"
    for case in EXTRA:
        folder = place / case.name
        if not folder.is_dir():
            shutil.copytree(place / "llama-outside", folder, copy_function=os.link)
            config = folder / "config.json"
            text = {**json.loads(config.read_text()), **case.changes}
            config.unlink()  # a link to the other one's
            config.write_text(json.dumps(text))


def observe(
    probe: Probe, models: Path, scratch: Path, children: Children, facts: ReleaseFacts
) -> Seen:
    """Starts the engine with each of a probe's drafters; the worst that came counts."""
    found = [_one(probe, name, models, scratch, children, facts) for name in probe.cases]
    bad = [each for each in found if each.word != "works"]
    if probe.refuses:
        bad = [each for each in found if each.word == "went on"]
    return bad[0] if bad else found[0]


def _one(
    probe: Probe, name: str, models: Path, scratch: Path, children: Children, facts: ReleaseFacts
) -> Seen:
    case = {**_BY_NAME, **{each.name: each for each in EXTRA}}[name]
    if probe.options:
        return _refused(probe, case, models, scratch, children, facts)
    if probe.target:
        return _beside(probe, case, models, scratch, children, facts)
    did = ran(case, models, scratch, children, facts)
    if did is None:
        return Seen("none", text="no whole answer came")
    log = (scratch / case.name / "log").read_text(errors="replace")
    if did["did"] == "error":
        went_on = probe.refuses and did["when"] != "config"
        text = " ".join(str(did["text"]).split())[:300]
        # Some releases take a first step to see how much memory it needs.
        profiled = did["when"] == "load" and re.search(r"in (profile_run|_dummy_run)\b", log)
        return Seen(
            "went on" if went_on else "error", "first-step" if profiled else did["when"], text
        )
    return _answered(probe, did, log)


def _answered(probe: Probe, did: Mapping[str, Any], log: str) -> Seen:
    text = "rows of layers " + " ".join(str(tuple(each)) for each in did["layers"])
    if probe.refuses:
        return Seen("went on", text=text)
    if did["did"] == "wrong-result":
        return Seen("wrong", text=text)
    if probe.warns and not re.search(probe.warns, log):
        return Seen("silent", text=f"{text}, and no warning")
    return Seen("works", text=text)


def _beside(
    probe: Probe, case: Case, models: Path, scratch: Path, children: Children, facts: ReleaseFacts
) -> Seen:
    """A start beside another target."""
    place = models / "more" / "models"
    dtype = MORE_TARGETS[probe.target].get("dtype", "float32")
    job = job_of(case, models, scratch, facts)
    job |= {
        "target": str(place / probe.target), "drafter": str(place / f"for-{probe.target}"),
        "dtype": dtype, "options": {**job["options"], "dtype": dtype},
    }  # fmt: skip
    folder = scratch / probe.gate
    shutil.rmtree(folder, ignore_errors=True)
    variables = variables_of(facts, mla=False)
    outcome = _run(Start(probe.gate, job, variables, limit=180), children, folder)
    if outcome.error is not None:
        text = " ".join(outcome.error.split())[:300]
        return Seen("error", when((folder / "log").read_text(errors="replace")), text)
    requests = [one for part in (outcome.compared or {})["phases"].values() for one in part]
    rows, within = (sum(one[key] for one in requests) for key in ("rows", "within"))
    text = f"{within} of {rows} rows within the bound"
    return Seen("works" if rows and rows == within else "wrong", text=text)


def _refused(
    probe: Probe, case: Case, models: Path, scratch: Path, children: Children, facts: ReleaseFacts
) -> Seen:
    """A start with options that end it at the config, or not."""
    job = job_of(case, models, scratch, facts)
    job["options"] = {**job["options"], **probe.options}
    folder = scratch / f"{probe.gate}-{case.name}"
    if not (folder / "outputs.json").is_file():
        _run(Start(folder.name, job, variables_of(facts, mla=False), limit=120), children, folder)
    answered = json.loads((folder / "outputs.json").read_text())
    error = answered.get("error")
    if error is None:
        return Seen("went on")
    text = " ".join(f"{error['type']}: {error['message']}".split())[:300]
    return Seen("error", when((folder / "log").read_text(errors="replace")), text)


def agree(static: Mapping[str, Any], seen: Mapping[str, Any], *, refuses: bool) -> str:
    """``confirmed``, ``not contradicted``, or how the two differ."""
    word, did = static["verdict"], seen["word"]
    if word == "not-applicable":
        return "-"
    if word == "pass":
        right = did == "works" or (refuses and did == "error")
        return "not contradicted" if right else "CONTRADICTED"
    if static["group"] == "code":  # what nobody sees
        return "confirmed: no error comes" if did == "works" else "CONTRADICTED"
    if not static["error"]:
        return "confirmed" if did not in {"works", "none"} else "CONTRADICTED"
    when = {"config": "config", "after load": "load", "first step": "first-step"}[static["when"]]
    same = _words(static["error"]) & _words(seen["text"])
    if did != "error" or len(same) < min(3, len(_words(static["error"]))):
        return "CONTRADICTED"
    return "confirmed" if when == seen["when"] else f"confirmed, but at: {seen['when']}"


def _words(text: str) -> set[str]:
    return {each for each in re.findall(r"[A-Za-z_0-9]{4,}", text) if each.lower() != "error"}
