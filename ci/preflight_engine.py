"""What the engine does with drafters of every form: the other half of docs/preflight.md's table.

    python ci/preflight_engine.py run v0.32.0 [--unpatched] --models DIR --out FILE

Starts vLLM's own engine on a CPU, once for each drafter of DRAFTERS beside the smoke's tiny
Kimi-K2.5, and writes what it did: works (the states that the drafter was trained on, and its
definition's guesses), wrong-result, or error with its text and when. `ci/preflight_table.py` holds
`vpatch preflight` against it.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from preflight_cases import DRAFTERS, Case
from vpatch.files import cache_dir
from vpatch.pipeline import Upstream
from vpatch.progress import SilentProgress
from vpatch.smoke import session
from vpatch.smoke.cases import prompts, with_echo
from vpatch.smoke.environment import make_environment
from vpatch.smoke.releases import ReleaseFacts, facts_of
from vpatch.smoke.run import Children, Start, _run
from vpatch.smoke.wheels import find_subject
from vpatch.tags import version_of

ROOT = Path(__file__).resolve().parents[1]


def write_models(folder: Path, children: Children, facts: ReleaseFacts) -> None:
    """Both kinds of checkpoints: with the shape that the release needs beside each."""
    for mla in (False, True):
        shape = {"preset": "cpu", **facts.shape_changes(mla, "cpu")}
        cases = [case for case in DRAFTERS if case.mla == mla]
        spec = {
            "shape": shape,
            "targets": [{"name": "kimi"}],
            "drafters": [_entry(case) for case in cases],
        }
        scratch = folder / ("mla" if mla else "llama")
        scratch.mkdir(parents=True)
        session.write_models(spec, children, scratch)
        for case in cases:
            drafter = scratch / "models" / case.name
            whole = drafter / "whole"
            whole.mkdir()
            config = json.loads((drafter / "config.json").read_text())
            # What the reference reads: the drafter as it was trained.
            told = {key: value for key, value in config.items() if key not in case.changes}
            told |= {key: value for key, value in case.changes.items() if case.kind == "mlanorm"}
            if case.kind != "mlanorm" and "model_type" in case.changes:
                told["model_type"] = "kimi_k2"
            for key, value in (
                ("hidden_size", shape.get("hidden", 128)),
                ("draft_vocab_size", 384),
            ):
                if key in case.changes:
                    told[key] = value
            (whole / "config.json").write_text(json.dumps(told))
            (whole / "model.safetensors").hardlink_to(drafter / "model.safetensors")
            if case.without:
                rewrite_without(drafter / "model.safetensors", case.without)


def _entry(case: Case) -> Mapping[str, Any]:
    return {
        "name": case.name,
        "target": "kimi",
        "kind": case.kind,
        "ids": None if case.ids is None else list(case.ids),
        "form": case.form,
        "vocabulary": case.vocabulary,
        "changes": dict(case.changes),
    }


def rewrite_without(path: Path, pattern: str) -> None:
    """A safetensors file without some of its tensors."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    body, kept, data = raw[8 + length :], {}, b""
    for name, entry in header.items():
        if name == "__metadata__":
            kept[name] = entry
        elif not re.fullmatch(pattern, name):
            start, end = entry["data_offsets"]
            kept[name] = {**entry, "data_offsets": [len(data), len(data) + end - start]}
            data += body[start:end]
    head = json.dumps(kept).encode()
    path.unlink()  # a link to the whole one
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)


def job_of(case: Case, models: Path, scratch: Path, facts: ReleaseFacts) -> dict[str, Any]:
    """What engine/start.py reads."""
    place = models / ("mla" if case.mla else "llama") / "models"
    options = {
        "dtype": "float32",
        "max_model_len": 128,
        "max_num_seqs": 8,
        "enforce_eager": True,
        "enable_prefix_caching": False,
        **facts.options("cpu"),
    }
    return {
        "target": str(place / "kimi"), "drafter": str(place / case.name), "drafts": 3,
        "dtype": "float32", "look": True, "record": True, "compile": False,
        "plugin": facts.needs_cpu_drafter, "guard_scan": facts.scans_modules,
        "native_rotary": facts.native_rotary, "options": options,
        "phases": [{"name": "batch", "prompts": with_echo(prompts((5, 17, 40))), "tokens": 12}],
        "ids": list(case.truth), "runs": str(scratch / "reference"),
        "speculative": dict(case.speculative),
    }  # fmt: skip


def variables_of(facts: ReleaseFacts, *, mla: bool) -> dict[str, str]:
    """What a start needs in its environment."""
    own = {"OMP_NUM_THREADS": "1", "TORCH_COMPILE_DISABLE": "1"}
    return {**facts.variables("cpu", "v1", mla=mla), **own}


