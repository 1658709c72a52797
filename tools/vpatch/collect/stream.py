"""A file that is read once: what looks at its bytes, and beside it their hash."""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from typing import BinaryIO

_WORTH_A_THREAD = 128 << 10


class Stream:
    """Reads a file once; the hash is computed beside what looks at the bytes."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self._pool: ThreadPoolExecutor | None = None
        self._hashing: Future[None] | None = None
        self.read_bytes = 0

    def read(self, count: int) -> bytes:
        """The next bytes; fewer where it ends."""
        parts = []
        while count > 0 and (part := self._stream.read(count)):
            parts.append(part)
            count -= len(part)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self.read_bytes += len(data)
        self._wait()
        if len(data) < _WORTH_A_THREAD:
            self._digest.update(data)
        else:
            self._pool = self._pool or ThreadPoolExecutor(1)
            self._hashing = self._pool.submit(self._digest.update, data)
        return data

    def sha256(self) -> str:
        """Of all that was read."""
        self._wait()
        return self._digest.hexdigest()

    def _wait(self) -> None:
        if self._hashing is not None:
            self._hashing.result()
            self._hashing = None

    def close(self) -> None:
        """Ends the thread that computes the hash."""
        if self._pool is not None:
            self._pool.shutdown()
