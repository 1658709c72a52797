"""Where a set lies: a folder, or a place that fsspec knows. Files appear whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from vpatch.errors import FindingError, HostError, UsageError
from vpatch.files import disk_errors, sync_folder, write_atomically

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::|://)")
Kind = Literal["file", "folder", "other"]


@dataclass(frozen=True)
class Entry:
    """What lies in a set's folder; ``other`` is a link, a device, ..."""

    name: str
    kind: Kind


class Place(Protocol):
    """A set's folder. Names are plain: no place is ever asked for one with a slash."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def folder(self) -> Path | None:
        """The local folder, where it is one."""

    def make(self) -> None:
        """Makes it where it is missing."""

    def entries(self) -> Iterator[Entry]:
        """What lies there, in no order; nothing where it is missing."""

    def open(self, name: str) -> tuple[BinaryIO, int]:
        """A file and its bytes. FileNotFoundError: there is none; FindingError: it is no file."""

    def size(self, name: str) -> int | None:
        """A file's bytes; None where there is none."""

    def put(self, data: bytes, name: str) -> None:
        """Writes a small file."""

    def take(self, local: Path, name: str) -> None:
        """Takes a whole local file, whose bytes are on its disk, away to here."""

    def settle(self) -> None:
        """Makes what was taken survive a power cut."""

    def remove(self, name: str) -> None:
        """Removes a file, where there is one."""


def place_of(text: str) -> Place:
    """The place that a user names.

    Raises:
        HostError: It is a URL, and fsspec or what it needs for it is not installed.
        UsageError: It is no URL that fsspec knows.
    """
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    if not _URL.match(text):
        return Folder(Path(text))
    return Remote(text)


class Folder:
    """A folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder: Path = folder.absolute()
        self.name = str(folder)

    def make(self) -> None:
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)

    def entries(self) -> Iterator[Entry]:
        try:
            listing = os.scandir(self.folder)
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise self._no_folder() from None
        with listing:
            for one in listing:
                yield Entry(one.name, _kind(one))

    def open(self, name: str) -> tuple[BinaryIO, int]:
        try:
            handle = os.open(self.folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise FindingError(f"{name} is a link", code="no-file") from None
            if error.errno == errno.ENOTDIR and not self.folder.is_dir():
                raise self._no_folder() from None
            raise
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            os.close(handle)
            raise FindingError(f"{name} is no file", code="no-file")
        return os.fdopen(handle, "rb", buffering=0), found.st_size

    def _no_folder(self) -> UsageError:
        return UsageError(f"{self.name} is no folder", hint="Name a folder.")

    def size(self, name: str) -> int | None:
        try:
            found = os.lstat(self.folder / name)
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            if self.folder.is_dir():
                raise
            raise self._no_folder() from None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def put(self, data: bytes, name: str) -> None:
        write_atomically(self.folder / name, data)

    def take(self, local: Path, name: str) -> None:
        target = self.folder / name
        with disk_errors(target):
            try:
                os.rename(local, target)  # noqa: PTH104 - never over a folder, and across none
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                _copied(local, target)

    def settle(self) -> None:
        sync_folder(self.folder)

    def remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)


def _kind(one: os.DirEntry[str]) -> Kind:
    if one.is_symlink():
        return "other"
    if one.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if one.is_file(follow_symlinks=False) else "other"


def _copied(local: Path, target: Path) -> None:
    """From another file system: under a temporary name first."""
    scratch = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with local.open("rb") as source, scratch.open("xb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
            copy.flush()
            os.fsync(copy.fileno())
        scratch.rename(target)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    local.unlink()


class Remote:
    """A place that fsspec knows: s3://, gs://, sftp://, memory:// ..."""

    folder = None

    def __init__(self, url: str) -> None:
        self.name = url
        try:
            import fsspec  # noqa: PLC0415 - an optional dependency

            self._system, self._root = fsspec.url_to_fs(url)
        except ImportError as error:
            raise HostError(
                f"{url} cannot be reached: {error}",
                hint="pip install fsspec, and what it needs for this place: s3fs, gcsfs, ...",
                code="no-fsspec",
            ) from error
        except ValueError as error:
            raise UsageError(
                f"{url} is no place that fsspec knows: {error}", hint="Name a folder, or a URL."
            ) from None

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def make(self) -> None:
        self._system.makedirs(self._root, exist_ok=True)

    def entries(self) -> Iterator[Entry]:
        self._system.invalidate_cache()
        if not self._system.isdir(self._root):
            return
        for one in self._system.ls(self._root, detail=True):
            kinds: dict[str, Kind] = {"file": "file", "directory": "folder"}
            yield Entry(one["name"].rstrip("/").rpartition("/")[2], kinds.get(one["type"], "other"))

    def open(self, name: str) -> tuple[BinaryIO, int]:
        size = self.size(name)
        if size is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return self._system.open(self._path(name), "rb"), size

    def size(self, name: str) -> int | None:
        try:
            found = self._system.info(self._path(name))
        except FileNotFoundError:
            return None
        return int(found["size"]) if found["type"] == "file" else None

    def put(self, data: bytes, name: str) -> None:
        scratch = self._scratch(name)
        self._system.pipe_file(scratch, data)
        self._system.mv(scratch, self._path(name))

    def take(self, local: Path, name: str) -> None:
        scratch, size = self._scratch(name), local.stat().st_size
        self._system.put_file(str(local), scratch)
        self._system.mv(scratch, self._path(name))
        self._system.invalidate_cache()
        if self.size(name) != size:
            raise HostError(
                f"{self.name} did not keep {name} whole: {self.size(name)} bytes of {size}",
                hint="Run it again with --resume.",
                code="remote",
            )
        local.unlink()

    def _scratch(self, name: str) -> str:
        return self._path(f".{name}.{uuid.uuid4().hex[:8]}.tmp")

    def settle(self) -> None:
        """Nothing: a place that took a file has it."""

    def remove(self, name: str) -> None:
        if self.size(name) is not None:
            self._system.rm_file(self._path(name))
