"""Writes a wheel out of another wheel's bytes: unchanged members are never decompressed.

One pass over the base: what is kept is copied as byte ranges, local headers included, while two
threads hash the base and the output (``hashlib`` lets go of the interpreter lock). The output
gets its name only after the base's sha256 has been found right.
"""

from __future__ import annotations

import glob
import hashlib
import os
import queue
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from vpatch.errors import HostError
from vpatch.files import disk_errors, sync_folder
from vpatch.wheel.headers import (
    central_entry,
    end_records,
    local_header,
    name_flag,
    stored_member,
)
from vpatch.wheel.zip import DESCRIPTOR_FLAG, UTF8_FLAG, Archive, Member, bad_wheel, unreadable

if TYPE_CHECKING:
    from hashlib import _Hash as HASH

# Small enough to stay in a core's cache from the read to the hashes and the write.
_CHUNK = 256 << 10
# A build takes seconds; another one may be at work on the same wheel.
_SURELY_DEAD_S = 3600
# Chunks that may wait for a hashing thread: bounds the memory, and the disk never waits long.
_WAITING_CHUNKS = 32


@dataclass(frozen=True)
class Kept:
    """A member of the base, byte for byte."""

    member: Member


@dataclass(frozen=True)
class Moved:
    """A member of the base under another name: the same compressed data, a new local header."""

    member: Member
    name: str


@dataclass(frozen=True)
class Stored:
    """A new member, not compressed: no zlib version can change its bytes.

    Attributes:
        mode: Unix permissions, such as ``0o644``.
    """

    name: str
    data: bytes
    mode: int


Part = Kept | Moved | Stored


@dataclass(frozen=True)
class Spliced:
    """What a splice wrote.

    Attributes:
        sha256: Of the output.
        base_sha256: Of the whole base file, its dropped members included.
        size: Bytes of the output.
    """

    sha256: str
    base_sha256: str
    size: int


def splice(
    base: Archive, parts: Sequence[Part], output: Path, *, expected_sha256: str | None
) -> Spliced:
    """Writes ``output`` from parts of ``base`` and new members.

    Args:
        base: The wheel that bytes are taken from.
        parts: The members of the output; those of the base in the order in which they lie there.
        output: The file to write; replaced as a whole, or left as it was.
        expected_sha256: What the base has to be; None where nobody knows.

    Raises:
        HostError: the base has another sha256, or a file cannot be read or written.
    """
    with _beside(output) as file, ExitStack() as stack:
        copy = _Copy(base, file, stack)
        for part in parts:
            copy.add(part)
        spliced = copy.finish()
        if expected_sha256 is not None and spliced.base_sha256 != expected_sha256:
            raise HostError(
                f"{base.path.name} is not the file that was asked for: its sha256 is "
                f"{spliced.base_sha256}, not {expected_sha256}",
                hint=f"Remove {base.path} and run the command again.",
                code="hash-mismatch",
            )
    return spliced


@contextmanager
def _beside(output: Path) -> Iterator[BinaryIO]:
    """A new file beside ``output`` that takes its name only when the block ends well."""
    with disk_errors(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        _forget_killed_builds(output)
        descriptor, name = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name[:80]}.")
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb", buffering=0) as file:
                yield file
                os.fchmod(descriptor, _readable())
                os.fsync(descriptor)
            temporary.replace(output)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(output.parent)


def _forget_killed_builds(output: Path) -> None:
    """What a killed build left: as large as a wheel, and nobody would ever miss it."""
    for rest in output.parent.glob(f".{glob.escape(output.name[:80])}.*"):
        with suppress(FileNotFoundError):
            if time.time() - rest.stat().st_mtime > _SURELY_DEAD_S:
                rest.unlink()


def _readable() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return 0o666 & ~mask


