"""Is a drafter worth more for having been trained on collected states? Collect, train, serve.

    PYTHONPATH=SITE[:...] python ci/collection_drafter.py --installed PYTHON [--out FILE]

vLLM with the topic `collection` is what PYTHON has, with PYTHONPATH; this script runs under
vpatch's own Python. On one tiny Kimi-K2.5 whose next token depends on what a layer's state says:

1. `vpatch collect` drives the engine over 256 prompts a seed, and `vpatch collect --verify` proves
   the set complete;
2. from the set's files four EAGLE-3 drafters a seed are trained: "right", on their own layers'
   states; "shuffled", on the same states, each row's at another row's place; "up" and "down", on
   those of each next layer and each layer before. All else is the same: data, labels, first
   weights, order. No two seeds share a sample or a held-out prompt;
3. each is served by the engine with prompts that are not in the set; what it is worth is the
   engine's own count of accepted draft tokens;
4. the share's means over the seeds, with 95 % intervals (Student's t): "right" has to be above each
   other variant without an overlap.

Beside that: the labels that the set gives are what the engine generated, and on a CPU (float32) the
four engines of a seed give the same answers. --spoil trains the right drafters as a wrong variant:
then the verdict has to be bad. Prints a table and writes FILE (JSON). Exit 0 where all holds, 1
where not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parent / "tools"
sys.path[:0] = [str(TOOLS)]

import collection_accept as accept  # noqa: E402
from collection_accept import VARIANTS, Served  # noqa: E402
from vpatch.errors import VpatchError  # noqa: E402
from vpatch.smoke import session  # noqa: E402
from vpatch.smoke.environment import Environment  # noqa: E402
from vpatch.smoke.judge import Judged  # noqa: E402
from vpatch.smoke.named import named_environment  # noqa: E402
from vpatch.smoke.plan import Builder, Preparation, Wish  # noqa: E402
from vpatch.smoke.releases import facts_of  # noqa: E402
from vpatch.smoke.run import Children, Outcome, Start, run_starts  # noqa: E402
from vpatch.smoke.wheels import installed_subject  # noqa: E402

Job = dict[str, Any]
TARGET = "listener"
_AT_ONCE = 64
_LABELS = {"float32": 0.999, "bfloat16": 0.95}
"""So many labels at generated tokens are theirs; rounding may choose between two near ones."""
_LIMIT_S = 400.0


class StoryError(Exception):
    """A step did not end well."""


class Story:
    """One run: an environment, a folder, and what is served in it.

    Args:
        environment: Where vLLM is.
        work: An empty folder.
        seeds: How many.
    """

    def __init__(self, environment: Environment, work: Path, seeds: int) -> None:
        self.environment = environment
        self.work = work
        self.seeds = seeds
        self.models: dict[str, Path] = {}
        self.variables = session._variables(environment, work / "kept", work)
        self.children = Children(environment, work, self.variables)
        # The trainer is beside this file, as ci.collection_train.
        (work / "trainer").mkdir()
        beside = replace(environment, path=(*environment.path, HERE.parent))
        self.trainer = Children(beside, work / "trainer", self.variables, package="ci")
        self.builder = self._builder()
        self.starts = self._starts()

    def _builder(self) -> Builder:
        facts = facts_of(installed_subject(self.environment.vllm).version)
        device = self.environment.device
        return Builder(Wish(device, "full", (facts.default_runner(device),)), facts)

    def _starts(self) -> dict[str, Start]:
        """An engine a drafter, by the drafter's name."""
        names = [f"{variant}-{seed}" for seed in range(self.seeds) for variant in VARIANTS]
        for name in names:
            held = accept.held_out(int(name.partition("-")[2]))
            phase = {"name": "accept", "prompts": held, "tokens": accept.HELD_TOKENS}
            runner = self.builder.wish.runners[0]
            drafter, target = str(self._model(name)), str(self._model(TARGET))
            self.builder.start(
                name,
                drafter,
                runner,
                target=target,
                phases=[phase],
                options={"max_num_seqs": _AT_ONCE},
                more={"record": False},
            )
        self.builder.check("accepted", names, lambda _: Judged("pass", ""))
        return {start.name: start for start in self.builder.plan().starts}

    def _model(self, name: str) -> Path:
        return self.work / "models" / name

    def write_models(self) -> None:
        """The target, and what it is made of."""
        spec = {"shape": {"preset": self.builder.scale.shape}, "drafters": []}
        kimi = {"name": "kimi", "kind": "plain", "schema": self.builder.facts.schema}
        self.models = session.write_models({**spec, "targets": [kimi]}, self.children, self.work)
        made = Preparation(TARGET, "listener", {"target": "kimi", "out": TARGET})
        session.prepare(made, self.models, self.children, self.work)

    def collect(self) -> Job:
        """The set, and what `vpatch collect --verify` says of it."""
        prompts = self.work / "prompts.jsonl"
        accept.write_prompts(prompts, self.seeds)
        start = next(iter(self.starts.values()))
        options = dict(start.job["options"])
        del options["disable_log_stats"]  # `vpatch collect` sets it
        words = [f"--option={name}={json.dumps(value)}" for name, value in options.items()]
        words += ["--sampling=ignore_eos=true", "--layers", ",".join(map(str, accept.LAYERS))]
        words += ["--prompts", str(prompts)]
        words += ["--installed", str(self.environment.python), "--device", self.environment.device]
        folder = str(self.work / "set")
        self._vpatch([str(self._model(TARGET)), "--out", folder, *words], start.variables)
        return self._vpatch(["--verify", folder], {})

    def _vpatch(self, words: list[str], variables: Mapping[str, str]) -> Job:
        path = os.pathsep.join([*map(str, self.environment.path), str(TOOLS)])
        ran = subprocess.run(
            [sys.executable, "-m", "vpatch", "collect", *words, "--json"],
            env={**os.environ, **self.variables, **variables, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            check=False,
        )
        if ran.returncode:
            raise StoryError(f"vpatch collect ended with {ran.returncode}: {ran.stdout.decode()}")
        found: Job = json.loads(ran.stdout)
        return found

    def train(self, spoilt: str | None) -> dict[str, Job]:
        """All drafters, one after the other; what each one's trainer says."""
        found = {}
        for name in self.starts:
            variant, _, seed = name.partition("-")
            job = {
                **accept.training(variant, int(seed), spoilt),
                "target": str(self._model(TARGET)),
                "set": str(self.work / "set"),
                "out": str(self._model(name)),
                "device": self.environment.device,
            }
            found[name] = self._train(name, job)
            say(f"trained {name}: {json.dumps(found[name])}")
        return found

    def _train(self, name: str, job: Job) -> Job:
        path = self.work / "trainer" / f"{name}.json"
        path.write_text(json.dumps(job))
        answer, log = path.with_suffix(".found"), path.with_suffix(".log")
        one = {"OMP_NUM_THREADS": "1"}
        failure = self.trainer.module(
            "collection_train", path, log=log, limit=_LIMIT_S, answer=answer, variables=one
        )
        if failure:
            raise StoryError(f"training {name} {failure}\n{log.read_text()[-1500:]}")
        found: Job = json.loads(answer.read_text())
        if found["greedy"] < _LABELS[self.builder.scale.dtype]:
            raise StoryError(f"only {found['greedy']:.4f} of the set's labels are the engine's")
        return found

    def serve(self) -> list[Served]:
        """What each engine counted."""
        starts = list(self.starts.values())
        outcomes = run_starts(starts, self.children, self.work, at_once=1, on_end=_told)
        for outcome in outcomes.values():
            if outcome.outputs is None:
                raise StoryError(f"{outcome.name}: {outcome.error}\n{outcome.tail()}")
        found = []
        for name, outcome in outcomes.items():
            variant, _, seed = name.partition("-")
            found.append(Served.of(variant, int(seed), outcome.outputs or {}))
        return found

    def close(self) -> None:
        """Ends what runs."""
        self.children.close()
        self.trainer.close()


def say(text: str) -> None:
    """A line of talk."""
    print(text, file=sys.stderr, flush=True)


def _told(outcome: Outcome) -> None:
    how = "ended with an error" if outcome.error else "answered"
    say(f"served {outcome.name}: {how} after {outcome.seconds:.0f} s")


def tell(story: Story, spoilt: str | None) -> Job:
    """The whole way; returns what goes into --out."""
    began = time.monotonic()
    seconds: dict[str, float] = {}

    def took(step: str) -> None:
        seconds[step] = time.monotonic() - began - sum(seconds.values())

    story.write_models()
    took("models")
    verified = story.collect()
    took("collect")
    trained = story.train(spoilt)
    took("train")
    served = story.serve()
    took("serve")
    verdict = accept.judge(served, exact=story.builder.scale.dtype == "float32")
    print(accept.table(served, verdict))
    return {
        **verdict.json(),
        "spoilt": spoilt,
        "vllm": story.environment.vllm,
        "set": verified,
        "trained": trained,
        "served": [
            {"variant": one.variant, "seed": one.seed, "drafts": one.drafts}
            | {"drafted": one.drafted, "accepted": one.accepted, "by_place": one.by_place}
            for one in served
        ],
        "seconds": seconds,
    }


def main() -> int:
    """Returns 0 where the right states are worth more than all others."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--installed", type=Path, default=Path("python3"), metavar="PYTHON")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", type=Path, help="a new folder, which stays")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--spoil", choices=VARIANTS[1:])
    asked = parser.parse_args()
    if asked.seeds < 2:
        parser.error("--seeds: an interval needs two at least")
    with tempfile.TemporaryDirectory(prefix="collection-drafter-") as scratch:
        work = (asked.work or Path(scratch) / "work").absolute()
        work.mkdir(parents=True)
        try:
            story = Story(named_environment(asked.installed, asked.device), work, asked.seeds)
            try:
                found = tell(story, asked.spoil)
            finally:
                story.close()
        except (StoryError, VpatchError) as error:
            found = {"ok": False, "wrong": [str(error)]}
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=1))
    for sentence in found["wrong"]:
        print(f"FAIL {sentence}")
    took = [f"{step} {seconds:.0f} s" for step, seconds in found.get("seconds", {}).items()]
    print("; ".join(["ok" if found["ok"] else "not ok", *took]))
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
