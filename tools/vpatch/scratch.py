"""Scratch folders of one run; what a killed run left of them goes with the next one.

Each holds a locked file for as long as it is used. The lock ends with the process, however that
ends, and is nobody else's under a process id that is used again: a folder of ours whose file is
not locked has no owner.
"""

from __future__ import annotations

import fcntl
import functools
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from vpatch.patches.foldertree import remove_tree

LOCK = ".vpatch-owner"
_INSIDE = "in"
_PREFIX = "vpatch-"
_NAME = re.compile(r"vpatch-(?:[a-z]+-)?[a-z0-9_]{8}")
# Between the folder and its lock a run makes two system calls.
_YOUNG_S = 3600


@contextmanager
def scratch_folder(word: str) -> Iterator[Path]:
    """An empty folder in the system's place for them, gone when the block ends.

    Args:
        word: What it is for, in small letters: a part of its name.

    Raises:
        OSError: the disk refused.
    """
    _clean_up_once(tempfile.gettempdir())
    top = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{word}-"))
    with ExitStack() as after:
        try:
            handle = os.open(top / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            after.callback(os.close, handle)  # once the folder is gone
            fcntl.flock(handle, fcntl.LOCK_EX)
            (top / _INSIDE).mkdir()
            yield top / _INSIDE
        finally:
            _remove(top)


def _remove(top: Path) -> None:
    if (top / _INSIDE).is_dir():
        remove_tree(top / _INSIDE)
    # Behind all else: without it nobody knows that the folder is one of these.
    (top / LOCK).unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        top.rmdir()


@functools.cache
def _clean_up_once(place: str) -> None:
    """Removes what killed runs left: once a run, at its first scratch folder."""
    for path in Path(place).glob(f"{_PREFIX}*"):
        if _NAME.fullmatch(path.name):
            # What cannot be looked at or removed is no reason to stop, nor of this run.
            with suppress(OSError):
                _remove_ownerless(path)


def _remove_ownerless(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return
    names = set(os.listdir(folder))  # noqa: PTH208 - names alone
    if not names and time.time() - found.st_mtime > _YOUNG_S:
        folder.rmdir()  # killed before there was a lock
    if LOCK not in names or not names <= {LOCK, _INSIDE}:
        return
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A run that makes its folder just now has it locked only after it is there.
        if _INSIDE in names or time.time() - found.st_mtime > _YOUNG_S:
            _remove(folder)
    finally:
        os.close(handle)