def refuse(
    cases: list[Case], models: Path, scratch: Path, children: Children, facts: ReleaseFacts
) -> None:
    """Asks in one process those that are refused at the config, up to the first that is not."""
    for case in cases:
        (scratch / case.name).mkdir(exist_ok=True)
        job = job_of(case, models, scratch, facts)
        (scratch / case.name / "job.json").write_text(json.dumps(job))
    request = scratch / "many.json"
    request.write_text(json.dumps([str(scratch / case.name) for case in cases]))
    library = scratch / "lib" / "vpatch" / "smoke" / "engine"
    shutil.copyfile(Path(__file__).with_name("preflight_many.py"), library / "many.py")
    variables = variables_of(facts, mla=False)
    log = scratch / "many.log"
    children.module("many", request, log=log, limit=1200, variables=variables)


def ran(case: Case, models: Path, scratch: Path, children: Children, facts: ReleaseFacts) -> Any:
    """One engine start and its comparison."""
    job, folder = job_of(case, models, scratch, facts), scratch / case.name
    if not (folder / "outputs.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        _run(Start(case.name, job, variables_of(facts, mla=case.mla)), children, folder)
    if "error" not in json.loads((folder / "outputs.json").read_text()):
        request = folder / "truth.json"
        drafter = str(Path(job["drafter"]) / "whole")
        request.write_text(json.dumps({**job, "drafter": drafter, "guesses": True}))
        found = folder / "truth-answer.json"
        found.unlink(missing_ok=True)
        children.module("compare", request, log=folder / "log", limit=1200, answer=found)
    return told(folder)


def told(folder: Path) -> Any:
    """What a start's folder says; None where it is not whole."""
    outputs, found = folder / "outputs.json", folder / "truth-answer.json"
    if not outputs.is_file():
        return None
    answered = json.loads(outputs.read_text())
    if "error" in answered:
        log = (folder / "log").read_text(errors="replace")
        error = answered["error"]
        return {"did": "error", "when": when(log), "text": f"{error['type']}: {error['message']}"}
    if not found.is_file() or not found.read_text().strip():
        return None
    return judged(found)


def judged(found: Path) -> Mapping[str, Any]:
    """Works, or gives a wrong result without an error."""
    requests = [one for phase in json.loads(found.read_text())["phases"].values() for one in phase]
    rows, within = (sum(one[key] for one in requests) for key in ("rows", "within"))
    certain, wrong = (
        sum(one[key] for one in requests) for key in ("certain_guesses", "wrong_guesses")
    )
    layers = sorted({tuple(ids) for one in requests for ids, _ in one["layers"]})
    good = rows and rows == within and certain and not wrong
    return {
        "did": "works" if good else "wrong-result", "layers": layers, "rows": rows,
        "within": within, "guesses": certain, "wrong_guesses": wrong,
    }  # fmt: skip


def when(log: str) -> str:
    """At the config, while weights are loaded, or at the first step."""
    if "Starting to load model" not in log:
        return "config"
    return "first-step" if "GPU KV cache size" in log or "init engine" in log else "load"


@click.command()
@click.argument("tag")
@click.option("--unpatched", is_flag=True)
@click.option("--models", type=click.Path(path_type=Path), required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--at-once", default=2, show_default=True, help="Engines beside each other.")
@click.option("--refused", is_flag=True, help="They end at the config: ask all in one process.")
@click.option("--only", default=".*", help="Drafters whose names match.")
def main(
    tag: str, unpatched: bool, models: Path, out: Path, only: str, at_once: int, refused: bool
) -> None:
    """Runs drafters on one release; what ran before in the same place is kept."""
    upstream = Upstream(cache_dir(), None, None, SilentProgress())
    facts = facts_of(version_of(tag))
    scratch = out.with_suffix("").absolute()
    scratch.mkdir(parents=True, exist_ok=True)
    wheel, subject = find_subject(
        tag, "cpu", ROOT, upstream, scratch / "wheel", unpatched=unpatched
    )
    environment = make_environment(
        wheel, "cpu", python=None, cache=upstream.cache, progress=SilentProgress()
    )
    shutil.rmtree(scratch / "home", ignore_errors=True)
    variables = session._variables(environment, upstream.cache / "smoke", scratch)
    children = Children(environment, scratch, variables)
    cases = [case for case in DRAFTERS if re.fullmatch(only, case.name)]
    waiting = [case for case in cases if told(scratch / case.name) is None]

    def one(case: Case) -> None:
        click.echo(f"{case.name}: {ran(case, models, scratch, children, facts)}"[:300])

    try:
        if not models.exists():
            write_models(models.absolute(), children, facts)
        if refused:
            refuse(waiting, models, scratch, children, facts)
        else:
            with ThreadPoolExecutor(at_once) as pool:
                list(pool.map(one, waiting))
    finally:
        children.close()
        results = {case.name: told(scratch / case.name) for case in DRAFTERS}
        whole = {name: came for name, came in results.items() if came is not None}
        out.write_text(json.dumps({"vllm": str(subject.version), "drafters": whole}, indent=1))


if __name__ == "__main__":
    main()
