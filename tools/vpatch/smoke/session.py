"""One smoke run: checkpoints, engine starts, verdicts."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from vpatch.errors import HostError, VpatchError
from vpatch.files import disk_errors
from vpatch.smoke.environment import Environment
from vpatch.smoke.judge import Result, judge_all
from vpatch.smoke.plan import Copy, Plan, Preparation
from vpatch.smoke.run import ONE_THREAD, Children, Outcome, Start, run_starts

Say = Callable[[str], None]

_MODELS_LIMIT_S = 300.0
UNREADABLE = "unreadable"
_WEIGHTS = "model.safetensors"


def run_plan(
    plan: Plan,
    environment: Environment,
    scratch: Path,
    kept: Path,
    say: Say,
    *,
    at_once: int = 2,
) -> list[Result]:
    """Runs everything of a plan.

    Args:
        plan: What to start and to ask.
        environment: Where vLLM is.
        scratch: An empty folder: checkpoints, jobs, logs.
        kept: Caches that outlive the run, by content: compiled kernels, vLLM's findings about its
            model classes.
        say: Told each start's end.
        at_once: How many engines start beside each other. Those on a GPU whose memory vLLM profiles
            wait for one another (engine/start.py).

    Returns:
        A result for each check, in the plan's order.

    Raises:
        HostError: The checkpoints cannot be written.
    """
    variables = _variables(environment, kept, scratch)
    children = Children(environment, scratch, variables)
    try:
        with disk_errors(scratch):
            models = write_models(plan.models, children, scratch) if plan.models else {}
            prepare_all(plan.preparations, models, children, scratch, say, at_once=at_once)
            for copy in plan.copies:
                models[copy.name] = _copied(copy, models, scratch)
            starts = [_placed(start, models, environment, scratch) for start in plan.starts]
            told = _Told(say, len(starts))
            outcomes = run_starts(starts, children, scratch, at_once=at_once, on_end=told.outcome)
    finally:
        children.close()
    _check_disk(outcomes.values(), scratch)
    return judge_all(plan.checks, outcomes)


def _check_disk(outcomes: Collection[Outcome], scratch: Path) -> None:
    """A full disk is the machine's fault, not vLLM's."""
    for outcome in outcomes:
        if outcome.error is not None and os.strerror(errno.ENOSPC) in outcome.error:
            raise HostError(
                f"no space left in {scratch}: {outcome.name} could not go on",
                hint="Free some, or name a folder on another disk: TMPDIR, or --keep DIR.",
                code="disk",
            )


def _variables(environment: Environment, kept: Path, scratch: Path) -> dict[str, str]:
    kept.mkdir(parents=True, exist_ok=True)
    site = environment.path[0].name if environment.path else "installed"
    return {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the recorder is in the engine's process
        "VLLM_CACHE_ROOT": str(kept / "vllm" / site),
        "TORCHINDUCTOR_CACHE_DIR": str(kept / "inductor"),
        "TRITON_CACHE_DIR": str(kept / "triton"),
        "VLLM_CONFIG_ROOT": str(scratch / "home"),
    }


class _Told:
    def __init__(self, say: Say, total: int) -> None:
        self._say = say
        self._total = total
        self._done = 0

    def outcome(self, outcome: Outcome) -> None:
        self._done += 1
        how = "ended with an error" if outcome.error else "answered"
        self._say(
            f"[{self._done}/{self._total}] {outcome.name} {how} after {outcome.seconds:.0f} s"
        )


def write_models(spec: Mapping[str, Any], children: Children, scratch: Path) -> dict[str, Path]:
    """Writes the checkpoints; returns their folders by name."""
    folder = scratch / "models"
    found = _answer("models", {**spec, "folder": str(folder)}, children, scratch / "models-of-spec")
    folders = {
        name: Path(entry["folder"])
        for kind in ("targets", "drafters")
        for name, entry in found[kind].items()
    }
    folders[UNREADABLE] = _without_weights(folders["kimi"], folder / UNREADABLE)
    return folders


def prepare_all(
    steps: Sequence[Preparation],
    models: dict[str, Path],
    children: Children,
    scratch: Path,
    say: Say,
    *,
    at_once: int,
) -> None:
    """Has checkpoints written beside each other, each after those that it is made of."""
    for wave in _waves(steps):
        say(f"making {', '.join(step.name for step in wave)}")
        with ThreadPoolExecutor(at_once) as pool:
            made = [pool.submit(prepare, step, models, children, scratch) for step in wave]
            try:
                for one in made:
                    one.result()
            except BaseException:
                children.close()
                pool.shutdown(cancel_futures=True)
                raise


def _waves(steps: Sequence[Preparation]) -> Iterator[list[Preparation]]:
    """The steps in groups of which none needs another of its own group."""
    wave: list[Preparation] = []
    for step in steps:
        if any(one.name in step.job.values() for one in wave):
            yield wave
            wave = []
        wave.append(step)
    if wave:
        yield wave


def prepare(step: Preparation, models: dict[str, Path], children: Children, scratch: Path) -> None:
    """Has a module write a checkpoint, and adds it to the others."""
    place = scratch / "models" / step.name
    job = {
        key: str(models[value]) if value in models else value
        for key, value in step.job.items()
        if not isinstance(value, list)
    }
    job |= {key: value for key, value in step.job.items() if isinstance(value, list)}
    _answer(step.module, {**job, "out": str(place)}, children, scratch / step.name, step.limit)
    models[step.name] = place


def _answer(
    module: str,
    job: Mapping[str, Any],
    children: Children,
    folder: Path,
    limit: float = _MODELS_LIMIT_S,
) -> dict[str, Any]:
    """Runs a module that makes checkpoints; returns what it printed."""
    folder.mkdir()
    request, answer, log = folder / "job.json", folder / "answer.json", folder / "log"
    request.write_text(json.dumps(job))
    failure = children.module(
        module, request, log=log, limit=limit, answer=answer, variables=ONE_THREAD
    )
    if failure is not None:
        last = (log.read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        raise HostError(
            f"a tiny checkpoint could not be made, {module}'s process {failure}: {last}",
            hint=f"Run it again with --keep DIR and look at DIR/{folder.name}/log.",
            code="models",
        )
    found: dict[str, Any] = json.loads(answer.read_text() or "{}")
    return found


def _copied(copy: Copy, models: Mapping[str, Path], scratch: Path) -> Path:
    """The same weights under a changed config."""
    folder = scratch / "models" / copy.name
    shutil.copytree(models[copy.of], folder, copy_function=os.link)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.unlink()  # a link to the other one's
    path.write_text(json.dumps({**config, **copy.changes}))
    return folder


def _without_weights(target: Path, folder: Path) -> Path:
    """The target with a file in the weights' place that no loader takes: who reads it, fails."""
    shutil.copytree(target, folder, copy_function=os.link)
    (folder / _WEIGHTS).unlink()
    (folder / _WEIGHTS).write_bytes(b"no weights are to be read here")
    return folder


def _placed(
    start: Start, models: Mapping[str, Path], environment: Environment, scratch: Path
) -> Start:
    """The start with folders in the place of names."""
    job = {**start.job, "runs": str(scratch / "reference")}
    for role in ("target", "drafter"):
        if models and job.get(role) is not None:
            job[role] = str(_folder(models, job[role]))
    if environment.device == "cuda" and "kv_cache_memory_bytes" not in job["options"]:
        job["lock"] = str(scratch / "engine.lock")
    variables = dict(start.variables)
    if start.fresh_cache:
        # One for all of them: each has to find its own graph in it.
        variables["VLLM_CACHE_ROOT"] = str(scratch / "compiled")
    return replace(start, job=job, variables=variables)


def _folder(models: Mapping[str, Path], name: str) -> Path:
    if name not in models:
        raise VpatchError(f"a start of the plan names {name}, which the plan does not make")
    return models[name]
