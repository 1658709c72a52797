"""The collection of hidden states on one GPU, without network: patched vLLM beside the release.

    PYTHONPATH=SITE[:...] python3 ci/collection_gpu.py [--stock PYTHONPATH] [--out FILE] [PART]...

vLLM with the topic `collection` is on PYTHONPATH, as a bundle's unpack.py prints it; --stock is the
PYTHONPATH of the release without it (left out: what needs it is not compared). PARTs, all of them
where none is named:

    kernels  the collection's own kernels beside stock's add, copy and concatenate, in graphs,
             from 1 to 8192 tokens of 7168 values and 3 layers; about half a minute
    answers  64 requests (chunked prefill, stops, preemption, aborts) on both model runners, eager
             and with graphs (--mode: compiled in one graph, or by Inductor's partition, too), with
             and without EAGLE-3: greedy answers and the bits of their logprobs with collection,
             without, and of the release; every collected row against the float32 reference; a copy
             stream that is late; two or three minutes
    tensor-parallel
             the same on two GPUs: one rank writes, or each of them its share; only where it is
             named
    many     10,000 short requests: counts add up, and memory is flat; minutes, and only where it is
             named
    trace    all kernels of a step of engines of hidden size 7168, by the profiler; minutes, and
             only where it is named
    throughput
             prompts of 2048 tokens through eight layers as wide as Kimi's, beside upstream's
             extraction; minutes, and only where it is named

--cpu takes a CPU build, and of the parts the answers and many on what runs there: V1, eager, in
float32.
Prints a table and writes FILE (JSON). Exit 0 where all checks hold, 1 where not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parent / "tools"
sys.path.insert(0, str(TOOLS))

import collection_cpu  # noqa: E402
import collection_many  # noqa: E402
import collection_wide  # noqa: E402
from collection_answers import MODES, Place, answers, tensor_parallel  # noqa: E402

Job = dict[str, Any]
_LIMIT_S = 400
_VARIABLES = {
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "2",
    # Else each engine's threads spin beside the others'.
    "OMP_NUM_THREADS": "1",
}
_GPU_MEMORY = {"gpu_memory_utilization": 0.05, "kv_cache_memory_bytes": 256 << 20}


def write_models(folder: Path, cpu: bool, wide: bool) -> None:
    """The checkpoints."""
    from vpatch.smoke.engine import models

    for shape, ids, names in (
        ({"preset": "cpu" if cpu else "cuda"}, [1, 3, 7], ("kimi", "llama")),
        (
            {"preset": "wide", "positions": 16384, "original_positions": 4096},
            collection_wide.LAYERS,
            ("wide", "wide-llama"),
        ),
    )[: 2 if wide else 1]:
        target, drafter = names
        models.main(
            {
                "folder": str(folder),
                "shape": shape,
                "targets": [{"name": target}],
                "drafters": [
                    {
                        "name": drafter,
                        "target": target,
                        "kind": "llama",
                        "ids": ids,
                        "form": "nested",
                    }
                ],
            }
        )


class Starts:
    """Runs jobs as children, with an environment each."""

    def __init__(self, work: Path, stock: str | None, cpu: bool) -> None:
        self.work = work
        self.stock = stock
        self.cpu = cpu

    def run(self, name: str, job: Job, runner: str, stock: bool = False) -> Job:
        """What a job found, or {"error": the log's end}."""
        path = self.work / f"{name.replace(' ', '-').replace('/', '-')}.json"
        path.write_text(json.dumps(job))
        variables = {**os.environ, **_VARIABLES}
        variables["VLLM_USE_V2_MODEL_RUNNER"] = "1" if runner == "v2" else "0"
        variables["VLLM_CACHE_ROOT"] = str(path.with_suffix(".cache"))
        if job.get("options", {}).get("enforce_eager"):
            variables["TORCH_COMPILE_DISABLE"] = "1"
        if self.cpu:
            variables |= collection_cpu.variables()
        site = self.stock if stock else os.environ.get("PYTHONPATH", "")
        variables["PYTHONPATH"] = f"{site}:{TOOLS}"
        log = path.with_suffix(".log")
        began = time.monotonic()
        with log.open("w") as file:
            command = [sys.executable, str(HERE / "collection_engine.py"), str(path)]
            try:
                status: object = subprocess.run(
                    command,
                    env=variables,
                    stdout=file,
                    stderr=file,
                    check=False,
                    timeout=_LIMIT_S,
                ).returncode
            except subprocess.TimeoutExpired:
                status = f"not over in {_LIMIT_S} s"
        print(f"{name}: {status}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        found = path.with_suffix(".found.json")
        if status or not found.is_file():
            return {"error": log.read_text(errors="replace")[-1500:]}
        result: Job = json.loads(found.read_text())
        return result


def many(place: Place) -> Job:
    """An engine that collects, and one that does not, one after the other."""
    out, told = place.work / "out-many", place.work / "many-answers.jsonl"
    job = place.base("eager") | {
        "what": "many",
        "requests": collection_many.REQUESTS,
        "answers": str(told),
        "drafter": None,
    }
    job["options"] |= {"max_num_seqs": collection_many.IN_FLIGHT, "num_gpu_blocks_override": 160}
    plain = place.run("many/plain", job, "v1", False)
    collection = {"layers": [1, 8], "dir": str(out)}
    found = place.run("many/collect", {**job, "collection": collection}, "v1", False)
    for one in (plain, found):
        if "error" in one:
            return {"many": {"ok": False, "error": one["error"]}}
    return {"many": collection_many.judge(found, plain, told, out)}


def kernels() -> Job:
    """The standalone comparison."""
    site = os.environ.get("PYTHONPATH", "")
    variables = {**os.environ, **_VARIABLES, "PYTHONPATH": f"{site}:{TOOLS}"}
    run = subprocess.run(
        [sys.executable, str(HERE / "collection_kernels.py")],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        return {"kernels": {"ok": False, "error": run.stderr[-1500:]}}
    found = json.loads(run.stdout.strip().splitlines()[-1])
    rows = found["rows"]
    ok = all(
        row["bit_equal"] and row["graph_ratio"] >= 1.6 and row["eager_ratio"] >= 1.3 for row in rows
    ) and all(row["over_floor"] <= 1.25 for row in rows if row["tokens"] >= 2048)
    for row in rows:
        us = ", ".join(f"{name} {value:.1f}" for name, value in row["us"].items())
        print(
            f"{row['tokens']:>5} tokens: {us} us; stock/ours {row['graph_ratio']:.2f} in graphs, "
            f"{row['eager_ratio']:.2f} eager; {row['over_floor']:.2f} of the floor; "
            f"bit-equal: {row['bit_equal']}"
        )
    return {"kernels": {"ok": ok, **found}}


def main() -> int:
    """Returns 0 where all checks hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--stock")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--mode", action="append", choices=MODES, help="else eager and graphs")
    parser.add_argument("--runner", action="append", choices=("v1", "v2"), help="else both")
    parser.add_argument("--only", action="append", help="of trace and throughput: v2/shm, ...")
    parser.add_argument("parts", nargs="*", default=["kernels", "answers"])
    asked = parser.parse_args()
    work = asked.work or Path(tempfile.mkdtemp(prefix="collection-"))
    work.mkdir(parents=True, exist_ok=True)
    modes = asked.mode or (["eager"] if asked.cpu else ["eager", "graphs"])
    runners = asked.runner or (["v1"] if asked.cpu else ["v1", "v2"])
    starts = Starts(work, asked.stock, asked.cpu)
    models = work / "models"
    parts = asked.parts
    if asked.cpu:
        parts = [one for one in parts if one in ("answers", "many")]
    if set(parts) - {"kernels"}:
        write_models(models, asked.cpu, "trace" in parts)
    if "throughput" in parts:
        collection_wide.write_large(models)
    checks: Job = {}

    def keep(more: Job) -> None:
        if asked.out:
            asked.out.write_text(json.dumps(checks | more, indent=1))

    place = Place(
        run=starts.run,
        work=work,
        models=models,
        memory=collection_cpu.options() if asked.cpu else _GPU_MEMORY,
        stand_ins=collection_cpu.stand_ins() if asked.cpu else {},
        cpu=asked.cpu,
        has_stock=asked.stock is not None,
        keep=keep,
    )
    for part in parts:
        checks |= kernels() if part == "kernels" else {}
        checks |= answers(place, modes, runners) if part == "answers" else {}
        checks |= tensor_parallel(place, runners) if part == "tensor-parallel" else {}
        checks |= many(place) if part == "many" else {}
        if part in ("trace", "throughput"):
            wide = {"trace": collection_wide.trace, "throughput": collection_wide.throughput}[part]
            checks |= wide(starts.run, work, models, starts.stock is not None, asked.only or [])
        keep({})
    for name, check in checks.items():
        brief = {k: v for k, v in check.items() if k not in ("rows", "kernels", "cases", "ok")}
        print(f"{'ok  ' if check['ok'] else 'FAIL'} {name}: {json.dumps(brief)[:400]}")
    return 0 if all(check["ok"] for check in checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
