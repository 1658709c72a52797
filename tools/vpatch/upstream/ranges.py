"""A remote file as a seekable stream, read by HTTP range requests."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from dataclasses import dataclass

import requests

from vpatch.errors import HostError
from vpatch.upstream.download import BROKEN
from vpatch.upstream.index import Artifact
from vpatch.upstream.session import Session, network_error
from vpatch.upstream.urls import redact

# Holds the directory of a vLLM wheel (some 300 KiB) in most cases: one request less.
_TAIL = 512 << 10
# Two wanted pieces closer than this are cheaper in one request than in two.
_GAP = 128 << 10
_LARGEST = 8 << 20
_MOST = 160 << 20
_PARTIAL = 206
_CONTENT_RANGE = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})")


def open_ranges(session: Session, artifact: Artifact) -> RangeReader | None:
    """Opens a remote file if its server answers range requests.

    Returns:
        The stream, its last part already read; None where the server does not do ranges.

    Raises:
        HostError: The server cannot be reached or refuses us.
    """
    size = artifact.size
    wanted = f"bytes={max(0, size - _TAIL)}-{size - 1}" if size else f"bytes=-{_TAIL}"
    with session.get(artifact.url, headers=_headers(wanted)) as response:
        answer = _answered_range(response)
        if answer is None or (size and answer[2] != size):
            return None
        start, end, total = answer
        if end != total - 1 or end - start >= _TAIL:
            return None
        piece = _Piece(start, _body(artifact.url, response, end + 1 - start))
        etag = _etag(response)
    return RangeReader(session, artifact.url, total, etag, piece)


@dataclass(frozen=True)
class _Piece:
    start: int
    data: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class RangeReader(io.RawIOBase):
    """Seekable and read-only. ``fetched`` counts the bytes that came over the network."""

    def __init__(
        self, session: Session, url: str, size: int, etag: str | None, tail: _Piece
    ) -> None:
        super().__init__()
        self.size = size
        self.fetched = len(tail.data)
        self.requests = 1
        self._session = session
        self._url = url
        self._etag = etag
        self._pieces = [tail]
        self._position = 0

    def prefetch(self, spans: Iterable[tuple[int, int]]) -> None:
        """Reads spans (start, end) ahead, neighbours merged into one request.

        Only these and the last part of the file are kept: memory stays in proportion.

        Raises:
            HostError: Network, or the file changed on the server.
        """
        merged = _merge(spans)
        self._pieces = [self._pieces[0]]
        for start, end in merged:
            if self._piece_with(start, end) is None:
                self._pieces.append(self._fetch(start, end))

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Moves as for any file."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Bytes from the position on; from memory where they were read ahead."""
        start = min(self._position, self.size)
        end = self.size if size is None or size < 0 else min(self.size, start + size)
        if start == end:
            return b""
        piece = self._piece_with(start, end) or self._fetch(start, end)
        self._position = end
        return piece.data[start - piece.start : end - piece.start]

    def readinto(self, buffer: object, /) -> int:
        """Fills a buffer."""
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def _piece_with(self, start: int, end: int) -> _Piece | None:
        for piece in self._pieces:
            if piece.start <= start and end <= piece.end:
                return piece
        return None

    def _fetch(self, start: int, end: int) -> _Piece:
        if end - start > _MOST:
            # A forged directory asks for everything at once.
            raise HostError(
                f"{redact(self._url)} is refused: one part of it has {end - start} bytes",
                hint="Check where the package index has this file from.",
                code="hostile-archive",
            )
        headers = _headers(f"bytes={start}-{end - 1}")
        with self._session.get(self._url, headers=headers) as response:
            answer = _answered_range(response)
            changed = self._etag is not None and _etag(response) != self._etag
            if answer != (start, end - 1, self.size) or changed:
                raise HostError(
                    f"{redact(self._url)} changed or its server stopped answering ranges",
                    hint="Run it again.",
                    code="network",
                )
            data = _body(self._url, response, end - start)
        self.fetched += len(data)
        self.requests += 1
        return _Piece(start, data)


def _merge(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        near = merged and start - merged[-1][1] <= _GAP and end - merged[-1][0] <= _LARGEST
        if near:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _headers(wanted: str) -> dict[str, str]:
    return {"Range": wanted, "Accept-Encoding": "identity"}


def _answered_range(response: requests.Response) -> tuple[int, int, int] | None:
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if response.status_code != _PARTIAL or match is None:
        return None
    return int(match[1]), int(match[2]), int(match[3])


def _etag(response: requests.Response) -> str | None:
    etag = response.headers.get("ETag")
    return None if etag is None or etag.startswith("W/") else etag


def _body(url: str, response: requests.Response, length: int) -> bytes:
    try:
        data: bytes = response.raw.read(length + 1, decode_content=False)
    except BROKEN as error:
        raise network_error(url, error) from None
    if len(data) != length:
        raise network_error(url, ConnectionError("the server sent another number of bytes"))
    return data
