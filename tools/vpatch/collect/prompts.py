"""Prompts as JSON lines, from strangers: each line bounded, one way to say each thing."""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

from vpatch.errors import FindingError, UsageError
from vpatch.preflight.strictjson import read_object

LONGEST_LINE = 32 << 20
_LONGEST_ID = 200
_MOST_IDS = 4 << 20  # tokens of one prompt
_LARGEST_ID = 1 << 31
_MOST_MESSAGES = 10_000
_KINDS = ("prompt", "prompt_token_ids", "messages")
_HINT = (
    'A line is an object with "prompt" (a text, or token ids), "prompt_token_ids" or "messages", '
    'and possibly "id" and "max_tokens".'
)


@dataclass(frozen=True)
class Prompt:
    """One prompt.

    Attributes:
        number: Counted from 0, blank lines left out: the number of its sample.
        id: What its line calls it; None where no line has an id.
        kind: How it is said.
        tokens: Its token ids, where it is said by them.
        raw: Its line without the end.
    """

    number: int
    id: str | None
    kind: Literal["text", "tokens", "messages"]
    tokens: Sequence[int] | None
    raw: bytes


def read_prompts(stream: BinaryIO, what: str, most: int | None = None) -> Iterator[Prompt]:
    """The prompts of a file, one after the other; memory does not grow with their length.

    Args:
        stream: The file.
        what: Names it in errors.
        most: How many are wanted; all where None.

    Raises:
        UsageError: A line is no prompt (exit 2), with the line's number.
    """
    seen: set[bytes] = set()
    with_ids: bool | None = None
    for number, (line, raw) in enumerate(_lines(stream, what)):
        if number == most:
            return
        where = f"{what}:{line}"
        prompt = parse_prompt(raw, number, where)
        if with_ids is None:
            with_ids = prompt.id is not None
        elif with_ids != (prompt.id is not None):
            has, others = ("no id", "have one") if with_ids else ("an id", "have none")
            raise _bad(where, f"has {has}, and the lines before it {others}")
        if prompt.id is not None:
            short = hashlib.blake2b(prompt.id.encode(), digest_size=12).digest()
            if short in seen:
                raise _bad(where, f"has the id {prompt.id[:80]!r} of a line before it")
            seen.add(short)
        yield prompt


def parse_prompt(raw: bytes, number: int, where: str) -> Prompt:
    """One line.

    Raises:
        UsageError: It is no prompt.
    """
    try:
        line = read_object(raw, where)
    except FindingError as error:
        raise UsageError(error.message, hint=_HINT, code="bad-prompts") from None
    given = [kind for kind in _KINDS if kind in line]
    if len(given) != 1:
        said = " and ".join(given) or "none of them"
        raise _bad(where, f"has to have one of {', '.join(_KINDS)}, and has {said}")
    name, value = given[0], line[given[0]]
    _check_most(line.get("max_tokens", 1), where)
    one = _id(line, where)
    if name == "messages":
        _check_messages(value, where)
        return Prompt(number, one, "messages", None, raw)
    if name == "prompt" and isinstance(value, str):
        _check_text(value, where, "prompt")
        return Prompt(number, one, "text", None, raw)
    return Prompt(number, one, "tokens", _tokens(value, where, name), raw)


def digest_of(tokens: Iterable[int]) -> str:
    """The sha256 of token ids, as the file of a sample has them: int64, little endian."""
    ids = array("q", tokens)
    if sys.byteorder == "big":
        ids.byteswap()
    return hashlib.sha256(ids.tobytes()).hexdigest()


def _lines(stream: BinaryIO, what: str) -> Iterator[tuple[int, bytes]]:
    line = 0
    while raw := stream.readline(LONGEST_LINE + 1):
        line += 1
        if len(raw) > LONGEST_LINE:
            raise _bad(f"{what}:{line}", f"is longer than {LONGEST_LINE} bytes")
        if line == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if raw := raw.strip(b" \t\r\n"):
            yield line, raw


def _id(line: Mapping[str, Any], where: str) -> str | None:
    one = line.get("id")
    if one is None:
        return None
    if type(one) is int and 0 <= one < 1 << 63:
        return str(one)
    if not isinstance(one, str) or not one or len(one) > _LONGEST_ID or not _encodes(one):
        raise _bad(where, f"has an id that is no text of 1 to {_LONGEST_ID} characters")
    return one


def _tokens(value: Any, where: str, name: str) -> Sequence[int]:
    if not isinstance(value, list) or not value:
        raise _bad(where, f"has a {name} without token ids")
    if len(value) > _MOST_IDS:
        raise _bad(where, f"has a {name} of {len(value)} token ids")
    for one in value:
        if type(one) is not int or not 0 <= one < _LARGEST_ID:
            raise _bad(where, f"has a {name} with {one!r:.40}, which is no token id")
    return array("q", value)


def _check_messages(value: Any, where: str) -> None:
    if not isinstance(value, list) or not 0 < len(value) <= _MOST_MESSAGES:
        raise _bad(where, "has messages that are no list of them")
    for message in value:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise _bad(where, "has a message without a role")
        _check_text(message["role"], where, "role")
        content = message.get("content")
        if content is None and message.get("tool_calls"):
            continue
        if isinstance(content, list):
            content = "".join(_part(part, where) for part in content)
        _check_text(content, where, "content")


def _part(part: Any, where: str) -> str:
    if not isinstance(part, dict) or part.get("type") != "text":
        kind = part.get("type") if isinstance(part, dict) else part
        raise _bad(where, f"has a message with {kind!r:.40}: only texts are collected")
    text = part.get("text")
    _check_text(text, where, "text")
    return str(text)


def _check_text(value: Any, where: str, name: str) -> None:
    if not isinstance(value, str) or not value:
        raise _bad(where, f"has a {name} that is no text")
    if not _encodes(value):
        raise _bad(where, f"has a {name} with half a character (a lone surrogate)")


def _check_most(value: Any, where: str) -> None:
    if type(value) is not int or not 0 < value <= _MOST_IDS:
        raise _bad(where, f"has max_tokens {value!r:.40}, which is no number of tokens")


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _bad(where: str, why: str) -> UsageError:
    return UsageError(f"{where} {why}", hint=_HINT, code="bad-prompts")
