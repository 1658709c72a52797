"""What the smoke runs vLLM in: an isolated Python environment, or one that is already there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vpatch.progress import Progress
from vpatch.upstream.index import Index

Device = Literal["cpu", "cuda"]


@dataclass(frozen=True)
class Environment:
    """Where vLLM runs.

    Attributes:
        python: The interpreter.
        path: PYTHONPATH, in order: the vLLM wheel's folder first.
        variables: What else to set.
        vllm: Its version, as ``0.17.1+kimi.1``.
        torch: The version of its torch, as ``2.10.0+cpu``.
    """

    python: Path
    path: tuple[Path, ...]
    variables: Mapping[str, str]
    vllm: str
    torch: str
    device: Device


@dataclass(frozen=True)
class Host:
    """What a machine has: bytes of memory that are free; on CUDA, its first GPU and its driver."""

    memory: int
    gpu: str | None = None
    driver: str | None = None


@dataclass(frozen=True)
class Probe:
    """What an environment's interpreter says about itself.

    Attributes:
        python: ``3.12.3``.
        cuda: The CUDA version of torch's build, or None.
        gpu: The first GPU's name and its capability, as ``9.0``; None on a CPU.
    """

    python: str
    vllm: str
    torch: str
    cuda: str | None = None
    gpu: str | None = None
    capability: str | None = None


def check_host(device: Device) -> Host:
    """Looks whether this machine can run the smoke at all, before anything is downloaded.

    Raises:
        HostError: No GPU, or too little free memory.
    """
    raise NotImplementedError


def make_environment(
    wheel: Path,
    device: Device,
    *,
    python: Path | None = None,
    index: Index,
    cache: Path,
    progress: Progress,
    more: Sequence[str] = (),
) -> Environment:
    """An environment for a vLLM wheel, made where it is not in the cache yet.

    Args:
        wheel: vLLM, for CUDA or for the CPU.
        python: The interpreter; this one where None.
        index: Where what it needs is downloaded from.
        cache: The user's cache.
        more: Requirements beyond the wheel's.

    Raises:
        UsageError: The wheel is for another device.
        FindingError: A wheel is not to be trusted.
        HostError: A wrong Python, no set of wheels fits, network, disk, vLLM cannot be imported.
    """
    raise NotImplementedError


def installed_environment(
    python: Path, device: Device, *, path: Sequence[Path] = (), variables: Mapping[str, str] | None = None
) -> Environment:
    """An environment that is already there: a Python with vLLM in it, or on ``path``.

    Raises:
        HostError: The interpreter cannot run, torch is another than vLLM needs, a package is
            missing, there is no GPU.
    """
    raise NotImplementedError


def probe(environment: Environment) -> Probe:
    """Runs the interpreter once, and has it import torch and vLLM.

    Raises:
        HostError: As for `installed_environment`.
    """
    raise NotImplementedError
