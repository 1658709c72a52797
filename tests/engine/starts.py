"""Runs this package's modules with vLLM, each in a process of its own under the environment."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.environment import Site

TESTS = Path(__file__).resolve().parents[1]
TIMEOUT_S = 420
Job = dict[str, Any]

SETTINGS = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",  # two engines run at once
    "TORCHINDUCTOR_VEC_ISA_OK": "0",  # finding out what the CPU has takes longer than it saves
    "TRITON_INTERPRET": "1",  # the kernels that verify drafts are Triton's
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # or both would sit on the same core
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine is where the script can look into it
    "VLLM_MLA_DISABLE": "1",  # the CPU has no MLA kernel in these releases
    "VLLM_NO_USAGE_STATS": "1",
}


@dataclass(frozen=True)
class Start:
    """One engine start that a test wants.

    Attributes:
        name: Of its folder.
        job: What engine_start.py reads; its models are names of folders of the machine's models.
    """

    name: str
    job: Job


@dataclass(frozen=True)
class Machine:
    """Where engines start: an environment, a release, and the checkpoints.

    Attributes:
        python: The environment's.
        site: The release.
        models: What models.py wrote.
        scratch: One folder for each start.
        library: What engine_library wrote: the modules that tests and tool share.
        kept: Caches that outlive the run: by release what vLLM found out about its model classes,
            and torch's compiled kernels, by their content.
        compile_cache: VLLM_CACHE_ROOT of starts that compile.
    """

    python: Path
    site: Site
    models: Path
    scratch: Path
    library: Path
    kept: Path
    compile_cache: Path | None = None

    @property
    def vllm_cache(self) -> Path:
        """VLLM_CACHE_ROOT."""
        return self.compile_cache or self.kept / "vllm" / self.site.folder.name

    def start(self, start: Start) -> Job:
        """Starts an engine, runs its prompts, and returns what engine_start.py wrote.

        Where the job says what the drafter should get, compare.py's findings are added.
        """
        folder = self.scratch / start.name
        folder.mkdir(parents=True)
        job = start.job | {"target": str(self.models / start.job.get("target", "target"))}
        if "drafter" in job:
            job["drafter"] = str(self.models / job["drafter"])
        (folder / "job.json").write_text(json.dumps(job))
        self.run("engine_start", folder / "job.json", compiles=job.get("compile", False))
        outputs: Job = json.loads((folder / "outputs.json").read_text())
        if "ids" in job:
            outputs |= json.loads(self.run("compare", folder / "job.json"))
        return outputs

    def run(self, module: str, argument: Path, *, compiles: bool = False) -> str:
        """One module; returns its standard output. Its last lines show when it fails."""
        environment = SETTINGS | {
            "HOME": str(self.scratch),
            "PATH": os.environ["PATH"],
            # Kimi's vision tower asks torch to compile even in eager mode.
            "TORCH_COMPILE_DISABLE": str(int(not compiles)),
            "PYTHONPATH": os.pathsep.join(map(str, [self.site.folder, self.library, TESTS])),
            "TORCHINDUCTOR_CACHE_DIR": str(self.kept / "inductor"),
            "VLLM_CACHE_ROOT": str(self.vllm_cache),
        }
        return _run([self.python, "-m", f"engine.{module}", argument], environment)


class Runs:
    """Engine starts, two at once, in the order that they were asked for; each by a name.

    A context: what has not begun when it ends is never begun.
    """

    def __init__(self, at_once: int = 2) -> None:
        self._pool = ThreadPoolExecutor(at_once)
        self._futures: dict[str, Future[Job]] = {}

    def __enter__(self) -> Runs:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def __exit__(self, *_error: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def begin(self, name: str, work: Callable[..., Job], *arguments: object) -> None:
        self._futures[name] = self._pool.submit(work, *arguments)

    def __getitem__(self, name: str) -> Job:
        """Waits for it."""
        return self._futures[name].result()


def plain(python: Path, library: Path, module: str, argument: str | Path) -> str:
    """A module that needs torch but no vLLM; returns its standard output."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(map(str, [library, TESTS])),
        "OMP_NUM_THREADS": "1",
    }
    return _run([python, "-m", module, argument], environment)


def _run(command: Sequence[str | Path], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, env=environment, capture_output=True, check=False, text=True, timeout=TIMEOUT_S
    )
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-60:])
        raise AssertionError(f"{command}: exit {done.returncode}\n{tail}")
    return done.stdout
