"""What the benchmarks share: running things in turns, and figures with bounds."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vpatch.errors import HostError

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Measured:
    """One thing that was measured: its best time, and the most memory that a run of it took."""

    name: str
    seconds: float
    peak_megabytes: float
    runs: int


@dataclass(frozen=True)
class Bound:
    """A promise and what came out of it."""

    promise: str
    value: float
    limit: float
    kept: bool


@dataclass(frozen=True)
class Result:
    """A part's figures."""

    part: str
    measured: tuple[Measured, ...]
    bounds: tuple[Bound, ...]


Run = Callable[[], float]
"""Does a thing once and returns its peak memory in MB; 0 where nobody asks."""


def command(*words: str | Path) -> float:
    """Runs a command to its end and returns the most memory that it took, in MB.

    Raises:
        HostError: it failed; its output stands above.
    """
    process = os.posix_spawn(
        shutil.which(str(words[0])) or str(words[0]),
        [str(word) for word in words],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, usage = os.wait4(process, 0)
    if status:
        raise HostError(f"{' '.join(map(str, words))} failed", code="bench")
    return usage.ru_maxrss * 1024 / MEGABYTE


def measure(runs: int, **things: Run) -> dict[str, Measured]:
    """Runs things in turns and keeps the best time of each."""
    times: dict[str, list[float]] = {name: [] for name in things}
    peaks = dict.fromkeys(things, 0.0)
    for _ in range(runs):
        for name, run in things.items():
            start = time.perf_counter()
            peaks[name] = max(peaks[name], run())
            times[name].append(time.perf_counter() - start)
    return {name: Measured(name, min(times[name]), peaks[name], runs) for name in things}


def at_least(promise: str, value: float, limit: float) -> Bound:
    """A promise that a figure is no smaller."""
    return Bound(promise, value, limit, value >= limit)


def at_most(promise: str, value: float, limit: float) -> Bound:
    """A promise that a figure is no larger."""
    return Bound(promise, value, limit, value <= limit)


def named(measured: Measured, name: str) -> Measured:
    return Measured(name, measured.seconds, measured.peak_megabytes, measured.runs)
