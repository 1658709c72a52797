"""One file of states, read once, from its beginning on: header, tensors, numbers."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vpatch.collect.layout import STATES, TOKENS
from vpatch.collect.rows import NUMBERS, Rows
from vpatch.collect.stream import Stream
from vpatch.errors import FindingError
from vpatch.findings import Finding
from vpatch.preflight.headers import Header, Tensor, read_whole_header

CHUNK = 1 << 20
WIDEST_ROW = 256 << 20
_MOST_TOKENS = 16 << 20
_STATES_DIMENSIONS = 3
_TOKEN_TYPES: Mapping[str, str] = {"I64": "q", "I32": "i"}


@dataclass(frozen=True)
class Shape:
    """What all rows of a set have in common."""

    dtype: str
    layers: int
    hidden: int

    @property
    def width(self) -> int:
        """Bytes of a row."""
        return self.layers * self.hidden * NUMBERS[self.dtype].size


def finding(file: str, code: str, message: str) -> Finding:
    """What is wrong with a file; a sentence that begins with its name loses it."""
    return Finding(file, None, code, message.removeprefix(file).lstrip(": "))


class File:
    """One pass over one file.

    Attributes:
        shape: Of its states; None where that cannot be said (yet).
        metadata: Its header's.
        findings: What is wrong with it.
    """

    def __init__(self, reader: Stream, size: int, name: str, shape: Shape | None) -> None:
        self.reader = reader
        self.size = size
        self.name = name
        self.shape = shape
        self.metadata: Mapping[str, Any] = {}
        self.findings: list[Finding] = []

    def found(self, code: str, message: str) -> None:
        self.findings.append(finding(self.name, code, message))

    def header(self) -> Header | None:
        """The header, where the tensors that it names are the whole file, side by side."""
        try:
            header = read_whole_header(self._piece, self.size, self.name)
        except FindingError as error:
            self.found("header", error.message)
            return None
        self.metadata = header.metadata
        return header

    def _piece(self, start: int, count: int) -> bytes:  # noqa: ARG002 - from the beginning, once
        return self.reader.read(count)

    def tensors(self, header: Header, expected: Mapping[str, tuple[str, int]]) -> bool:
        """Whether exactly these tensors are there: by name their kind, and how many rows."""
        there = header.tensors
        for name in [name for name in there if name not in expected][:3]:
            self.found("tensors", f"has a tensor {name[:80]!r} that does not belong in it")
        for name in [name for name in expected if name not in there][:3]:
            self.found("tensors", f"lacks the tensor {name!r}")
        if self.findings:
            return False
        for name, (kind, rows) in expected.items():
            self.one(there[name], kind, rows)
        return not self.findings

    def one(self, tensor: Tensor, kind: str, rows: int) -> None:
        """Whether a tensor has the type and shape that it has to have."""
        name, said = tensor.name, f"{tensor.dtype} {list(tensor.shape)}"
        if kind == TOKENS:
            if tensor.dtype not in _TOKEN_TYPES or tensor.shape != (rows,):
                self.found("shape", f"{name} is {said}, not int64 [{rows}]")
            return
        if self.shape is None and kind == STATES:
            self.shape = self._shape_of(tensor)
        shape = self.shape
        if shape is None:
            return
        right = (rows, shape.layers, shape.hidden) if kind == STATES else (rows, shape.hidden)
        if tensor.dtype != shape.dtype or tensor.shape != right:
            self.found("shape", f"{name} is {said}, not {shape.dtype} {list(right)}")

    def _shape_of(self, tensor: Tensor) -> Shape | None:
        if tensor.dtype not in NUMBERS or len(tensor.shape) != _STATES_DIMENSIONS:
            said = f"{tensor.dtype} {list(tensor.shape)}"
            self.found("shape", f"{tensor.name} is {said}, no states [tokens, layers, hidden]")
            return None
        shape = Shape(tensor.dtype, *tensor.shape[1:])
        if not 0 < shape.width <= WIDEST_ROW:
            self.found("shape", f"a row of {tensor.name} has {shape.width} bytes")
            return None
        return shape

    def states(self, tensor: Tensor, zero_is_data: bool) -> None:
        """Reads states, row by row."""
        rows = tensor.shape[0]
        width = tensor.size // rows if rows else 1
        looks = Rows(tensor.dtype, width, zero_is_data)
        for chunk in self._chunks(tensor.size, max(CHUNK // width, 1) * width):
            looks.feed(chunk)
        if looks.wrong:
            self.found(
                "not-finite",
                f"{tensor.name} has NaN or Inf in {looks.wrong} of {rows} rows, the first is "
                f"row {looks.first}",
            )
        if looks.empty:
            self.found(
                "empty-row",
                f"{tensor.name} has nothing but zeros in {looks.empty} of {rows} rows, the first "
                f"is row {looks.first_empty}",
            )

    def tokens(self, tensor: Tensor) -> bytes | None:
        """Reads token ids, as int64; None where they are too many for that."""
        rows = tensor.shape[0]
        if rows > _MOST_TOKENS:
            self.found("shape", f"{tensor.name} has {rows} token ids")
            return None
        return self._int64(tensor.dtype, b"".join(self._chunks(tensor.size, CHUNK)))

    def _int64(self, dtype: str, raw: bytes) -> bytes:
        if dtype == "I64":
            return raw
        ids = array(_TOKEN_TYPES[dtype], raw)
        if sys.byteorder == "big":
            ids.byteswap()
        return b"".join(one.to_bytes(8, "little", signed=True) for one in ids)

    def _chunks(self, size: int, most: int) -> Iterator[bytes]:
        while size > 0:
            chunk = self.reader.read(min(size, most))
            if not chunk:
                raise FindingError(f"{self.name} ends before its last tensor", code="header")
            size -= len(chunk)
            yield chunk

    def rest(self) -> None:
        """What is behind the tensors, or was not looked at: hashed all the same."""
        while self.reader.read(CHUNK):
            pass
