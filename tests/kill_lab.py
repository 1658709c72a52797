"""Real child processes that die by SIGKILL at every moment at which they touch the disk."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from vpatch.patches.swap import leftovers

# What Python tells its audit hooks before it does it.
_WATCHED = frozenset(
    {
        "ctypes.dlopen",
        "fcntl.flock",
        "open",
        "os.chmod",
        "os.fork",
        "os.listdir",
        "os.mkdir",
        "os.remove",
        "os.rename",
        "os.rmdir",
        "os.scandir",
        "os.symlink",
        "shutil.rmtree",
        "subprocess.Popen",
        "tempfile.mkdtemp",
    }
)


def killed_at(moment: int, work: Callable[[], None]) -> bool:
    """Runs some work in a child process that dies by SIGKILL before its Nth step on the disk.

    Returns:
        Whether it died so; False where it ended well before.
    """
    child = os.fork()
    if not child:
        _child(moment, work)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in {0, -signal.SIGKILL}, f"the child ended with {status}"
    return status != 0


def _child(moment: int, work: Callable[[], None]) -> None:
    left = [moment]

    def hook(event: str, _: object) -> None:
        if event in _WATCHED:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    status = 1
    try:
        sys.addaudithook(hook)
        work()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def moments(work: Callable[[], None], prepare: Callable[[], None]) -> int:
    """How many steps on the disk the work has: it is run until it survives.

    ``prepare`` makes everything as it was before each run.
    """

    def dies(moment: int) -> bool:
        prepare()
        return killed_at(moment, work)

    low, high = 0, 1
    while dies(high):
        low, high = high, high * 2
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if dies(middle) else (low, middle)
    return high


def steps(work: Callable[[], None]) -> int:
    """How many steps on the disk the work has, counted in a child process that survives them."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        seen = [0]

        def hook(event: str, _: object) -> None:
            seen[0] += event in _WATCHED

        try:
            sys.addaudithook(hook)
            work()
        except BaseException:
            traceback.print_exc()
        finally:
            os.write(write, str(seen[0]).encode())
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        counted = int(said.read())
    os.waitpid(child, 0)
    return counted


def spread(count: int, most: int) -> Sequence[int]:
    """Up to so many of the moments, the last ones, where folders move, among them."""
    step = max(count * 2 // most, 1)
    return sorted({*range(0, count, step), *range(max(count - most // 2, 0), count)})


def put_back(folder: Path, files: Mapping[str, bytes]) -> None:
    """A folder as it was, and nothing of a killed run beside it: every run has the same steps."""
    clear_leftovers(folder)
    shutil.rmtree(folder)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def clear_leftovers(folder: Path) -> None:
    """Takes away what a killed run left beside a folder, which the next one would clean up."""
    for scratch in leftovers(folder):
        shutil.rmtree(scratch)


def contents(folder: Path) -> dict[str, bytes]:
    """path -> bytes of everything in a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
