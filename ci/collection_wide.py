"""Engines of hidden size 7168 for ci/collection_gpu.py: kernels of a step, and throughput.

All engines of a part start beside each other; then each is measured alone.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

Job = dict[str, Any]
Run = Callable[[str, Job, str, bool], Job]
Keep = Callable[[Job], None]
LAYERS = [1, 2, 3]
_MEMORY = {"gpu_memory_utilization": 0.1, "kv_cache_memory_bytes": 3 << 30}
_STEPS = {"max_model_len": 8300, "max_num_seqs": 128, "max_num_batched_tokens": 8192}
_POLL_S = 0.2
_SHM = "/dev/shm"  # noqa: S108 - what it is measured in

# The real Kimi-K2.5's layer, but for the number of experts: of 16 a token takes 8, as there.
_LARGE = {
    "hidden_size": 7168,
    "max_position_embeddings": 16384,
    "num_hidden_layers": 8,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 16,
    "num_experts_per_tok": 8,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 1536,
}
_PROMPTS, _FEW, _PROMPT = 96, 12, 2048
# Of an engine's turn, in seconds. Upstream's extraction was seen to take more than ten times as
# long as the collection: it has an eighth of the prompts, and so has the one beside it.
_LIMIT, _UPSTREAMS_LIMIT = 150, 60


def in_turn(
    run: Run, work: Path, jobs: dict[str, tuple[Job, str, bool]], only: list[str], keep: Keep
) -> dict[str, Job]:
    """Starts all engines; when each is ready or has ended, lets one after the other go on.

    What each one found is kept at once: a run that is broken off later has it.
    """
    jobs = {name: job for name, job in jobs.items() if not only or name.split()[-1] in only}
    found: dict[str, Future[Job]] = {}
    with ThreadPoolExecutor(len(jobs)) as pool:
        for name, (job, runner, stock) in jobs.items():
            turn = str(work / name.replace(" ", "-").replace("/", "-"))
            found[name] = pool.submit(run, name, {**job, "turn": turn}, runner, stock)
            jobs[name][0]["turn"] = turn
        waiting = set(jobs)
        while waiting:
            waiting -= {
                name
                for name in waiting
                if found[name].done() or Path(jobs[name][0]["turn"] + ".ready").exists()
            }
            time.sleep(_POLL_S)
        for name, (job, _, _) in jobs.items():
            Path(job["turn"] + ".go").touch()
            found[name].result()
            keep(_checked({name: one.result() for name, one in found.items() if one.done()}))
    return {name: future.result() for name, future in found.items()}


def _checked(found: dict[str, Job]) -> Job:
    return {name: {"ok": "error" not in one, **one} for name, one in found.items()}


def trace(run: Run, work: Path, models: Path, stock: bool, only: list[str], keep: Keep) -> Job:
    """All kernels of a step, by the profiler, with EAGLE-3: plain, with collection, the release."""
    jobs: dict[str, tuple[Job, str, bool]] = {}
    for runner, mode in (("v2", "graphs"), ("v1", "eager")):
        for kind in ("plain", "stock", "collect") if stock else ("plain", "collect"):
            job: Job = {
                "what": "trace",
                "target": str(models / "wide"),
                "drafter": str(models / "wide-llama"),
                "options": {**_STEPS, **_MEMORY, "enforce_eager": mode == "eager"},
                "lengths": [1, 32, 512, 2048, 8192],
                "batches": [1, 8, 32, 128],
            }
            if kind == "collect":
                out = str(work / f"trace-{runner}-{mode}")
                job["collection"] = {"layers": LAYERS, "dir": out, "fsync": False}
            jobs[f"trace {runner}/{mode}/{kind}"] = (job, runner, kind == "stock")
    found = in_turn(run, work, jobs, only, keep)
    for name, each in found.items():
        for case, one in each.get("cases", {}).items():
            spent = one["kernels"].items()
            total = sum(us for _, (_, us) in spent) / one["repetitions"]
            own = sum(us for key, (_, us) in spent if "_write_kernel" in key)
            print(f"{name} {case}: {total:.1f} us of kernels, own {own / one['repetitions']:.1f}")
    return _checked(found)


def write_large(models: Path) -> Path:
    """A config without weights, from the small target's: the engine makes some up."""
    large = models / "large"
    large.mkdir()
    for path in (models / "kimi").iterdir():
        if path.suffix != ".safetensors" and path.name != "config.json":
            shutil.copy(path, large)
    config = json.loads((models / "kimi" / "config.json").read_text())
    text = config["text_config"]
    factor = _LARGE["max_position_embeddings"] / text["rope_scaling"]["factor"]
    text |= {**_LARGE, "vocab_size": text["vocab_size"]}
    text["rope_scaling"]["original_max_position_embeddings"] = int(factor)
    (large / "config.json").write_text(json.dumps(config))
    return large


