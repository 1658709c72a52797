"""Can the result still be read, where upstream's file and the old patched one can?"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping

from vpatch.rebase.guard.change import DOES_NOT_PARSE, Doubt
from vpatch.rebase.guard.outline import is_python
from vpatch.rebase.guard.pieces import Unreadable, pieces
from vpatch.rebase.guard.tables import complaint
from vpatch.rebase.model import Change

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def unreadable(change: Change) -> Iterator[Doubt]:
    """What is wrong with a result that does not parse."""
    if not change.result or change.result in (change.after, change.upstream):
        return
    read = _READERS.get(change.path[change.path.rfind(".") :])
    if is_python(change.path):
        read = _python
    if read is None:
        return
    wrong = read(change.result)
    if wrong and not any(text and read(text) for text in (change.after, change.upstream)):
        line, why = wrong
        yield Doubt(DOES_NOT_PARSE, "", line, f"the merged file does not parse: {why}")


def _python(data: bytes) -> tuple[int, str] | None:
    try:
        parts = pieces(data)
    except Unreadable as error:
        return error.line, error.why
    return next((wrong for wrong in map(complaint, parts) if wrong), None)


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
