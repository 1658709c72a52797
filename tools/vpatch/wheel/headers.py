"""The headers of a zip as the splicer writes them; the same bytes on every machine."""

from __future__ import annotations

import struct
import zlib

from vpatch.wheel.zip import (
    CENTRAL_HEADER,
    CENTRAL_MAGIC,
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
    Member,
    encoded_name,
)

# 1980-01-01 00:00:00, the first moment that a zip can name.
_FIXED_TIME = (1 << 5 | 1) << 16
_UNIX = 3 << 8
_VERSION_PLAIN = 20
_VERSION_ZIP64 = 45
_REGULAR_FILE = 0o100000


def stored_member(name: str, data: bytes, mode: int) -> Member:
    """A new member that is not compressed, as both headers describe it."""
    return Member(
        name=name,
        flags=name_flag(name),
        method=STORED,
        timestamp=_FIXED_TIME,
        crc=zlib.crc32(data),
        compressed_size=len(data),
        size=len(data),
        made_by=_UNIX | _VERSION_PLAIN,
        needed=_VERSION_PLAIN,
        internal=0,
        external=(_REGULAR_FILE | mode) << 16,
        extra=b"",
        comment=b"",
        start=0,
        data=0,
        end=0,
    )


def name_flag(name: str) -> int:
    """The flag that says how a name is encoded."""
    return 0 if name.isascii() else UTF8_FLAG


def local_header(member: Member, name: str, flags: int) -> bytes:
    """The header in front of a member's data, under the name given."""
    raw = encoded_name(name)
    sizes = (member.compressed_size, member.size)
    extra = b""
    needed = member.needed
    if max(sizes) >= MAX32:
        # A local header carries both sizes or none.
        extra = struct.pack("<2H2Q", ZIP64_EXTRA, 16, member.size, member.compressed_size)
        sizes = (MAX32, MAX32)
        needed = max(needed, _VERSION_ZIP64)
    time, date = member.timestamp & MAX16, member.timestamp >> 16
    fields = (needed, flags, member.method, time, date, member.crc, *sizes, len(raw), len(extra))
    return LOCAL_HEADER.pack(LOCAL_MAGIC, *fields) + raw + extra


def central_entry(member: Member, name: str, offset: int, flags: int) -> bytes:
    """A member's entry in the directory, under the name and at the offset given."""
    raw = encoded_name(name)
    values = (member.size, member.compressed_size, offset)
    large = [value for value in values if value >= MAX32]
    extra = struct.pack(f"<2H{len(large)}Q", ZIP64_EXTRA, 8 * len(large), *large) if large else b""
    extra += member.extra
    size, compressed, at = (min(value, MAX32) for value in values)
    needed = max(member.needed, _VERSION_ZIP64) if large else member.needed
    time, date = member.timestamp & MAX16, member.timestamp >> 16
    head = (member.made_by, needed, flags, member.method, time, date, member.crc)
    lengths = (len(raw), len(extra), len(member.comment))
    tail = (0, member.internal, member.external, at)
    fields = (*head, compressed, size, *lengths, *tail)
    return CENTRAL_HEADER.pack(CENTRAL_MAGIC, *fields) + raw + extra + member.comment


def end_records(count: int, size: int, offset: int) -> bytes:
    """What ends the zip: zip64 records only where a number does not fit without them."""
    head = b""
    if count >= MAX16 or size >= MAX32 or offset >= MAX32:
        versions = (_UNIX | _VERSION_ZIP64, _VERSION_ZIP64)
        length = END64_RECORD.size - 12
        fields = (0, 0, count, count, size, offset)
        head = END64_RECORD.pack(END64_MAGIC, length, *versions, *fields)
        head += END64_LOCATOR.pack(LOCATOR_MAGIC, 0, offset + size, 1)
    short = (min(count, MAX16), min(count, MAX16), min(size, MAX32), min(offset, MAX32))
    return head + END_RECORD.pack(END_MAGIC, 0, 0, *short, 0)