def throughput(run: Run, work: Path, models: Path, stock: bool, only: list[str], keep: Keep) -> Job:
    """Tokens a second: without collection, into nothing, /dev/shm, a disk.

    Upstream's extraction runs on V1 alone (v0.26.0), into /dev/shm. It comes first, with few
    prompts: what is slow ends all the same, and what hangs says so. The collection beside it has
    these too, and the two are compared by them.
    """
    sinks: dict[str, Job | None] = {
        "none": None,
        "nothing": {"write": False},
        "shm": {"dir": f"{_SHM}/{work.name}"},
        "disk": {"dir": str(work / "disk")},
    }
    jobs: dict[str, tuple[Job, str, bool]] = {}
    if stock:
        job = _throughput_job(models) | {"extract": f"{_SHM}/{work.name}-upstream"}
        job |= {"prompts": [_FEW], "limit": _UPSTREAMS_LIMIT}
        jobs["throughput v1/upstream"] = (job, "v1", True)
    for runner, names in (("v2", ("none", "nothing", "shm", "disk")), ("v1", ("none", "shm"))):
        for name in names:
            sink = sinks[name]
            job = _throughput_job(models)
            if sink is not None:
                job["collection"] = {"layers": LAYERS, "fsync": name == "disk", **sink}
                if "dir" in sink:
                    job["collection"]["dir"] += f"-{runner}"
            if (runner, name) == ("v1", "shm"):
                job["prompts"] = [_FEW, _PROMPTS]
            jobs[f"throughput {runner}/{name}"] = (job, runner, False)
    found = in_turn(run, work, jobs, only, keep)
    for name, one in found.items():
        print(f"{name}: {_line(one)}")
    return _checked(found) | compared(found)


def compared(found: dict[str, Job]) -> Job:
    """Rates of as many prompts, one engine's by another one's."""
    checks: Job = {}
    for name, less, prompts, least in (
        ("v2/nothing", "v2/none", _PROMPTS, 0.95),
        ("v2/shm", "v2/none", _PROMPTS, 0.95),
        ("v1/shm", "v1/upstream", _FEW, 1.3),
    ):
        rates = [found.get(f"throughput {each}", {}).get("by_prompts", {}) for each in (name, less)]
        if all(str(prompts) in rate for rate in rates):
            ratio = rates[0][str(prompts)] / rates[1][str(prompts)]
            checks[f"throughput {name} to {less}"] = {
                "ok": ratio >= least,
                "prompts": prompts,
                "ratio": ratio,
                "least": least,
            }
    return checks


def _throughput_job(models: Path) -> Job:
    options = {
        **_STEPS,
        **_MEMORY,
        "max_num_seqs": 32,
        "load_format": "dummy",
        "compilation_config": {"cudagraph_capture_sizes": [1, 8, 32]},
    }
    return {
        "what": "throughput",
        "target": str(models / "large"),
        "options": options,
        "prompts": [_PROMPTS],
        "prompt": _PROMPT,
        "limit": _LIMIT,
    }


def _line(one: Job) -> str:
    if "error" in one:
        return str(one["error"])[-300:]
    said = [f"{rate:.0f} tokens/s of {count} prompts" for count, rate in one["by_prompts"].items()]
    rates = ", ".join(f"{rate:.0f}" for rate in one["rates"])
    return f"{'; '.join(said)} (runs: {rates}); {one['blocks']} blocks; {one.get('more')}"
