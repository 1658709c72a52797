"""One file that a server wrote for a request: what it says of itself, and whether it is that.

Its names and the members of its header: docs/collection.md, "Files".
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import BinaryIO, Literal

from vpatch.collect.file import File, Shape, finding
from vpatch.collect.layout import LAST, STATES, TOKENS
from vpatch.collect.place import Place
from vpatch.collect.reading import opened
from vpatch.collect.stream import Stream
from vpatch.errors import FindingError
from vpatch.findings import Finding
from vpatch.preflight.headers import Header
from vpatch.preflight.strictjson import read_object

Kind = Literal["file", "note", "part"]

FORMAT = "vllm-hidden-states/1"
_NAME = re.compile(r"(hs-[0-9a-f]{8}-(?:0|[1-9][0-9]{0,5}))-([0-9]{8,12})")
_ENDS: Mapping[str, Kind] = {".safetensors": "file", ".error.json": "note"}
_PARTS = (".safetensors.tmp", ".safetensors.last.tmp")
_LARGEST_NOTE = 64 << 10
_LONGEST = 300
_COUNT = re.compile(r"[1-9][0-9]{0,9}")
_TOKEN = re.compile(r"0|[1-9][0-9]{0,9}")
# A request that ended otherwise leaves no file.
_KEPT = ("stop", "length", "repetition")
_NUMBERS: Mapping[str, re.Pattern[str]] = {
    "prompt_tokens": _COUNT,
    "generated_tokens": _COUNT,
    "last_token_id": _TOKEN,
}


@dataclass(frozen=True)
class Name:
    """A name that an engine gives.

    Attributes:
        engine: What all names of one engine begin with: made anew with each start and each
            data-parallel rank.
        number: Of the request, counted from 0.
        kind: A whole file, a note of why there is none, or what is being written.
    """

    engine: str
    number: int
    kind: Kind


def name_of(text: str) -> Name | None:
    """None where no engine gives such a name."""
    for end, kind in _ENDS.items():
        if text.endswith(end) and (found := _NAME.fullmatch(text.removesuffix(end))):
            return Name(found[1], int(found[2]), kind)
    for end in _PARTS:
        inner = text.removeprefix(".").removesuffix(end)
        if text.startswith(".") and text.endswith(end) and (found := _NAME.fullmatch(inner)):
            return Name(found[1], int(found[2]), "part")
    return None


@dataclass(frozen=True)
class Served:
    """What a file is.

    Attributes:
        file, size: Its name and its bytes.
        rows: How many it has.
        said: What all files of one engine say alike; None where it does not say it.
        request: A hash of the request's id; None where it has none.
        asked: A hash of label and prompt, where there is a label.
        findings: What is wrong with it.
    """

    file: str
    size: int
    rows: int
    said: Said | None
    request: bytes | None
    asked: bytes | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Said:
    """What an engine's option and model make of every file."""

    shape: Shape
    layers: tuple[int, ...]
    norm: bool

    def __str__(self) -> str:
        shape = f"{self.shape.dtype} [{self.shape.layers}, {self.shape.hidden}]"
        last = " and the normed last state" if self.norm else ""
        return f"{shape}, layers {', '.join(map(str, self.layers))}{last}"


@dataclass(frozen=True)
class Note:
    """Why a request has no file."""

    request: str
    label: str
    error: str


def read_served(place: Place, name: str) -> Served:
    """Reads a file once, and says what it is."""
    there = opened(place, name)
    if isinstance(there, Finding):
        return _nothing(name, there)
    stream, size = there
    with stream, closing(Stream(stream)) as reader:
        try:
            return _Reading(File(reader, size, name, None), size).served()
        except OSError as error:
            return _nothing(name, finding(name, "unreadable", f"cannot be read: {error}"))


def _nothing(name: str, why: Finding) -> Served:
    return Served(name, 0, 0, None, None, None, (why,))


