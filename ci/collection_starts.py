"""Starts of engines for ci/collection_gpu.py: children with environments of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import collection_cpu

Job = dict[str, Any]
HERE = Path(__file__).resolve().parent
TOOLS = HERE.parent / "tools"
_LIMIT_S = 400
VARIABLES = {
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "2",
    # Else each engine's threads spin beside the others'.
    "OMP_NUM_THREADS": "1",
}


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
        variables = {**os.environ, **VARIABLES}
        variables["VLLM_USE_V2_MODEL_RUNNER"] = "1" if runner == "v2" else "0"
        variables["VLLM_CACHE_ROOT"] = str(path.with_suffix(".cache"))
        if job.get("options", {}).get("enforce_eager"):
            variables["TORCH_COMPILE_DISABLE"] = "1"
        if self.cpu:
            variables |= collection_cpu.variables()
        variables |= job.get("variables", {})
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
        result: Job = json.loads(found.read_text()) if found.is_file() else {}
        if status or not result:
            end = f"{status}: {log.read_text(errors='replace')[-1500:]}"
            return {"error": result.get("error", end)}
        return result | {"log": str(log)}


class Planned:
    """Prints jobs in the place of running them."""

    def run(self, name: str, job: Job, runner: str, stock: bool = False) -> Job:
        """Nothing was found."""
        print(json.dumps({"engine": name, "runner": runner, "stock": stock, **job}))
        if "turn" in job:
            Path(job["turn"] + ".ready").touch()
        return {"error": "planned only"}
