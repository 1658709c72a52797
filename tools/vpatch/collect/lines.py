"""The lines of samples.jsonl: which sample lies in which file, and what that file has to be."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from vpatch.collect.layout import MOST_SAMPLES, file_name, number_of_shard
from vpatch.errors import FindingError
from vpatch.preflight.strictjson import read_object

LONGEST_LINE = 64 << 10
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MOST_TOKENS = 16 << 20
_LARGEST_FILE = 1 << 50
_LONGEST_TEXT = 2000


@dataclass(frozen=True)
class Sample:
    """A sample that is there.

    Attributes:
        number: Its prompt's.
        id: What the prompt's line calls it.
        file: Where it lies.
        prompt, generated: How many tokens.
        tokens: The sha256 of all tokens but the last one, as int64.
        finish: Why it ended: ``stop``, ``length``.
        size, sha256: Of its file; None where the file is a shard, which has a line of its own.
    """

    number: int
    id: str | None
    file: str
    prompt: int
    generated: int
    tokens: str
    finish: str
    size: int | None
    sha256: str | None

    @property
    def rows(self) -> int:
        """The last token was never an input."""
        return self.prompt + self.generated - 1


@dataclass(frozen=True)
class Failed:
    """A prompt that has no sample, and why."""

    number: int
    id: str | None
    reason: str


@dataclass(frozen=True)
class Shard:
    """A file of many samples; its line stands before theirs."""

    file: str
    size: int
    sha256: str
    samples: int


Line = Sample | Failed | Shard


def line_of(one: Line) -> bytes:
    """The line, its end included."""
    return json.dumps(_as_dict(one), separators=(",", ":")).encode() + b"\n"


def parse_line(raw: bytes, where: str) -> Line:
    """A line of samples.jsonl.

    Raises:
        FindingError: It is none.
    """
    found = read_object(raw, where)
    if "shard" in found:
        return _shard(found, where)
    number = _number(found, "sample", where, MOST_SAMPLES)
    one = found.get("id")
    if one is not None and not isinstance(one, str):
        raise _bad(where, "has an id that is no text")
    if "failed" in found:
        return Failed(number, one, _text(found, "failed", where))
    return _sample(found, number, one, where)


def _as_dict(one: Line) -> dict[str, object]:
    if isinstance(one, Shard):
        return {
            "shard": one.file,
            "size": one.size,
            "sha256": one.sha256,
            "samples": one.samples,
        }
    named = {"sample": one.number} | ({} if one.id is None else {"id": one.id})
    if isinstance(one, Failed):
        return {**named, "failed": one.reason}
    own = {} if one.size is None else {"size": one.size, "sha256": one.sha256}
    return {
        **named,
        "file": one.file,
        **own,
        "prompt": one.prompt,
        "generated": one.generated,
        "tokens": one.tokens,
        "finish": one.finish,
    }


def _shard(found: dict[str, Any], where: str) -> Shard:
    file = _text(found, "shard", where)
    if number_of_shard(file) is None:
        raise _bad(where, f"names {file[:80]!r}, which is no shard")
    size = _number(found, "size", where, _LARGEST_FILE)
    samples = _number(found, "samples", where, MOST_SAMPLES)
    return Shard(file, size, _digest(found, "sha256", where), samples)


def _sample(found: dict[str, Any], number: int, one: str | None, where: str) -> Sample:
    file = _text(found, "file", where)
    own = file == file_name(number)
    if not own and number_of_shard(file) is None:
        raise _bad(where, f"names {file[:80]!r}, where {file_name(number)} or a shard would be")
    prompt = _number(found, "prompt", where, _MOST_TOKENS)
    generated = _number(found, "generated", where, _MOST_TOKENS)
    if not prompt or not generated:
        raise _bad(where, "counts no token of the prompt, or none that was generated")
    size = _number(found, "size", where, _LARGEST_FILE) if own else None
    sha256 = _digest(found, "sha256", where) if own else None
    tokens, finish = _digest(found, "tokens", where), _text(found, "finish", where)
    return Sample(number, one, file, prompt, generated, tokens, finish, size, sha256)


def _number(found: dict[str, Any], name: str, where: str, most: int) -> int:
    value = found.get(name)
    if type(value) is not int or not 0 <= value < most:
        raise _bad(where, f"has no {name}")
    return value


def _digest(found: dict[str, Any], name: str, where: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise _bad(where, f"has no {name}")
    return value


def _text(found: dict[str, Any], name: str, where: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not value or len(value) > _LONGEST_TEXT:
        raise _bad(where, f"has no {name}")
    return value


def _bad(where: str, why: str) -> FindingError:
    return FindingError(f"{where} {why}", code="samples")