class _Reading:
    def __init__(self, file: File, size: int) -> None:
        self.file = file
        self.size = size
        self.prompt = 0
        self.rows = 0
        self.layers: tuple[int, ...] = ()
        self.norm = False
        self.asked: bytes | None = None

    def served(self) -> Served:
        file = self.file
        header = file.header()
        if header is not None and self._metadata(file.metadata) and self._tensors(header):
            self._bodies(header)
        file.rest()
        if file.reader.read_bytes != self.size:
            file.found("size", f"has {file.reader.read_bytes} bytes, not {self.size}")
        said = None
        if file.shape is not None and self.layers:
            said = Said(file.shape, self.layers, self.norm)
        request = file.metadata.get("request_id")
        return Served(
            file.name,
            file.reader.read_bytes,
            self.rows,
            said,
            _hash(request) if request else None,
            self.asked,
            tuple(file.findings),
        )

    def _metadata(self, said: Mapping[str, str]) -> bool:
        """Whether the header says what it has to; the rest is read by it."""
        if said.get("format") != FORMAT:
            self.file.found("format", f"is of the format {said.get('format')!r:.60}, not {FORMAT}")
            return False
        prompt, generated = said.get("prompt_tokens", ""), said.get("generated_tokens", "")
        for name, pattern in _NUMBERS.items():
            if not pattern.fullmatch(said.get(name, "")):
                self._bad(name, "no number that can be")
        if said.get("finish_reason") not in _KEPT:
            self._bad("finish_reason", f"none of {', '.join(_KEPT)}")
        for name in ("request_id", "label", "model"):
            if name not in said or (name == "request_id" and not said[name]):
                self._bad(name, "missing")
        if said.get("last") not in {None, "normed"}:
            self._bad("last", "not normed")
        self.layers = _layers_of(said.get("layers", ""))
        if not self.layers:
            self._bad("layers", "no list of ascending ids")
        if self.file.findings:
            return False
        self.norm = "last" in said
        self.prompt = int(prompt)
        self.rows = self.prompt + int(generated) - 1
        return True

    def _bad(self, name: str, why: str) -> None:
        said = self.file.metadata.get(name)
        text = "is missing" if said is None else f"is {said!r:.60}, {why}"
        self.file.found("metadata", f"{name} in its header {text}")

    def _tensors(self, header: Header) -> bool:
        """Rows are prompt + generated - 1: the last token was never an input."""
        kinds = (STATES, TOKENS, LAST) if self.norm else (STATES, TOKENS)
        if not self.file.tensors(header, {kind: (kind, self.rows) for kind in kinds}):
            return False
        shape = self.file.shape
        if shape is not None and shape.layers != len(self.layers):
            text = f"has {shape.layers} layers, and says that they are {list(self.layers)}"
            self.file.found("layers", text)
        return not self.file.findings

    def _bodies(self, header: Header) -> None:
        try:
            for tensor in header.tensors.values():
                if tensor.name != TOKENS:
                    self.file.states(tensor, zero_is_data=self.layers == (0,))
                elif (raw := self.file.tokens(tensor)) is not None:
                    self._tokens(raw)
        except FindingError as error:  # it became shorter while it was read
            self.file.found(error.code, error.message)

    def _tokens(self, raw: bytes) -> None:
        # The sign is in the last byte of eight.
        wrong = next((place for place, byte in enumerate(raw[7::8]) if byte & 0x80), None)
        if wrong is not None:
            self.file.found("tokens", f"{TOKENS} has an id below 0, the first is row {wrong}")
        if label := self.file.metadata["label"]:
            self.asked = _hash(label, raw[: self.prompt * 8])


def read_note(place: Place, name: str) -> Note | Finding:
    """Why a request has no file, as its engine wrote it down."""
    there = opened(place, name)
    if isinstance(there, Finding):
        return there
    stream, size = there
    with stream:
        try:
            found = read_object(_small(stream, size, name), name)
        except FindingError as error:
            return finding(name, "note", error.message)
    texts = [found.get(member) for member in ("request_id", "label", "error")]
    if not all(isinstance(text, str) for text in texts) or not texts[0] or not texts[2]:
        return finding(name, "note", "does not say whose it is, and what happened")
    return Note(*(str(text)[:_LONGEST] for text in texts))


def _small(stream: BinaryIO, size: int, name: str) -> bytes:
    if size > _LARGEST_NOTE:
        raise FindingError(f"{name} has {size} bytes")
    return stream.read(_LARGEST_NOTE + 1)


def _layers_of(text: str) -> tuple[int, ...]:
    """Empty where it is no list of ascending ids."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(found, list) or not all(type(one) is int and one >= 0 for one in found):
        return ()
    return tuple(found) if found == sorted(set(found)) else ()


def _hash(*parts: str | bytes) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.digest()[:16]
