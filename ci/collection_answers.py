"""Requests through many engines, for ci/collection_gpu.py: equal answers, rows by a reference."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collection_judge import rows_of, same

Job = dict[str, Any]
Run = Callable[[str, Job, str, bool], Job]
LAYERS = [0, 1, 3, 5, 7, 8]
ABORTED = {"5", "21", "33", "40"}
# What each mode changes in LLM(...).
MODES: dict[str, Job] = {
    "eager": {"enforce_eager": True},
    "graphs": {},
    "one-graph": {"compilation_config": {"splitting_ops": []}},
    "partition": {"compilation_config": {"use_inductor_graph_partition": True}},
}
_AT_ONCE = 7
_FACTS = ("steps", "metrics", "runner", "blocks", "seconds")
_SMALL = {
    "max_model_len": 256,
    "max_num_seqs": 24,
    "max_num_batched_tokens": 96,
    "num_gpu_blocks_override": 40,
}


@dataclass(frozen=True)
class Place:
    """Where engines run.

    Attributes:
        run: Starts one: its name, job, model runner, and whether it is the release's.
        work: A folder for what they write.
        models: That of the checkpoints.
        memory: Options of LLM(...) for the device.
        stand_ins: What a CPU build needs in a GPU's place.
        cpu: Whether it is a CPU: one engine at a time, in float32.
        has_stock: Whether there is a release to compare with.
        keep: Writes down the checks of a part so far: who runs out of time has those.
    """

    run: Run
    work: Path
    models: Path
    memory: Job
    stand_ins: Job
    cpu: bool
    has_stock: bool
    keep: Callable[[Job], None]

    def base(self, mode: str) -> Job:
        """A job of `answers` with EAGLE-3, without collection."""
        return {
            "what": "answers",
            "target": str(self.models / "kimi"),
            "options": {**_SMALL, **self.memory, **MODES[mode]},
            "stand_ins": self.stand_ins,
            "drafter": str(self.models / "llama"),
        }


def answers(place: Place, modes: list[str], runners: list[str]) -> Job:
    """All engines of the part, some at a time; then what they found, compared."""
    jobs: dict[str, tuple[Job, str, bool]] = {}
    for runner in runners:
        for mode in modes:
            name, base = f"{runner}/{mode}", place.base(mode)
            out = place.work / f"out-{runner}-{mode}"
            # Room for all: who waits for the writer is in other batches, which round otherwise.
            collection = {"layers": LAYERS, "dir": str(out), "ring_gib": 0.25}
            late = mode == "graphs"
            job = {**base, "collection": collection, "late": late}
            jobs[f"{name}/collect"] = (job, runner, False)
            jobs |= _without(place, name, base, runner)
            if mode == ("eager" if runner == "v1" else "graphs"):
                alone = {"layers": LAYERS, "dir": f"{out}-alone"}
                job = {**base, "drafter": None, "collection": alone}
                jobs[f"{name}/collect-alone"] = (job, runner, False)
    return _judged(place, jobs)


def tensor_parallel(place: Place, runners: list[str]) -> Job:
    """The same on two GPUs, compiled: one rank writes, or each of them its share."""
    jobs: dict[str, tuple[Job, str, bool]] = {}
    for runner in runners:
        name, base = f"{runner}/two-ranks", place.base("graphs")
        base["options"] |= {"tensor_parallel_size": 2}
        jobs |= _without(place, name, base, runner)
        for ranks, kind in ((None, "collect"), ("all", "collect-all")):
            collection: Job = {"layers": LAYERS, "ring_gib": 0.25}
            collection["dir"] = str(place.work / f"out-{runner}-two-{kind}")
            if ranks:
                collection["ranks"] = ranks
            jobs[f"{name}/{kind}"] = ({**base, "collection": collection}, runner, False)
    return _judged(place, jobs)


def _without(place: Place, name: str, base: Job, runner: str) -> dict[str, tuple[Job, str, bool]]:
    """The engines that collect nothing, with the series and of the release."""
    jobs = {f"{name}/plain": (base, runner, False)}
    return jobs | ({f"{name}/stock": (base, runner, True)} if place.has_stock else {})


def _judged(place: Place, jobs: dict[str, tuple[Job, str, bool]]) -> Job:
    """Each engine's rows as soon as it has ended, and then answers beside each other."""
    found: dict[str, Job] = {}
    checks: Job = {}
    # A CPU runs one at a time.
    with ThreadPoolExecutor(1 if place.cpu else _AT_ONCE) as pool:
        running = {pool.submit(place.run, name, *one): name for name, one in jobs.items()}
        for future in as_completed(running):
            name = running[future]
            found[name] = future.result()
            checks |= _judge_one(place, name, found[name], jobs[name][0])
            place.keep(checks)
    for name, result in found.items():
        case, _, kind = name.rpartition("/")
        if "error" not in result and kind in ("collect", "collect-all", "stock"):
            checks[f"bits {case}: {kind} = plain"] = same(result, found[f"{case}/plain"], ABORTED)
    return checks


def _judge_one(place: Place, name: str, result: Job, job: Job) -> Job:
    if "error" in result:
        return {f"starts {name}": {"ok": False, "error": result["error"]}}
    checks: Job = {f"starts {name}": {"ok": True, **{key: result.get(key) for key in _FACTS}}}
    if "collection" in job:
        target, dtype = place.models / "kimi", "float32" if place.cpu else "bfloat16"
        folder = Path(job["collection"]["dir"])
        checks[f"rows {name}"] = rows_of(result, folder, target, dtype)
    return checks
