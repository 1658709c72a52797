"""Reading an sdist that may be hostile, without ever unpacking it to disk."""

from __future__ import annotations

import gzip
import stat
import tarfile
import unicodedata
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vpatch.errors import HostError

_ENOUGH_COMPONENT = 255
_ENOUGH_PATH = 4096
# What may lie between two files: headers, padding, what tarfile reads ahead.
_HEADERS = 1 << 20
REGULAR = 0o100644
EXECUTABLE = 0o100755


@dataclass(frozen=True)
class Limits:
    """What a release may have at most. vLLM's sdists: 4,200 files, 64 MB, the largest 5 MB."""

    members: int = 100_000
    file_bytes: int = 128 << 20
    total_bytes: int = 1 << 30


@dataclass(frozen=True)
class Member:
    """One regular file of an archive.

    ``path`` is relative, with ``/``, safe to join; bytes that are not UTF-8 are surrogate-escaped.
    ``mode`` is git's: 0o100644 or 0o100755. ``mtime`` is in seconds since 1970, UTC.
    """

    path: str
    mode: int
    data: bytes
    mtime: int


def git_mode(mode: int) -> int:
    """git's file mode for a Unix mode: what counts is whether the owner may execute it."""
    return EXECUTABLE if mode & stat.S_IXUSR else REGULAR


def read_sdist(path: Path, limits: Limits | None = None) -> Iterator[Member]:
    """The regular files of a ``.tar.gz``, in the archive's order, without its top folder.

    Args:
        path: The sdist.
        limits: What is refused as a bomb; the defaults fit vLLM with a wide margin.

    Raises:
        HostError: The archive is damaged, or holds what a release has no business to hold:
            paths that lead out, links, devices, sparse files, duplicates, too many or too large
            members.
    """
    limits = limits or Limits()
    guard = Guard(path.name, limits)
    try:
        with path.open("rb") as raw, gzip.GzipFile(fileobj=raw) as plain:
            bounded = _Bounded(plain, guard)
            with tarfile.open(fileobj=bounded, mode="r|", errorlevel=2) as tar:  # type: ignore[call-overload]
                yield from _members(tar, bounded, guard)
            # To the end: the checksum is there.
            while bounded.read(_HEADERS):
                pass
    except (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile, ValueError) as error:
        raise damaged(path.name, error) from error


def _members(tar: tarfile.TarFile, bounded: _Bounded, guard: Guard) -> Iterator[Member]:
    top = None
    for info in tar:
        name = guard.path(info.name, is_folder=info.isdir())
        first, _, rest = name.partition("/")
        if top not in {None, first} or not (rest or info.isdir()):
            raise guard.hostile(info.name, "lies outside of the one top folder")
        top = first
        if info.isdir():
            bounded.allow(0)
            continue
        if info.type not in {tarfile.REGTYPE, tarfile.AREGTYPE}:
            raise guard.hostile(info.name, "is a link, a device or another special file")
        guard.size(info.name, info.size)
        bounded.allow(info.size)
        stream = tar.extractfile(info)
        data = stream.read() if stream is not None else b""
        if len(data) != info.size:
            raise EOFError(f"{info.name} is cut off")
        yield Member(rest, git_mode(info.mode), data, int(info.mtime))


class Guard:
    """Refuses, one member at a time, what a hostile archive might try.

    Args:
        archive: The archive's name, for messages.
        limits: What is too much.
    """

    def __init__(self, archive: str, limits: Limits) -> None:
        self.limits = limits
        self._archive = archive
        self._files: set[str] = set()
        self._folders: set[str] = set()
        self._total = 0

    def path(self, name: str, *, is_folder: bool = False) -> str:
        """The member's path, if it is safe and new.

        Raises:
            HostError: It leads out, names git's own folder, or is there already.
        """
        parts = (name.rstrip("/") if is_folder else name).split("/")
        if parts[0] == "." and len(parts) > 1:
            parts = parts[1:]
        if len(name) > _ENOUGH_PATH or not all(map(_is_safe, parts)):
            raise self.hostile(name, "is not a safe path")
        path = "/".join(parts)
        parents = {"/".join(parts[:depth]) for depth in range(1, len(parts))}
        if path in self._files or parents & self._files:
            raise self.hostile(name, "is there twice")
        if not is_folder and path in self._folders:
            raise self.hostile(name, "is a file and a folder")
        self._folders |= parents
        (self._folders if is_folder else self._files).add(path)
        if len(self._files) + len(self._folders) > self.limits.members:
            raise self.hostile(name, f"is one of more than {self.limits.members} members")
        return path

    def size(self, name: str, size: int) -> None:
        """Counts a member's size before it is read.

        Raises:
            HostError: It is too large, or everything together is.
        """
        self._total += size
        if not 0 <= size <= self.limits.file_bytes:
            raise self.hostile(name, f"has {size} bytes")
        if self._total > self.limits.total_bytes:
            raise self.hostile(name, f"makes the total larger than {self.limits.total_bytes} bytes")

    def hostile(self, name: str, what: str) -> HostError:
        """The refusal."""
        return HostError(
            f"{self._archive} is refused: its member {name[:120]!r} {what}",
            hint="Nothing of it was imported. Check where the package index has this file from.",
            code="hostile-archive",
        )


def damaged(archive: str, error: BaseException) -> HostError:
    """The failure for an archive that cannot be read to its end."""
    return HostError(
        f"{archive} is damaged: {error or type(error).__name__}",
        hint="Remove it from the cache and run it again.",
        code="damaged-archive",
    )


def _is_safe(part: str) -> bool:
    if part in {"", ".", ".."} or len(part.encode("utf-8", "surrogateescape")) > _ENOUGH_COMPONENT:
        return False
    if any(ord(char) < 0x20 or char in "\\\x7f" for char in part):  # noqa: PLR2004 - control chars
        return False
    # What some file system takes for .git: other case, trailing dots, invisible characters.
    bare = "".join(char for char in part if unicodedata.category(char) != "Cf").casefold()
    return bare.rstrip(". ").partition(":")[0] not in {".git", "git~1"}


class _Bounded:
    """Counts what the decompressor delivers: a header can be a bomb too, not only a file."""

    def __init__(self, stream: gzip.GzipFile, guard: Guard) -> None:
        self._stream = stream
        self._guard = guard
        self._left = _HEADERS

    def allow(self, size: int) -> None:
        """A member of this size comes, then the headers of the next one."""
        self._left = size + _HEADERS

    def read(self, size: int) -> bytes:
        """The stream's bytes, as far as they are allowed."""
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise self._guard.hostile("(a header)", f"has more than {_HEADERS} bytes")
        return data
