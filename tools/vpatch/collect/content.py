"""One file of a set: is it whole, and what it has to be. Read once, from its beginning on."""

from __future__ import annotations

import hashlib
import json
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, BinaryIO

from vpatch.collect.layout import LAST, STATES, TOKENS, tensor_name
from vpatch.collect.lines import Sample
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


@dataclass(frozen=True)
class Wanted:
    """A sample that has to be in a file.

    Attributes:
        sample: What samples.jsonl says of it.
        prompt_digest: `prompts.digest_of` of the prompt, where that is token ids.
    """

    sample: Sample
    prompt_digest: str | None = None


@dataclass(frozen=True)
class Content:
    """What a file is.

    Attributes:
        shape: Of its states; None where that cannot be said.
        metadata: Its header's.
        findings: What is wrong with it.
    """

    size: int
    sha256: str
    shape: Shape | None
    metadata: Mapping[str, Any]
    findings: tuple[Finding, ...]


def finding(file: str, code: str, message: str) -> Finding:
    """What is wrong with a file; a sentence that begins with its name loses it."""
    return Finding(file, None, code, message.removeprefix(file).lstrip(": "))


class _File:
    """One pass over one file."""

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

    def names(self, header: Header, wanted: Sequence[Wanted], *, shard: bool, norm: bool) -> bool:
        """Whether exactly the tensors of these samples are there, in their shapes."""
        kinds = (STATES, TOKENS, LAST) if norm else (STATES, TOKENS)
        expected = {
            tensor_name(kind, one.sample.number if shard else None): (kind, one.sample.rows)
            for one in wanted
            for kind in kinds
        }
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

    def tokens(self, tensor: Tensor, wanted: Wanted) -> None:
        """Reads token ids, and holds them against what the engine answered and was asked."""
        sample = wanted.sample
        if sample.rows > _MOST_TOKENS:
            self.found("shape", f"{tensor.name} has {sample.rows} token ids")
            return
        raw = self._int64(tensor.dtype, b"".join(self._chunks(tensor.size, CHUNK)))
        if hashlib.sha256(raw).hexdigest() != sample.tokens:
            self.found("tokens", f"{tensor.name} has other token ids than the engine answered")
        first = raw[: sample.prompt * 8]
        if wanted.prompt_digest not in {None, hashlib.sha256(first).hexdigest()}:
            self.found("prompt", f"{tensor.name} does not begin with its prompt's token ids")

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


def read_content(
    stream: BinaryIO,
    size: int,
    name: str,
    wanted: Sequence[Wanted],
    *,
    shape: Shape | None,
    shard: bool,
    norm: bool,
    layers: Sequence[int],
) -> Content:
    """Reads a file of a set and says what it is.

    Args:
        stream: The file.
        size: Its bytes.
        name: Names it in findings.
        wanted: The samples that it has to have.
        shape: The rows' shape; where None, the file says it.
        shard: Whether its tensors have their samples' numbers in their names.
        norm: Whether normed last states are there too.
        layers: The ids of the set's layers.
    """
    with closing(Stream(stream)) as reader:
        file = _File(reader, size, name, shape)
        header = file.header()
        if header is not None and file.names(header, wanted, shard=shard, norm=norm):
            if file.shape is not None and file.shape.layers != len(layers):
                file.found("shape", f"has {file.shape.layers} layers, not {len(layers)}")
            _check_layers(file, layers)
            if not shard:
                _check_metadata(file, wanted[0].sample, norm=norm)
            _bodies(file, header, wanted, zero_is_data=list(layers) == [0])
        file.rest()
        if reader.read_bytes != size:
            file.found("size", f"has {reader.read_bytes} bytes, not {size}")
        return Content(
            reader.read_bytes, reader.sha256(), file.shape, file.metadata, tuple(file.findings)
        )


def _bodies(file: _File, header: Header, wanted: Sequence[Wanted], *, zero_is_data: bool) -> None:
    by_number = {str(one.sample.number): one for one in wanted}
    try:
        for tensor in header.tensors.values():
            kind, _, number = tensor.name.partition(".")
            if kind == TOKENS:
                file.tokens(tensor, by_number[number] if number else wanted[0])
            else:
                file.states(tensor, zero_is_data)
    except FindingError as error:  # it became shorter while it was read
        file.found(error.code, error.message)


def _check_layers(file: _File, layers: Sequence[int]) -> None:
    said = file.metadata.get("layers")
    try:
        wrong = said is not None and json.loads(said) != list(layers)
    except (ValueError, RecursionError):
        wrong = True
    if wrong:
        file.found("layers", f"says that its layers are {said!r:.80}, not {list(layers)}")


def _check_metadata(file: _File, sample: Sample, *, norm: bool) -> None:
    """What the engine wrote into the header, where it did."""
    right = {
        "label": str(sample.number),
        "prompt_tokens": str(sample.prompt),
        "generated_tokens": str(sample.generated),
    }
    if norm:
        right["last"] = "normed"
    for name, value in right.items():
        said = file.metadata.get(name, value)
        if said != value:
            file.found("metadata", f"says that its {name} is {said!r:.40}, not {value}")
