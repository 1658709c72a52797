"""The strict reader of a wheel's zip directory.

A wheel is untrusted. The members have to tile the file from its first byte to the central
directory, and each local header has to say what the central directory says: then a streaming
installer, an installer that reads the directory, and the splicer all see the same files.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from vpatch.wheel.zip import (
    CENTRAL_HEADER,
    CENTRAL_MAGIC,
    DEFLATED,
    DESCRIPTOR_FLAG,
    END64_LOCATOR,
    END64_MAGIC,
    END64_RECORD,
    END_MAGIC,
    END_RECORD,
    LOCAL_HEADER,
    LOCAL_MAGIC,
    LOCATOR_MAGIC,
    MAX16,
    MAX32,
    STORED,
    UTF8_FLAG,
    ZIP64_EXTRA,
    Archive,
    Member,
    bad_wheel,
    check_names,
    encoded_name,
    unreadable,
)

# Compression-related bits 1 and 2, the descriptor and UTF-8: all else (encryption, patched data,
# masked headers) changes what the bytes mean.
_KNOWN_FLAGS = 0x6 | DESCRIPTOR_FLAG | UTF8_FLAG
# What a reader has to know for zip64, the newest feature that a wheel may use.
_NEWEST_VERSION = 45
# Info-ZIP's Unicode path: another name for the same member, so two readers see two files.
_UNICODE_PATH_EXTRA = 0x7075
_DESCRIPTOR_MAGIC = b"PK\x07\x08"
_MOST_DIRECTORY_BYTES = 128 << 20


def read_archive(path: Path) -> Archive:
    """Reads a zip's directory and proves that the members tile the file.

    Args:
        path: A wheel, from anywhere.

    Returns:
        The members with the byte ranges that they own.

    Raises:
        FindingError: truncated, not a zip, encrypted, two members of one name, a name that leaves
            the folder, overlapping members, bytes that belong to no member, or a local header
            that contradicts the central directory.
        HostError: the file cannot be read.
    """
    try:
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            return _Reader(path, file.fileno(), size).archive()
    except OSError as error:
        raise unreadable(path, error) from error


@dataclass(frozen=True)
class _Directory:
    offset: int
    size: int
    count: int


class _Reader:
    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.size = size

    def archive(self) -> Archive:
        directory = self._directory()
        entries = sorted(self._entries(directory), key=lambda member: member.start)
        check_names(self.path, entries)
        starts = [*(member.start for member in entries), directory.offset]
        if starts[0] != 0:
            raise bad_wheel(self.path, "begins with bytes that belong to no member")
        members = (self._located(m, end) for m, end in zip(entries, starts[1:], strict=True))
        return Archive(self.path, self.size, tuple(members))

    def _at(self, offset: int, count: int) -> bytes:
        if offset < 0 or offset + count > self.size:
            raise bad_wheel(self.path, "is truncated, or its offsets are wrong")
        parts = []
        while count:
            part = os.pread(self.descriptor, count, offset)
            if not part:
                raise bad_wheel(self.path, "became shorter while it was read")
            parts.append(part)
            offset, count = offset + len(part), count - len(part)
        return b"".join(parts)

    def _end_record(self) -> tuple[int, tuple[int, ...]]:
        length = min(self.size, END_RECORD.size + MAX16)
        tail = self._at(self.size - length, length)
        found = []
        position = tail.find(END_MAGIC)
        while position >= 0:
            if position + END_RECORD.size <= length:
                fields = END_RECORD.unpack_from(tail, position)
                # The comment has to reach the end of the file: no bytes behind the zip.
                if position + END_RECORD.size + fields[-1] == length:
                    found.append((self.size - length + position, fields[1:]))
            position = tail.find(END_MAGIC, position + 1)
        if len(found) != 1:
            problem = "ends in two zip directories" if found else "is not a zip, or is truncated"
            raise bad_wheel(self.path, problem)
        return found[0]

    def _directory(self) -> _Directory:
        end, (disk, first_disk, here, count, size, offset, _) = self._end_record()
        locator_at = end - END64_LOCATOR.size
        if locator_at >= 0 and self._at(locator_at, 4) == LOCATOR_MAGIC:
            end, (disk, first_disk, here, count, size, offset) = self._end64_record(
                locator_at, (disk, first_disk, here, count, size, offset)
            )
        if disk or first_disk or here != count:
            raise bad_wheel(self.path, "is one part of a zip that spans several files")
        if offset + size != end:
            raise bad_wheel(self.path, "has a directory that does not lie where the zip says")
        if size > _MOST_DIRECTORY_BYTES:
            raise bad_wheel(self.path, f"has a directory of {size} bytes: too many")
        return _Directory(offset=offset, size=size, count=count)

    def _end64_record(
        self, locator_at: int, short: tuple[int, ...]
    ) -> tuple[int, tuple[int, int, int, int, int, int]]:
        _, disk, at, disks = END64_LOCATOR.unpack(self._at(locator_at, END64_LOCATOR.size))
        if disk or disks != 1 or at + END64_RECORD.size != locator_at:
            raise bad_wheel(self.path, "has a zip64 end record at a place that cannot be")
        magic, length, _, _, *fields = END64_RECORD.unpack(self._at(at, END64_RECORD.size))
        if magic != END64_MAGIC or length != END64_RECORD.size - 12:
            raise bad_wheel(self.path, "has a damaged zip64 end record")
        limits = (MAX16, MAX16, MAX16, MAX16, MAX32, MAX32)
        for small, large, limit in zip(short, fields, limits, strict=True):
            if small not in {large, limit}:
                raise bad_wheel(self.path, "has two end records that contradict each other")
        return at, (fields[0], fields[1], fields[2], fields[3], fields[4], fields[5])

    def _entries(self, directory: _Directory) -> Iterator[Member]:
        raw = self._at(directory.offset, directory.size)
        position = 0
        for _ in range(directory.count):
            if position + CENTRAL_HEADER.size > len(raw):
                raise bad_wheel(self.path, "has a directory that ends too early")
            fields = CENTRAL_HEADER.unpack_from(raw, position)
            position += CENTRAL_HEADER.size
            total = fields[10] + fields[11] + fields[12]
            if fields[0] != CENTRAL_MAGIC or position + total > len(raw):
                raise bad_wheel(self.path, "has a damaged directory")
            yield _entry(self.path, fields, raw[position : position + total])
            position += total
        if position != len(raw):
            raise bad_wheel(self.path, "has more directory than it has members")

    def _located(self, member: Member, end: int) -> Member:
        """The member with its data's place, once its local header has been compared."""
        head = LOCAL_HEADER.unpack(self._at(member.start, LOCAL_HEADER.size))
        magic, needed, flags, method, _, _, crc, compressed, size, name_length, extra_length = head
        at = member.start + LOCAL_HEADER.size
        rest = self._at(at, name_length + extra_length)
        data = at + name_length + extra_length
        stated = _sizes(self.path, rest[name_length:], size=size, compressed=compressed)
        same = (
            magic == LOCAL_MAGIC
            and needed & 0xFF <= _NEWEST_VERSION
            and rest[:name_length] == encoded_name(member.name)
            and (flags, method) == (member.flags, member.method)
        )
        actual = (crc, stated.compressed, stated.size)
        wanted = (member.crc, member.compressed_size, member.size)
        later = bool(flags & DESCRIPTOR_FLAG)
        if not same or (actual != wanted and not (later and actual == (0, 0, 0))):
            raise bad_wheel(
                self.path, f"has a local header that contradicts its directory: {member.name}"
            )
        self._check_span(member, data, end, later=later)
        return replace(member, data=data, end=end)

    def _check_span(self, member: Member, data: int, end: int, *, later: bool) -> None:
        behind = end - data - member.compressed_size
        if behind < 0:
            raise bad_wheel(self.path, f"has members that overlap: {member.name}")
        allowed = _descriptors(member) if later else (b"",)
        longest = max(len(one) for one in allowed)
        if behind > longest or self._at(end - behind, behind) not in allowed:
            raise bad_wheel(
                self.path, f"holds bytes that belong to no member, behind {member.name}"
            )


