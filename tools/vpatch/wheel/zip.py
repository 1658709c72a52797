"""The zip layer of a wheel: its members, the bytes that each owns, and their contents.

``wheeldir.read_archive`` makes an ``Archive`` after proving that it can be trusted. Nothing is
decompressed but the members that are asked for, and in constant memory.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vpatch.errors import FindingError, HostError

STORED = 0
DEFLATED = 8
UTF8_FLAG = 0x800
DESCRIPTOR_FLAG = 0x8
MAX32 = 0xFFFFFFFF
MAX16 = 0xFFFF
ZIP64_EXTRA = 1

LOCAL_HEADER = struct.Struct("<4s5H3I2H")
CENTRAL_HEADER = struct.Struct("<4s6H3I5H2I")
END_RECORD = struct.Struct("<4s4H2IH")
END64_RECORD = struct.Struct("<4sQ2H2I4Q")
END64_LOCATOR = struct.Struct("<4sIQI")
LOCAL_MAGIC = b"PK\x03\x04"
CENTRAL_MAGIC = b"PK\x01\x02"
END_MAGIC = b"PK\x05\x06"
END64_MAGIC = b"PK\x06\x06"
LOCATOR_MAGIC = b"PK\x06\x07"

_CHUNK = 1 << 20
_MOST_BYTES_IN_MEMORY = 64 << 20
_FORBIDDEN_IN_NAME = re.compile(r"[\\:\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True)
class Member:
    """One file of a zip as both of its headers describe it.

    Attributes:
        start: Offset of the local header.
        data: Offset of the (compressed) data.
        end: Offset behind the data and its descriptor: where the next member begins.
        extra: The central directory's extra fields without the zip64 one.
        external: External attributes; the Unix mode in the upper 16 bits.
    """

    name: str
    flags: int
    method: int
    timestamp: int
    crc: int
    compressed_size: int
    size: int
    made_by: int
    needed: int
    internal: int
    external: int
    extra: bytes
    comment: bytes
    start: int
    data: int
    end: int

    @property
    def is_folder(self) -> bool:
        """A folder's own entry: RECORD does not list it."""
        return self.name.endswith("/")

    @property
    def mode(self) -> int:
        """The Unix mode, type bits included."""
        return self.external >> 16


@dataclass(frozen=True)
class Archive:
    """A zip whose members tile the file.

    Attributes:
        path: The file.
        size: Its bytes.
        members: In the order in which they lie in the file.
    """

    path: Path
    size: int
    members: tuple[Member, ...]

    @cached_property
    def by_name(self) -> dict[str, Member]:
        """name -> member; names are unique."""
        return {member.name: member for member in self.members}

    def read(self, name: str) -> bytes:
        """A member's contents, its size and CRC checked.

        Raises:
            FindingError: there is no such member, it is too large, or its bytes are damaged.
            HostError: the file cannot be read.
        """
        member = self.by_name.get(name)
        if member is None:
            raise bad_wheel(self.path, f"has no member {name}")
        if member.size > _MOST_BYTES_IN_MEMORY:
            raise bad_wheel(self.path, f"says that {name} has {member.size} bytes: too many")
        return b"".join(self.chunks(member))

    def chunks(self, member: Member) -> Iterator[bytes]:
        """A member's contents piece by piece, in constant memory; safe to use from threads.

        Raises:
            FindingError: the data are damaged, or more or fewer than the directory says.
            HostError: the file cannot be read.
        """
        crc = seen = 0
        for piece in self._inflated(member):
            crc = zlib.crc32(piece, crc)
            seen += len(piece)
            if seen > member.size:
                break
            yield piece
        if seen != member.size or crc != member.crc:
            raise bad_wheel(self.path, f"is damaged: {member.name} has a wrong size or CRC")

    def _inflated(self, member: Member) -> Iterator[bytes]:
        raw = self._raw(member)
        if member.method == STORED:
            yield from raw
            return
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            for piece in raw:
                pending = piece
                while pending and not inflater.eof:
                    yield inflater.decompress(pending, _CHUNK)
                    pending = inflater.unconsumed_tail
                if inflater.unused_data:
                    break
            yield inflater.flush()
        except zlib.error as error:
            problem = f"is damaged: {member.name} does not decompress"
            raise bad_wheel(self.path, problem) from error
        if not inflater.eof or inflater.unused_data:
            raise bad_wheel(
                self.path, f"is damaged: the data of {member.name} end at another place"
            )

    def _raw(self, member: Member) -> Iterator[bytes]:
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(member.data)
                left = member.compressed_size
                while left:
                    piece = file.read(min(left, _CHUNK))
                    if not piece:
                        raise bad_wheel(self.path, "became shorter while it was read")
                    left -= len(piece)
                    yield piece
        except OSError as error:
            raise unreadable(self.path, error) from error


def bad_wheel(path: Path, problem: str) -> FindingError:
    """The error for a file that cannot be trusted as a wheel: a sentence with the file's name."""
    return FindingError(
        f"{path.name} {problem}",
        hint="Get the wheel again from where it was published, and compare its sha256.",
        code="bad-wheel",
    )


def unreadable(path: Path, error: OSError) -> HostError:
    """The error for a file that the host does not let us read."""
    return HostError(
        f"{path} cannot be read: {error.strerror or error}",
        hint="Check the path and its permissions.",
        code="unreadable",
    )


def encoded_name(name: str) -> bytes:
    """A member's name as it stands in the headers."""
    return name.encode("utf-8")


def safe_name(name: str) -> bool:
    """Whether a member's name stays inside the folder that a wheel is unpacked to."""
    parts = name.removesuffix("/").split("/")
    return not _FORBIDDEN_IN_NAME.search(name) and not any(p in {"", ".", ".."} for p in parts)


def check_names(path: Path, members: Iterable[Member]) -> None:
    """Refuses names that two unpackers would not put at the same, harmless place.

    Raises:
        FindingError: a name that leaves the folder, two members of one name, a file that is also
            a folder.
    """
    names: set[str] = set()
    files: set[str] = set()
    folders: set[str] = set()
    for member in members:
        if not safe_name(member.name):
            raise bad_wheel(path, f"has a member whose name leaves the folder: {member.name!r}")
        bare = member.name.removesuffix("/")
        if bare in names:
            raise bad_wheel(path, f"has two members of one name: {bare}")
        if member.is_folder and member.size:
            raise bad_wheel(path, f"has a folder with contents of its own: {bare}")
        names.add(bare)
        if not member.is_folder:
            files.add(bare)
        folders.update(_parents(bare))
    if both := sorted(files & folders):
        raise bad_wheel(path, f"has a member that is a file and a folder: {both[0]}")


def _parents(name: str) -> Iterator[str]:
    while (cut := name.rfind("/")) > 0:
        name = name[:cut]
        yield name