class _Sha256(threading.Thread):
    """A sha256 that is computed in a thread of its own."""

    def __init__(self, stack: ExitStack, digest: HASH | None = None) -> None:
        super().__init__(daemon=True)
        self._stack = stack
        self._digest = digest or hashlib.sha256()
        self._waiting: queue.Queue[bytes | None] = queue.Queue(_WAITING_CHUNKS)
        self.start()
        stack.callback(self.close)

    def run(self) -> None:
        while (chunk := self._waiting.get()) is not None:
            self._digest.update(chunk)
            self._waiting.task_done()

    def update(self, chunk: bytes) -> None:
        self._waiting.put(chunk)

    def fork(self) -> _Sha256:
        """Another one that has seen the same bytes so far."""
        self._waiting.join()
        return _Sha256(self._stack, self._digest.copy())

    def hexdigest(self) -> str:
        self.close()
        return self._digest.hexdigest()

    def close(self) -> None:
        if self.is_alive():
            self._waiting.put(None)
            self.join()


class _Copy:
    """The single pass: the base's bytes go by once, each hashed, the wanted ones written."""

    def __init__(self, base: Archive, output: BinaryIO, stack: ExitStack) -> None:
        self.base = base
        self.output = output
        self.written = 0
        self.directory: list[bytes] = []
        # A run of kept members that is copied as one range.
        self._pending = (0, 0)
        try:
            # No buffer of Python's own: it would copy every byte once more.
            self._file = stack.enter_context(base.path.open("rb", buffering=0))
        except OSError as error:
            raise unreadable(base.path, error) from error
        self._read_hash = _Sha256(stack)
        # None while the output is the beginning of the base: one hash serves both until then.
        self._write_hash: _Sha256 | None = None

    def add(self, part: Part) -> None:
        if isinstance(part, Kept):
            self._keep(part.member)
        elif isinstance(part, Moved):
            self._move(part.member, part.name)
        else:
            self._store(part)

    def finish(self) -> Spliced:
        self._copy_pending()
        self._take(self.base.size, write=False)
        offset = self.written
        self._write(b"".join(self.directory))
        self._write(end_records(len(self.directory), self.written - offset, offset))
        return Spliced(
            sha256=self._output_hash().hexdigest(),
            base_sha256=self._read_hash.hexdigest(),
            size=self.written,
        )

    def _keep(self, member: Member) -> None:
        start, end = self._pending
        offset = self.written + (end - start)
        if member.start != end:
            self._copy_pending()
            offset = self.written
            start = member.start
        self._pending = (start, member.end)
        self.directory.append(central_entry(member, member.name, offset, member.flags))

    def _move(self, member: Member, name: str) -> None:
        self._copy_pending()
        flags = member.flags & ~(DESCRIPTOR_FLAG | UTF8_FLAG) | name_flag(name)
        self.directory.append(central_entry(member, name, self.written, flags))
        self._write(local_header(member, name, flags))
        self._take(member.data, write=False)
        self._take(member.data + member.compressed_size, write=True)

    def _store(self, part: Stored) -> None:
        self._copy_pending()
        member = stored_member(part.name, part.data, part.mode)
        self.directory.append(central_entry(member, part.name, self.written, member.flags))
        self._write(local_header(member, part.name, member.flags))
        self._write(part.data)

    def _copy_pending(self) -> None:
        start, end = self._pending
        self._pending = (0, 0)
        if end > start:
            self._take(start, write=False)
            self._take(end, write=True)

    def _take(self, until: int, *, write: bool) -> None:
        """Reads the base on to ``until``."""
        at = self._file.tell()
        if until < at:
            raise ValueError("parts of the base have to come in the order in which they lie there")
        if at < until and not write:
            self._output_hash()  # from here on the output is not the base's beginning
        while at < until:
            try:
                chunk = self._file.read(min(_CHUNK, until - at))
            except OSError as error:
                raise unreadable(self.base.path, error) from error
            if not chunk:
                raise bad_wheel(self.base.path, "became shorter while it was read")
            at += len(chunk)
            self._read_hash.update(chunk)
            if write:
                self._put(chunk)
                if self._write_hash is not None:
                    self._write_hash.update(chunk)

    def _write(self, data: bytes) -> None:
        self._output_hash().update(data)
        self._put(data)

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self.output.write(view) :]
        self.written += len(data)

    def _output_hash(self) -> _Sha256:
        if self._write_hash is None:
            self._write_hash = self._read_hash.fork()
        return self._write_hash