@dataclass(frozen=True)
class _Sizes:
    size: int
    compressed: int
    offset: int


def _entry(path: Path, fields: tuple[int, ...], tail: bytes) -> Member:
    (_, made_by, needed, flags, method, time, date, crc, compressed, size) = fields[:10]
    (name_length, extra_length, _, disk, internal, external, offset) = fields[10:]
    raw_name = tail[:name_length]
    extra = tail[name_length : name_length + extra_length]
    name = _decoded_name(path, raw_name, flags)
    if flags & ~_KNOWN_FLAGS or needed & 0xFF > _NEWEST_VERSION:
        raise bad_wheel(path, f"has a member that is encrypted or of an unknown kind: {name}")
    if method not in {STORED, DEFLATED}:
        raise bad_wheel(path, f"has a member compressed by method {method}: {name}")
    sizes = _sizes(path, extra, size=size, compressed=compressed, offset=offset)
    if disk or (method == STORED and sizes.size != sizes.compressed):
        raise bad_wheel(path, f"has a member with an impossible header: {name}")
    return Member(
        name=name,
        flags=flags,
        method=method,
        timestamp=date << 16 | time,
        crc=crc,
        compressed_size=sizes.compressed,
        size=sizes.size,
        made_by=made_by,
        needed=needed,
        internal=internal,
        external=external,
        extra=b"".join(whole for kind, whole in _extras(path, extra) if kind != ZIP64_EXTRA),
        comment=tail[name_length + extra_length :],
        start=sizes.offset,
        data=0,
        end=0,
    )


