"""JSON from strangers: UTF-8, bounded, no name twice, no NaN, an object at the top."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from vpatch.errors import FindingError

_DEEPEST = 64


def read_object(raw: bytes, what: str) -> dict[str, Any]:
    """One JSON object.

    Args:
        raw: Its bytes; the caller bounds their number.
        what: Names it in errors.

    Raises:
        FindingError: It is none.
    """
    try:
        text = raw.decode("utf-8")  # json itself would take others, and a mark before it
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise bad(what, f"is no JSON ({_short(error)})") from None
    if not isinstance(found, dict):
        raise bad(what, f"is no JSON object, but {type(found).__name__}")
    if _deeper_than(found, _DEEPEST):
        raise bad(what, f"is nested deeper than {_DEEPEST} levels")
    return found


def bad(what: str, why: str) -> FindingError:
    """A checkpoint's file that is not what it has to be."""
    return FindingError(
        f"{what} {why}",
        hint="Download the checkpoint again: a file may be cut off, or a git-lfs pointer.",
        code="bad-checkpoint",
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice[:60]!r} is there twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _short(error: BaseException) -> str:
    return str(error)[:120] or type(error).__name__


def _deeper_than(value: object, levels: int) -> bool:
    waiting: list[tuple[object, int]] = [(value, 0)]
    while waiting:
        one, depth = waiting.pop()
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        if inner and depth >= levels:
            return True
        waiting.extend((each, depth + 1) for each in inner)
    return False
