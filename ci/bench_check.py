"""Benchmark of ``vpatch check``: each pinned release for the first time, again, all at once."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from bench_lab import MEGABYTE, Measured, Result, at_most
from vpatch.errors import HostError
from vpatch.patches.repo import pinned_tags

_VPATCH = Path(sys.executable).parent / "vpatch"
_FOUND = 1  # a gate is red: the check was made all the same


def bench_check(root: Path, cache: Path, scratch: Path, runs: int) -> Result:
    """Seconds of CPU, its own and git's: a busy machine does not count."""
    tags = pinned_tags(root)
    own = scratch / "check"  # the releases of the user's cache, and no answers
    own.mkdir()
    (own / "mirror.git").symlink_to(cache / "mirror.git")

    def measured(name: str, *tags: str, kept: bool) -> Measured:
        seconds, peak = [], 0.0
        for _ in range(runs):
            if not kept:
                shutil.rmtree(own / "gates", ignore_errors=True)
            used, most = _check(own, "check", *tags, "--json", "--repo", str(root))
            seconds.append(used)
            peak = max(peak, most)
        return Measured(name, min(seconds), peak, runs)

    first = [measured(f"vpatch check {tag}, CPU", tag, kept=False) for tag in tags]
    again = measured(f"vpatch check {tags[-1]} again, CPU", tags[-1], kept=True)
    every = measured(f"vpatch check, {len(tags)} releases, CPU", kept=False)
    return Result(
        part="check",
        measured=(*first, again, every),
        bounds=(
            at_most("seconds of CPU, the slowest release", max(one.seconds for one in first), 1),
            at_most("seconds of CPU again", again.seconds, 1),
            at_most(f"seconds of CPU, {len(tags)} releases", every.seconds, 15),
        ),
    )


def _check(cache: Path, *words: str) -> tuple[float, float]:
    """Runs a check; the seconds of CPU that it took, its children's too, and its memory in MB."""
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    environment = {**os.environ, "VPATCH_CACHE": str(cache)}
    process = os.posix_spawn(_VPATCH, [str(_VPATCH), *words], environment, file_actions=quiet)
    _, status, usage = os.wait4(process, 0)
    if os.waitstatus_to_exitcode(status) not in (0, _FOUND):
        raise HostError(f"vpatch {' '.join(words)} failed", code="bench")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / MEGABYTE
