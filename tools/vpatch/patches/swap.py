"""A folder takes another one's place, whole: a reader finds the old one or the new one.

Linux exchanges two folders in one step (``renameat2`` with ``RENAME_EXCHANGE``). Where the system
or the file system cannot, two renames follow each other; a process killed between them leaves the
old folder beside its place, and the next run puts it back.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from vpatch.errors import FindingError, HostError, UsageError
from vpatch.files import (
    cache_dir,
    disk_errors,
    locked,
    locked_for_now,
    sync_folder,
    umask,
    write_atomically,
)
from vpatch.patches.foldertree import fill_folder, remove_tree, sync_tree

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_CANNOT = {errno.EINVAL, errno.ENOSYS, errno.EXDEV}
_NEW, _OLD = "new", "old"
_MKDTEMP = "[a-z0-9_]{8}"  # what tempfile puts behind a prefix

Content = Mapping[str, tuple[str, int, bytes]]
"""What a folder holds: path -> (kind, permissions, bytes of a file or target of a link)."""


def read_folder(folder: Path) -> Content:
    """Everything in a folder, links unfollowed; nothing where there is no folder.

    Raises:
        HostError: something in it cannot be read, or is no file, folder or link.
    """
    found: dict[str, tuple[str, int, bytes]] = {}
    if not folder.exists():
        return found
    try:
        for top, folders, files in os.walk(folder, onerror=_raise):
            for path in (Path(top, name) for name in (*folders, *files)):
                found[path.relative_to(folder).as_posix()] = _entry(path)
    except OSError as error:
        raise HostError(
            f"{error.filename or folder} cannot be read: {error.strerror}",
            hint="Check its permissions.",
        ) from error
    return dict(sorted(found.items()))


def _raise(error: OSError) -> NoReturn:
    raise error


def _entry(path: Path) -> tuple[str, int, bytes]:
    mode = path.lstat().st_mode
    permissions = stat.S_IMODE(mode)
    if stat.S_ISLNK(mode):
        return "link", 0, os.fsencode(os.readlink(path))  # noqa: PTH115 - bytes of it
    if stat.S_ISDIR(mode):
        return "folder", permissions, b""
    if stat.S_ISREG(mode):
        return "file", permissions, path.read_bytes()
    raise HostError(f"{path} is neither a file nor a folder", hint="Move it elsewhere.")


@dataclass(frozen=True)
class Replacement:
    """A folder that can be replaced while its lock is held.

    Attributes:
        folder: The folder; it may not exist yet.
        before: What it held when the lock was taken.
    """

    folder: Path
    before: Content
    scratch: Path

    def write(self, files: Mapping[str, bytes], *, ours: Callable[[str], bool]) -> None:
        """Puts a folder with these files in the place of the old one.

        Args:
            files: name -> bytes. A file that was there keeps its permissions.
            ours: Whether a path of the old folder is left behind where ``files`` lacks it; what
                is not ours is carried over.

        Raises:
            FindingError: somebody else changed the folder meanwhile, or no file stands where one
                of these belongs.
            HostError: the disk refused.
        """
        self._check_places(files)
        fresh = self.scratch / _NEW
        with disk_errors(self.folder):
            fill_folder(fresh, {**_carried(self.before, ours), **_as_content(files, self.before)})
            if self.folder.exists():
                fresh.chmod(stat.S_IMODE(self.folder.stat().st_mode))
            sync_tree(fresh)
            if read_folder(self.folder) != self.before:
                raise FindingError(
                    f"{self.folder} changed while its new content was being made",
                    hint="Run it again.",
                    code="changed-meanwhile",
                )
            put_in_place(fresh, self.folder, self.scratch)

    def write_file(self, name: str, data: bytes) -> None:
        """Puts one file into the folder, whole; the rest of the folder stays as it is.

        Raises:
            FindingError: a link or a folder stands in its place.
            HostError: the disk refused.
        """
        self._check_places([name])
        # Not beside the file: what a killed run leaves must not stand in the folder.
        fresh, path = self.scratch / name, self.folder / name
        with disk_errors(path):
            write_atomically(fresh, data)
            if path.exists():
                fresh.chmod(stat.S_IMODE(path.stat().st_mode))
            fresh.replace(path)
            sync_folder(self.folder)

    def _check_places(self, names: Iterable[str]) -> None:
        """A link leads to somebody else's file, and a folder holds some: neither is replaced."""
        for name in names:
            kind = self.before[name][0] if name in self.before else "file"
            if kind != "file":
                what = "symbolic link" if kind == "link" else "folder"
                raise FindingError(
                    f"{self.folder / name} is a {what}, and a file is to be written there",
                    hint="Nothing was written. Put the file itself there, or move it elsewhere.",
                    code="in-the-way",
                )


