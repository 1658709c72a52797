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
    sleep    8 requests again and again, with sleep of level 1 and 2 between them and the weights
             loaded again: rows are those of the first time (collection_sleep.py); a minute a runner
             and mode, and only where it is named
    fusion   how many all-reduces and norms the compiler's pass fuses, with the buffer and without,
             on two GPUs with flashinfer (collection_fusion.py); only where it is named
    data-parallel
             two data-parallel ranks: files of their own names, rows against the reference
             (collection_parallel.py); two GPUs, or --cpu; only where it is named
    many     10,000 short requests: counts add up, and memory is flat; minutes, and only where it is
             named
    trace    all kernels of a step of engines of hidden size 7168, by the profiler; minutes, and
             only where it is named
    throughput
             prompts of 2048 tokens through eight layers as wide as Kimi's, beside upstream's
             extraction, which has an eighth of the prompts; minutes, and only where it is named

--cpu takes a CPU build, and of the parts answers, many, data-parallel and sleep (there without
sleep) on what runs there: V1, eager, in float32. --plan starts nothing and prints the jobs.
Prints a table and writes FILE (JSON). Exit 0 where all checks hold, 1 where not, 2 where a part
does not run there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parent / "tools"
sys.path.insert(0, str(TOOLS))

import collection_cpu  # noqa: E402
import collection_many  # noqa: E402
import collection_wide  # noqa: E402
from collection_answers import MODES, Place, answers, tensor_parallel  # noqa: E402
from collection_fusion import fusion  # noqa: E402
from collection_parallel import data_parallel  # noqa: E402
from collection_sleep import sleep  # noqa: E402
from collection_starts import VARIABLES, Planned, Starts  # noqa: E402

Job = dict[str, Any]
PARTS = (
    "kernels",
    "answers",
    "tensor-parallel",
    "data-parallel",
    "sleep",
    "fusion",
    "many",
    "trace",
    "throughput",
)
_ON_A_CPU = ("answers", "data-parallel", "sleep", "many")
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
    variables = {**os.environ, **VARIABLES, "PYTHONPATH": f"{site}:{TOOLS}"}
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


def asked_of(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--stock")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--plan", action="store_true", help="start nothing, and print the jobs")
    parser.add_argument("--mode", action="append", choices=MODES, help="else eager and graphs")
    parser.add_argument("--runner", action="append", choices=("v1", "v2"), help="else both")
    parser.add_argument("--only", action="append", help="of trace and throughput: v2/shm, ...")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    asked = parser.parse_args(arguments)
    asked.parts = asked.parts or (["answers"] if asked.cpu else ["kernels", "answers"])
    for part in asked.parts:
        if part not in PARTS:
            parser.error(f"there is no part {part!r}; there is {', '.join(PARTS)}")
        if asked.cpu and part not in _ON_A_CPU:
            parser.error(f"{part} needs a GPU; on a CPU there is {', '.join(_ON_A_CPU)}")
    asked.mode = asked.mode or (["eager"] if asked.cpu else ["eager", "graphs"])
    asked.runner = asked.runner or (["v1"] if asked.cpu else ["v1", "v2"])
    return asked


def run_part(part: str, place: Place, asked: argparse.Namespace) -> Job:
    """The checks of one part."""
    modes, runners = asked.mode, asked.runner
    if part in ("trace", "throughput"):
        wide = {"trace": collection_wide.trace, "throughput": collection_wide.throughput}[part]
        only = asked.only or []
        return wide(place.run, place.work, place.models, place.has_stock, only, place.keep)
    parts: dict[str, Callable[[], Job]] = {
        "kernels": kernels,
        "answers": lambda: answers(place, modes, runners),
        "tensor-parallel": lambda: tensor_parallel(place, runners),
        "data-parallel": lambda: data_parallel(place),
        "sleep": lambda: sleep(place, modes, runners),
        "fusion": lambda: fusion(place, runners),
        "many": lambda: many(place),
    }
    return parts[part]()


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 where all checks hold."""
    asked = asked_of(arguments)
    work = asked.work or Path(tempfile.mkdtemp(prefix="collection-"))
    work.mkdir(parents=True, exist_ok=True)
    models = work / "models"
    if set(asked.parts) - {"kernels"} and not asked.plan:
        write_models(models, asked.cpu, "trace" in asked.parts)
    if "throughput" in asked.parts and not asked.plan:
        collection_wide.write_large(models)
    checks: Job = {}

    def keep(more: Job) -> None:
        if asked.out and not asked.plan:
            asked.out.write_text(json.dumps(checks | more, indent=1))

    on_a_cpu = asked.cpu and not asked.plan
    place = Place(
        run=Planned().run if asked.plan else Starts(work, asked.stock, asked.cpu).run,
        work=work,
        models=models,
        memory=collection_cpu.options() if on_a_cpu else _GPU_MEMORY,
        stand_ins=collection_cpu.stand_ins() if on_a_cpu else {},
        cpu=asked.cpu,
        has_stock=asked.stock is not None,
        keep=keep,
    )
    for part in asked.parts:
        if asked.plan and part == "kernels":
            continue
        checks |= run_part(part, place, asked)
        keep({})
    if asked.plan:
        return 0
    for name, check in checks.items():
        brief = {k: v for k, v in check.items() if k not in ("rows", "kernels", "cases", "ok")}
        print(f"{'ok  ' if check['ok'] else 'FAIL'} {name}: {json.dumps(brief)[:400]}")
    return 0 if all(check["ok"] for check in checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
