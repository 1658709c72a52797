"""Folders that are made once, whole or not at all, and kept by what they hold.

``ROOT/NAME`` appears by a rename when it is complete; what was interrupted is begun again. A folder
that nobody asked for in 14 days is taken away when another one is made.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from vpatch.errors import HostError
from vpatch.files import disk_errors, locked
from vpatch.progress import Progress, SilentProgress
from vpatch.smoke.bundle_unpack import place
from vpatch.wheel.directory import read_archive
from vpatch.wheel.meta import read_distribution
from vpatch.wheel.zip import Archive, Member

_OLD_AFTER_S = 14 * 24 * 3600
_MAKING, _FORGOTTEN, _LOCK = ".making-", ".forgotten-", ".lock"
_EXECUTABLE = 0o111
_TOLD_FROM = 100_000_000


class Layers:
    """The folders below one root.

    Args:
        root: Made where it is missing.
        progress: Told what is waited for, what is begun again, and what is unpacked.
    """

    def __init__(self, root: Path, progress: Progress) -> None:
        self.root = root
        self.progress = progress

    def get(self, name: str, make: Callable[[Path, Path], None]) -> Path:
        """The folder of a name, and a note that it was used today.

        Args:
            name: Names what is in it: the same name, the same bytes.
            make: Fills the first folder it is given, which is empty. What it puts into the second
                one is there again when an interrupted run is begun again, and gone afterwards.

        Raises:
            HostError: The disk refuses; or what `make` raises.
        """
        folder = self.root / name
        if not folder.is_dir():
            self._forget_old()
        with locked(self._lock(name), on_wait=self.progress.say), disk_errors(folder):
            if not folder.is_dir():
                self._make(folder, make)
            os.utime(folder)
        return folder

    def check_space(self, gigabytes: float, what: str) -> None:
        """Looks whether there is room.

        Raises:
            HostError: Less is free.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.root).free / 1e9
        if free < gigabytes:
            raise HostError(
                f"{what} takes about {gigabytes:.0f} GB, but {self.root} has {free:.1f} GB free",
                hint="Free disk space, or point VPATCH_CACHE at another disk, and run it again.",
                code="disk",
            )

    def _lock(self, name: str) -> Path:
        return self.root / f".{name}{_LOCK}"

    def _make(self, folder: Path, make: Callable[[Path, Path], None]) -> None:
        scratch = self.root / f"{_MAKING}{folder.name}"
        site = scratch / "site"
        if scratch.exists():
            self.progress.say(f"beginning again with {folder}, which was left incomplete")
            shutil.rmtree(site, ignore_errors=True)
        site.mkdir(parents=True)
        kept = scratch / "kept"
        kept.mkdir(exist_ok=True)
        make(site, kept)
        site.rename(folder)
        shutil.rmtree(scratch)

    def _forget_old(self) -> None:
        # A changed series or index makes new folders; one with torch takes gigabytes.
        for folder in self.root.iterdir() if self.root.is_dir() else ():
            if not folder.is_dir() or not _is_old(folder):
                continue
            name = folder.name.removeprefix(_MAKING).removeprefix(_FORGOTTEN)
            doomed = self.root / f"{_FORGOTTEN}{name}"
            with locked(self._lock(name), on_wait=self.progress.say), disk_errors(folder):
                if folder != doomed and _is_old(folder):
                    shutil.rmtree(doomed, ignore_errors=True)
                    # Away at once: a half removed folder must not look like a whole one.
                    folder.rename(doomed)
                if doomed.is_dir():
                    shutil.rmtree(doomed)


def _is_old(folder: Path) -> bool:
    if folder.name.startswith(_FORGOTTEN):
        return True
    try:
        return time.time() - folder.stat().st_mtime > _OLD_AFTER_S
    except FileNotFoundError:
        return False  # another process took it away


def unpack(wheel: Path, folder: Path, progress: Progress) -> None:
    """Unpacks a wheel below a folder that goes on ``sys.path``; its scripts go to ``bin`` there.

    Args:
        wheel: A wheel, from anywhere; no file of it leaves the folder.
        folder: May hold other wheels' files: one of the same path is replaced, as pip does.
        progress: Told bytes.

    Raises:
        FindingError: The wheel is damaged, or not to be trusted.
    """
    archive = read_distribution(read_archive(wheel)).archive
    size = sum(member.size for member in archive.members)
    if size < _TOLD_FROM:
        progress = SilentProgress()  # a hundred of them take less time than one large one
    progress.start(f"unpacking {wheel.name}", size)
    try:
        for member in archive.members:
            where = None if member.is_folder else place(member.name)
            if where is not None:
                _write(archive, member, folder / where)
                progress.advance(member.size)
    finally:
        progress.done()


def _write(archive: Archive, member: Member, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        for chunk in archive.chunks(member):
            out.write(chunk)
    if member.mode & _EXECUTABLE:
        path.chmod(0o755)
