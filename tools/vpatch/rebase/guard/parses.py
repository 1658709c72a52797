"""Can the result still be read, where upstream's file and the old patched one can?"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping

from vpatch.rebase.guard.change import DOES_NOT_PARSE, Doubt
from vpatch.rebase.guard.outline import is_python
from vpatch.rebase.guard.pieces import Unreadable, pieces
from vpatch.rebase.guard.tables import complaint, fresh_pieces
from vpatch.rebase.model import Change

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def unreadable(change: Change) -> Iterator[Doubt]:
    """What is wrong with a result that does not parse."""
    if not change.result or change.result in (change.after, change.upstream):
        return
    wrong = _python(change) if is_python(change.path) else _other(change)
    if wrong:
        line, why = wrong
        yield Doubt(DOES_NOT_PARSE, "", line, f"the merged file does not parse: {why}")


def _python(change: Change) -> tuple[int, str] | None:
    """What is wrong with Python; nothing where one of its sides does not parse either."""
    try:
        fresh = list(fresh_pieces(change.result, b""))
    except Unreadable as error:
        sides = (change.after, change.upstream)
        return (error.line, error.why) if all(map(_parses, sides)) else None
    known = {
        piece.source
        for side in (change.after, change.upstream)
        if _parses(side)
        for piece in fresh_pieces(side, b"")
    }
    said = (complaint(piece) for piece in fresh if piece.source not in known)
    return next((wrong for wrong in said if wrong), None)


def _parses(data: bytes) -> bool:
    try:
        pieces(data)
    except Unreadable:
        return False
    return True


def _other(change: Change) -> tuple[int, str] | None:
    read = _READERS.get(change.path[change.path.rfind(".") :])
    wrong = read(change.result) if read else None
    if read is None or any(text and read(text) for text in (change.after, change.upstream)):
        return None
    return wrong


def _loaded(load: Callable[[str], object]) -> Callable[[bytes], tuple[int, str] | None]:
    def read(data: bytes) -> tuple[int, str] | None:
        try:
            load(data.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            return getattr(error, "lineno", 0), str(error)
        return None

    return read


_READERS: Mapping[str, Callable[[bytes], tuple[int, str] | None]] = {
    ".json": _loaded(json.loads),
    ".toml": _loaded(tomllib.loads),
}
