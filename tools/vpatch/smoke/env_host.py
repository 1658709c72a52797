"""Whether this machine can run the smoke at all, known before anything is downloaded."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vpatch.errors import HostError

Device = Literal["cpu", "cuda"]

# An engine with the tiny model, and the reference beside it.
_MEMORY_GB = 3.0
# Context, kernels' workspaces, weights and cache of the tiny model, with room to spare.
_GPU_MEMORY_MB = 8000
_MOST_ON_CPU, _MOST_ON_GPU = 2, 8
_MEMINFO = Path("/proc/meminfo")
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_TIMEOUT_S = 60
_FIELDS = 3


@dataclass(frozen=True)
class Host:
    """What a machine has.

    Attributes:
        memory: Bytes that a process can still get.
        gpu: The first GPU's name; None where none was asked for.
        driver: The version of its driver.
        gpu_memory: Megabytes that are free on the GPU, where it tells.
    """

    memory: int
    gpu: str | None = None
    driver: str | None = None
    gpu_memory: int | None = None

    @property
    def engines(self) -> int:
        """How many engines with the tiny model it carries beside each other."""
        fit = int(self.memory / (_MEMORY_GB * 1e9))
        if self.gpu is not None:
            cores = len(os.sched_getaffinity(0))
            fit = min(fit, _MOST_ON_GPU, cores // 2, (self.gpu_memory or 0) // _GPU_MEMORY_MB)
        else:
            fit = min(fit, _MOST_ON_CPU)
        return max(fit, 1)


def check_host(device: Device) -> Host:
    """Looks at the GPU, where one is asked for, and at the free memory.

    Raises:
        HostError: No GPU, or too little memory.
    """
    gpu = _gpu() if device == "cuda" else ()
    memory = _memory()
    if memory < _MEMORY_GB * 1e9:
        raise HostError(
            f"too little memory: an engine start takes about {_MEMORY_GB:.0f} GB, "
            f"{memory / 1e9:.1f} GB are free",
            hint="Stop what takes the memory, or run it on a larger machine.",
            code="memory",
        )
    return Host(memory, *gpu)


def _gpu() -> tuple[str, str, int | None]:
    """The first GPU's name, driver and free memory."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        raise _no_gpu("nvidia-smi is not on PATH")
    command = [tool, "--query-gpu=name,driver_version,memory.free", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, check=False, text=True, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise _no_gpu(f"nvidia-smi did not answer within {_TIMEOUT_S} seconds") from None
    except OSError as error:
        raise _no_gpu(f"{tool} cannot run: {error.strerror}") from error
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines or lines[0].count(",") < _FIELDS - 1:
        said = (lines or done.stderr.strip().splitlines() or ["nothing"])[0]
        raise _no_gpu(f"nvidia-smi says {said!r}")
    name, driver, free = (field.strip() for field in lines[0].rsplit(",", _FIELDS - 1))
    return name, driver, int(free) if free.isdigit() else None


def _no_gpu(cause: str) -> HostError:
    return HostError(
        f"no GPU: {cause}",
        hint="Run it on a machine with an NVIDIA GPU and its driver, or give --device cpu.",
        code="no-gpu",
    )


def _memory() -> int:
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _MEMINFO.read_text(), re.MULTILINE)
    if found is None:
        raise HostError(f"{_MEMINFO} does not tell how much memory is free", code="memory")
    free = int(found[1]) * 1024
    # A container's own limit.
    limit = _CGROUP_LIMIT.read_text().strip() if _CGROUP_LIMIT.is_file() else "max"
    return min(free, int(limit)) if limit.isdigit() else free
