"""Packs large wheels smaller than zip can, without the files that the smoke does not need.

A wheel becomes up to a few tar.xz files: each large library alone, the other compiled files, the
rest. The same contents give the same bytes, so a patched wheel shares its libraries with
upstream's, and they are kept in the user's cache.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import lzma
import os
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from vpatch.errors import InterruptedRunError
from vpatch.files import disk_errors, locked
from vpatch.progress import Progress
from vpatch.smoke.bundle_rules import slimmed
from vpatch.smoke.bundle_target import Target
from vpatch.smoke.bundle_unpack import place
from vpatch.wheel.meta import UNHASHED, Distribution
from vpatch.wheel.zip import Member, bad_wheel

# Half of xz's time goes into searching: a large dictionary pays more than a thorough search, as
# device code repeats itself over a distance. Measured on vLLM's and torch's libraries.
_DICTIONARY = 64 << 20
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": _DICTIONARY}]
_LARGE = 32 << 20
_FORMAT = "1"
_CHUNK = 1 << 20
_LIBRARIES, _REST = "libs", "rest"


@dataclass(frozen=True)
class Packed:
    """One tar.xz of a wheel.

    Attributes:
        path: In the cache.
        part: ``rest``, ``libs``, or a large library's name.
        name: What to call it in a bundle.
    """

    path: Path
    part: str
    name: str

    @property
    def compiled(self) -> bool:
        """Whether it holds nothing that a patch changes."""
        return self.part != _REST


@dataclass(frozen=True)
class Slim:
    """A packed wheel.

    Attributes:
        left_out: Files that are not in it: path -> reason.
    """

    files: tuple[Packed, ...]
    left_out: dict[str, str]


def pack(wheel: Distribution, target: Target, store: Path, progress: Progress) -> Slim:
    """Packs a wheel; takes minutes for a gigabyte, and nothing when it is in the store.

    Args:
        wheel: Read by the strict reader.
        target: For which Python.
        store: A folder of the user's cache.
        progress: Told uncompressed bytes.

    Raises:
        FindingError: A file is not what RECORD says.
        HostError: The disk refuses.
    """
    name = canonicalize_name(wheel.name)
    left_out: dict[str, str] = {}
    parts: dict[str, list[Member]] = {}
    for member in wheel.archive.members:
        reason = slimmed(name, member.name, target.short_python)
        if reason is not None:
            left_out[member.name] = reason
        elif not member.is_folder and place(member.name) is not None:
            parts.setdefault(_part(member), []).append(member)
    sizes = [member.size for members in parts.values() for member in members]
    progress.start(f"packing {name} {wheel.version}", sum(sizes))
    lock, ended = threading.Lock(), threading.Event()

    def advance(count: int) -> None:
        if ended.is_set():
            raise InterruptedRunError("interrupted")
        with lock:
            progress.advance(count)

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        jobs = [
            pool.submit(_Packer(wheel, members, store, advance).packed, part)
            for part, members in sorted(parts.items(), key=lambda item: -_size(item[1]))
        ]
        try:
            files = tuple(job.result() for job in jobs)
        except BaseException:
            ended.set()  # a large library would be packed to its end, for minutes
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    progress.done()
    return Slim(tuple(sorted(files, key=lambda file: file.name)), left_out)


@contextmanager
def new_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """A tar.xz to fill; it is there whole when it is closed, or not at all.

    Raises:
        OSError: The disk refuses.
    """
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=".packing.")
    os.close(handle)
    try:
        with (
            lzma.open(scratch, "wb", check=lzma.CHECK_CRC32, filters=_FILTERS) as stream,
            tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive,
        ):
            yield archive
        Path(scratch).chmod(0o644)
        os.replace(scratch, path)  # noqa: PTH105 - `scratch` is a str from mkstemp
    finally:
        Path(scratch).unlink(missing_ok=True)


def _part(member: Member) -> str:
    name = PurePosixPath(member.name).name
    if ".so" not in PurePosixPath(name).suffixes and ".a" not in PurePosixPath(name).suffixes:
        return _REST
    return name if member.size >= _LARGE else _LIBRARIES


def _size(members: list[Member]) -> int:
    return sum(member.size for member in members)


class _Packer:
    def __init__(
        self,
        wheel: Distribution,
        members: list[Member],
        store: Path,
        advance: Callable[[int], None],
    ) -> None:
        self.wheel = wheel
        self.members = sorted(members, key=lambda member: member.name)
        self.store = store
        self.advance = advance

    def packed(self, part: str) -> Packed:
        key = self._key()
        path = self.store / f"{key}.tar.xz"
        with locked(self.store / f"{key}.lock"), disk_errors(path):
            if not path.is_file():
                self._write(path)
        stem = canonicalize_name(self.wheel.name)
        # A compiled part does not change with a local version, so its name does not have one.
        version = self.wheel.version if part == _REST else self.wheel.version.public
        return Packed(path, part, f"{stem}-{version}-{part}-{key[:8]}.tar.xz")

    def _key(self) -> str:
        rows = [
            [member.name, member.size, _mode(member), self._digest(member)]
            for member in self.members
        ]
        return hashlib.sha256(json.dumps([_FORMAT, rows]).encode()).hexdigest()

    def _digest(self, member: Member) -> str:
        if member.name in {f"{self.wheel.dist_info}/{name}" for name in UNHASHED}:
            return hashlib.sha256(self.wheel.archive.read(member.name)).hexdigest()
        line = self.wheel.record.get(member.name)
        method, _, encoded = line.digest.partition("=") if line else ("", "", "")
        if method != "sha256":
            raise bad_wheel(self.wheel.archive.path, f"lists no sha256 of {member.name}")
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).hex()

    def _write(self, path: Path) -> None:
        with new_tar(path) as archive:
            for member in self.members:
                self._add(archive, member)

    def _add(self, archive: tarfile.TarFile, member: Member) -> None:
        info = tarfile.TarInfo(str(place(member.name)))
        info.size, info.mode, info.mtime = member.size, _mode(member), 0
        reader = _Reader(self.wheel.archive.chunks(member), self.advance)
        archive.addfile(info, io.BufferedReader(reader, _CHUNK))
        if reader.digest.hexdigest() != self._digest(member):
            problem = f"holds another {member.name} than its RECORD lists"
            raise bad_wheel(self.wheel.archive.path, problem)


def _mode(member: Member) -> int:
    return 0o755 if member.mode & 0o111 or member.name.split("/")[1:2] == ["scripts"] else 0o644


class _Reader(io.RawIOBase):
    """A member as a stream that hashes what goes through."""

    def __init__(self, chunks: Iterator[bytes], advance: Callable[[int], None]) -> None:
        self.chunks = chunks
        self.advance = advance
        self.digest = hashlib.sha256()
        self.rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        while not self.rest:
            chunk = next(self.chunks, None)
            if chunk is None:
                return 0
            self.digest.update(chunk)
            self.advance(len(chunk))
            self.rest = memoryview(chunk)
        count = min(len(view), len(self.rest))
        view[:count] = self.rest[:count]
        self.rest = self.rest[count:]
        return count