def _extras(path: Path, extra: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(extra):
        if position + 4 > len(extra):
            raise bad_wheel(path, "has a damaged extra field")
        kind, length = struct.unpack_from("<2H", extra, position)
        whole = extra[position : position + 4 + length]
        if len(whole) != 4 + length:
            raise bad_wheel(path, "has a damaged extra field")
        if kind == _UNICODE_PATH_EXTRA:
            raise bad_wheel(path, "gives a member a second name")
        yield kind, whole
        position += len(whole)


def _sizes(path: Path, extra: bytes, *, size: int, compressed: int, offset: int = 0) -> _Sizes:
    """The 32-bit values, each replaced by its zip64 one where it is saturated."""
    large = [whole[4:] for kind, whole in _extras(path, extra) if kind == ZIP64_EXTRA]
    if len(large) > 1:
        raise bad_wheel(path, "has a member with two zip64 fields")
    body = large[0] if large else b""
    values = [number for (number,) in struct.iter_unpack("<Q", body[: len(body) // 8 * 8])]
    result = []
    for value in (size, compressed, offset):
        if value == MAX32 and not values:
            raise bad_wheel(path, "has a member without its zip64 sizes")
        result.append(values.pop(0) if value == MAX32 else value)
    return _Sizes(*result)


def _descriptors(member: Member) -> tuple[bytes, ...]:
    """Every form that a data descriptor of this member may have."""
    numbers = (member.crc, member.compressed_size, member.size)
    forms = [struct.pack("<I2Q", *numbers)]
    if max(numbers) <= MAX32:
        forms.append(struct.pack("<3I", *numbers))
    return (*forms, *(_DESCRIPTOR_MAGIC + form for form in forms))


def _decoded_name(path: Path, raw: bytes, flags: int) -> str:
    try:
        return raw.decode("utf-8" if flags & UTF8_FLAG else "ascii")
    except UnicodeDecodeError as error:
        raise bad_wheel(path, f"has a member whose name is not UTF-8: {raw!r}") from error