@contextmanager
def replacing(
    folder: Path, *, on_wait: Callable[[str], None] | None = None
) -> Iterator[Replacement]:
    """Holds a folder's lock, for a run that reads it and then may replace it.

    What a killed run left beside the folder is cleaned up first.

    Args:
        folder: The folder; ``.NAME.lock`` beside it is the lock, until the block ends.
        on_wait: Called once with a sentence if another run holds the lock.

    Raises:
        UsageError: the folder is a symbolic link, or a file.
        HostError: the disk refused.
    """
    with locked_for_now(lock_of(folder), on_wait=on_wait):
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise UsageError(
                f"{folder} is not a folder of its own",
                hint="Replace the link or file with the folder.",
                code="not-a-folder",
            )
        with disk_errors(folder):
            recover(folder)
            scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=prefix(folder)))
        try:
            yield Replacement(folder, read_folder(folder), scratch)
        finally:
            with disk_errors(folder):
                remove(folder, scratch)


@contextmanager
def making(folder: Path) -> Iterator[Path]:
    """Holds the lock of a folder that is made at once, and cleans up behind killed runs.

    The lock stands in the user's cache: beside the folder it would be litter in a person's place.

    Args:
        folder: The folder to be made.

    Returns:
        A scratch folder beside it, on the same disk; it goes when the block ends.

    Raises:
        HostError: the disk refused.
    """
    with locked(_lock_in_cache(folder)), disk_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        recover(folder)
        scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=prefix(folder)))
        try:
            yield scratch
        finally:
            remove(folder, scratch)


def tidy(folder: Path) -> None:
    """Cleans up behind killed runs of `making`, where there is something to clean up.

    Raises:
        HostError: the disk refused.
    """
    if leftovers(folder):
        with locked(_lock_in_cache(folder)), disk_errors(folder):
            recover(folder)


def _lock_in_cache(folder: Path) -> Path:
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return cache_dir() / "locks" / f"{name}.lock"


def leftovers(folder: Path) -> list[Path]:
    """What killed runs, or runs that are under way, have beside a folder."""
    named = re.compile(re.escape(prefix(folder)) + _MKDTEMP)
    return sorted(
        path
        for path in folder.parent.glob(f"{glob.escape(prefix(folder))}*")
        if named.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
    )


def lock_of(folder: Path) -> Path:
    """The lock file beside a folder."""
    return folder.with_name(f".{folder.name}.lock")


def recover(folder: Path) -> None:
    """Cleans up behind killed runs: puts an old folder back, removes what is left over.

    Only for whoever holds the folder's lock.
    """
    for scratch in leftovers(folder):
        remove(folder, scratch)


def put_in_place(fresh: Path, folder: Path, scratch: Path) -> None:
    """Gives ``folder`` the place of ``fresh``, and the other way round.

    Args:
        fresh: The new folder, complete.
        folder: The place, with the old folder or with nothing.
        scratch: A folder on the same disk, where the old one goes when it takes two renames.

    Raises:
        OSError: the disk refused; the old folder is in its place.
    """
    if not folder.exists():
        fresh.rename(folder)
    elif not exchange(fresh, folder):
        old = scratch / _OLD
        try:
            folder.rename(old)
            fresh.rename(folder)
        finally:
            _put_back(folder, scratch)
    sync_folder(folder.parent)


def exchange(one: Path, other: Path) -> bool:
    """Exchanges two folders in one step.

    Returns:
        False where the system cannot do that.

    Raises:
        OSError: it can, and the disk refused.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    paths = (os.fsencode(one), os.fsencode(other))
    if call(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number), str(other))


def prefix(folder: Path) -> str:
    """How scratch folders beside a folder are called."""
    return f".{folder.name}.vpatch-"


def _put_back(folder: Path, scratch: Path) -> None:
    """After a break between two renames: the old folder is where it was."""
    old = scratch / _OLD
    if old.is_dir() and not folder.exists():
        old.rename(folder)
        sync_folder(folder.parent)


def remove(folder: Path, scratch: Path) -> None:
    """Removes a scratch folder, once the folder that it may hold is back in its place."""
    _put_back(folder, scratch)
    remove_tree(scratch)


def _carried(before: Content, ours: Callable[[str], bool]) -> Content:
    return {path: entry for path, entry in before.items() if not ours(path)}


def _as_content(files: Mapping[str, bytes], before: Content) -> Content:
    # As open(2) would make it; mkdtemp's folder is private to its owner, and no model for files.
    default = 0o666 & ~umask()
    return {
        name: ("file", before[name][1] if name in before else default, data)
        for name, data in files.items()
    }
