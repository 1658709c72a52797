"""Which scope of a file is which scope of another version of it, whatever it is called there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from vpatch.rebase.guard.outline import Outline, Scope

# How much of a scope's lines must be there for it to be the same under another name.
_ALIKE = 0.7
# Shorter ones have to be the same.
_SHORT = 4


def renames(old: Outline, new: Outline, touched: Collection[str]) -> dict[str, str]:
    """Scopes that got another name, or moved into another scope.

    Args:
        old, new: The file before and after.
        touched: Keys of the old file's scopes that matter; what they stand in matters too.

    Returns:
        New key -> old key. Only where the old name is gone, the new one was not there before, no
        other new scope is like the old one, and no other old scope is so much like the new one.
    """
    found: dict[str, str] = {}
    wanted = {ancestor for key in touched for ancestor in with_ancestors(key, old)}
    gone = [each for each in old.scopes if each.key in wanted and each.key not in new.by_key]
    fresh = [each for each in new.scopes if each.key not in old.by_key]
    for scope in gone if fresh else ():
        if scope.key in {_as_new(each.key, found) for each in fresh}:
            continue  # it went along with the class around it
        best = _most_alike(scope, old, new, [each for each in fresh if each.key not in found])
        if best:
            found[best] = scope.key
    return found


def identity(key: str, renamed: Mapping[str, str]) -> str:
    """The old key of a new one: it, or what it stands in, may have been renamed."""
    return _as_new(key, renamed)


def _as_new(key: str, renamed: Mapping[str, str]) -> str:
    if key in renamed or not renamed:
        return renamed.get(key, key)
    parent, dot, name = key.rpartition(".")
    return f"{_as_new(parent, renamed)}.{name}" if dot else key


def with_ancestors(key: str, of: Outline) -> Iterable[str]:
    """A scope and all that it stands in."""
    while key:
        yield key
        scope = of.by_key.get(key)
        key = scope.parent if scope else ""


def _most_alike(scope: Scope, old: Outline, new: Outline, fresh: Sequence[Scope]) -> str:
    """The new scope that is this old one; empty where none is, or nobody can say which."""
    mine = _words(old.span(scope.key))
    scored = [
        (alike(mine, _words(new.span(each.key))), each.key)
        for each in fresh
        if each.kind == scope.kind
    ]
    scored.sort(reverse=True)
    score, key = scored[0] if scored else (0.0, "")
    enough = _ALIKE if mine.total() >= _SHORT else 1.0
    if score < enough or any(other >= enough for other, _ in scored[1:]):
        return ""
    copied = _words(new.span(key))
    rivals = [each for each in old.scopes if each.kind == scope.kind and each.key != scope.key]
    # A copy of another one, as far as anybody can tell.
    if any(alike(_words(old.span(each.key)), copied) >= score for each in rivals):
        return ""
    return key


def _words(lines: Sequence[bytes]) -> Counter[bytes]:
    """What a scope says, without the line that names it, and wherever it is indented."""
    body = [line.strip() for line in lines]
    named = next(
        (n for n, line in enumerate(body) if line.startswith((b"def ", b"class ", b"async def "))),
        0,
    )
    return Counter(line for n, line in enumerate(body) if line and n != named)


def alike(one: Counter[bytes], other: Counter[bytes]) -> float:
    """From 0 to 1: how many of both texts' lines they share."""
    total = one.total() + other.total()
    return 2 * (one & other).total() / total if total else 1.0
