"""Reading chosen members of a wheel that may be hostile: on disk, or remote by byte ranges."""

from __future__ import annotations

import base64
import binascii
import calendar
import csv
import hashlib
import io
import itertools
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, Protocol, runtime_checkable

from vpatch.upstream.archive import Guard, Limits, Member, damaged, git_mode

# Local header without name and extra field, and room for an extra field and a data descriptor.
_HEADER = 30 + 1024
_BATCH = 32 << 20


@runtime_checkable
class Prefetching(Protocol):
    """A stream that can be told what will be read: many members in few requests."""

    def prefetch(self, spans: Iterable[tuple[int, int]]) -> None:
        """Reads (start, end) spans ahead."""


def read_wheel(
    name: str,
    stream: BinaryIO,
    wanted: Callable[[str], bool],
    limits: Limits | None = None,
) -> Iterator[Member]:
    """The wanted members of a wheel in the order of their bytes, each checked against RECORD.

    Args:
        name: The wheel's file name, for messages.
        stream: Seekable; closed by the caller.
        wanted: Tells which paths to read.
        limits: What is refused as a bomb.

    Raises:
        HostError: The wheel is damaged, hostile, or a member is not what RECORD says.
    """
    guard = Guard(name, limits or Limits())
    try:
        with zipfile.ZipFile(stream) as wheel:
            infos = _checked(wheel, guard)
            record_info = [info for info in infos if _is_record(info.filename)]
            if len(record_info) != 1:
                raise guard.hostile("RECORD", "is there more than once, or not at all")
            chosen = [info for info in infos if wanted(info.filename)]
            for info in chosen:
                guard.size(info.filename, info.file_size)
            record: dict[str, str] | None = None
            for batch in _batches([*record_info, *chosen]):
                _announce(wheel, stream, batch)
                for info in batch:
                    data = _read(wheel, info)
                    if record is None:
                        record = _record(data)
                        continue
                    _verify(info.filename, data, record, guard)
                    yield _member(info, data)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise damaged(name, error) from error


def _checked(wheel: zipfile.ZipFile, guard: Guard) -> list[zipfile.ZipInfo]:
    files = []
    for info in wheel.infolist():
        is_folder = info.orig_filename.endswith("/")  # is_dir() looks at a last character
        guard.path(info.orig_filename, is_folder=is_folder)
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
            raise guard.hostile(info.filename, "is a link, a device or another special file")
        if info.flag_bits & 0x1:
            raise guard.hostile(info.filename, "is encrypted")
        if not is_folder:
            files.append(info)
    return files


def _batches(infos: list[zipfile.ZipInfo]) -> Iterator[list[zipfile.ZipInfo]]:
    """RECORD first and alone, then the others in file order, some 32 MiB at a time."""
    yield infos[:1]
    batch: list[zipfile.ZipInfo] = []
    size = 0
    for info in sorted(infos[1:], key=lambda info: info.header_offset):
        if batch and size + info.compress_size > _BATCH:
            yield batch
            batch, size = [], 0
        batch.append(info)
        size += info.compress_size
    if batch:
        yield batch


def _announce(wheel: zipfile.ZipFile, stream: object, infos: list[zipfile.ZipInfo]) -> None:
    if not isinstance(stream, Prefetching):
        return
    starts = sorted([info.header_offset for info in wheel.infolist()] + [wheel.start_dir])
    following = dict(itertools.pairwise(starts))
    spans = []
    for info in infos:
        start = info.header_offset
        # Up to the next member, unless something large lies between.
        enough = start + _HEADER + len(info.orig_filename) * 4 + info.compress_size
        spans.append((start, min(following.get(start, wheel.start_dir), enough)))
    stream.prefetch(spans)


def _read(wheel: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    # One byte more than announced is enough to see that the size lies.
    with wheel.open(info) as member:
        data = member.read(info.file_size + 1)
    if len(data) != info.file_size:
        raise zipfile.BadZipFile(f"{info.filename} has another size than announced")
    return data


def _member(info: zipfile.ZipInfo, data: bytes) -> Member:
    mtime = calendar.timegm((*info.date_time, 0, 0, 0))
    return Member(info.filename, git_mode(info.external_attr >> 16), data, mtime)


def _is_record(path: str) -> bool:
    folder, _, name = path.partition("/")
    return folder.endswith(".dist-info") and name == "RECORD"


def _record(data: bytes) -> dict[str, str]:
    rows = csv.reader(io.StringIO(data.decode("utf-8"), newline=""))
    return {row[0]: row[1] for row in rows if len(row) == 3}  # noqa: PLR2004 - path, hash, size


def _verify(path: str, data: bytes, record: dict[str, str], guard: Guard) -> None:
    method, _, encoded = record.get(path, "").partition("=")
    try:
        expected = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except binascii.Error:
        expected = b""
    if method != "sha256" or expected != hashlib.sha256(data).digest():
        raise guard.hostile(path, "is not the file that RECORD lists")
