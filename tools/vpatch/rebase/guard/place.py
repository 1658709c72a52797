"""Does a patch do in the new tree what it did in the old one, in the same scopes?

Whatever a merge aligned with what: the lines that go and come in each scope have to be the same
ones, but for those that upstream has changed alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from vpatch.rebase.guard.change import ALREADY_NEARBY, NOT_APPLIED, SCOPE_CHANGED, Doubt
from vpatch.rebase.guard.corners import NOTHING, Corners, Lines
from vpatch.rebase.guard.identity import with_ancestors
from vpatch.rebase.guard.outline import Outline


@dataclass(frozen=True)
class _Rest:
    """What does not add up in a scope: lines that lack, and lines too many."""

    lacking: Lines  # should have come
    standing: Lines  # should have gone
    extra: Lines  # came
    lost: Lines  # went

    @property
    def adds_up(self) -> bool:
        return not (self.lacking or self.standing or self.extra or self.lost)


def misplaced(corners: Corners) -> Iterator[Doubt]:
    """Scopes in which the patch does something else than it did."""
    keys = dict.fromkeys([*corners.meant, *corners.made])
    rests = {key: _rest(corners, key) for key in keys}
    rests = {key: rest for key, rest in rests.items() if not rest.adds_up}
    explained: set[bytes] = set()
    for key, rest in rests.items():
        if rest.lacking or rest.standing:
            meant = corners.meant[key]
            explained.update(meant.added, meant.removed)
            yield _missing(corners, key, rest, rests)
    for key, rest in rests.items():
        stray = [line for line in (*rest.extra, *rest.lost) if line not in explained]
        if stray:
            yield _stray(corners, key, stray)


def moved(corners: Corners) -> Iterator[Doubt]:
    """Scopes that the patch changes, and that upstream has put into another class or function."""
    touched = (key for key in corners.made if key in corners.before.by_key)
    for key in dict.fromkeys(o for each in touched for o in with_ancestors(each, corners.before)):
        now = corners.upstream.by_key.get(corners.name(corners.upstream, key))
        parent = corners.before.by_key[key].parent
        if now is not None and corners.key(now.parent) != parent:
            place = corners.result.by_key.get(corners.name(corners.result, key))
            text = f"upstream moved {key} out of {_name(parent)}: it is {now.key} now"
            yield Doubt(SCOPE_CHANGED, key, place.start if place else 0, text)


def _stray(corners: Corners, key: str, stray: list[bytes]) -> Doubt:
    """Lines that came or went where the patch did not mean it."""
    where = _line(corners, key, stray)
    for origin, meant in corners.meant.items():
        gone = corners.name(corners.upstream, origin) not in corners.upstream.own
        if gone and any(line in meant.added or line in meant.removed for line in stray):
            text = f"the patch changed {origin}, which is gone, and this changes {_name(key)}"
            return Doubt(SCOPE_CHANGED, origin, where, f"{text}: {_shown(stray)}")
    text = f"this changes {_name(key)}, where the patch did not: {_shown(stray)}"
    return Doubt(SCOPE_CHANGED, key, where, text)


def _rest(corners: Corners, key: str) -> _Rest:
    meant, made = corners.meant.get(key, NOTHING), corners.made.get(key, NOTHING)
    lacking, standing = meant.added - made.added, meant.removed - made.removed
    if lacking or standing:
        before = Counter(corners.text(corners.before, key))
        upstream = Counter(corners.text(corners.upstream, key))
        lacking -= upstream - before
        standing -= before - upstream
    return _Rest(lacking, standing, made.added - meant.added, made.removed - meant.removed)


def _missing(corners: Corners, key: str, rest: _Rest, rests: dict[str, _Rest]) -> Doubt:
    lines = [*rest.lacking, *rest.standing]
    for other, their in rests.items():
        if other != key and (rest.lacking & their.extra or rest.standing & their.lost):
            where = _line(corners, other, [*their.extra, *their.lost])
            text = f"the patch changed {_name(key)}, and landed in {_name(other)}: {_shown(lines)}"
            return Doubt(SCOPE_CHANGED, key, where, text)
    found = _indented(corners, key, rest)
    if found:
        text = (
            f"{_name(key)} lacks a line of the patch ({_shown(lines)}), and has it at another "
            "indentation"
        )
        return Doubt(ALREADY_NEARBY, key, found, text)
    for other in corners.upstream.own:
        if rest.lacking and _has_since(corners, other, rest.lacking):
            where = _number(corners.upstream, other, next(iter(rest.lacking)))
            text = (
                f"the patch changed {_name(key)}, which lacks it; what stands there stands in "
                f"{_name(other)}: {_shown(lines)}"
            )
            return Doubt(SCOPE_CHANGED, key, where, text)
    where = _line(corners, key, [])
    gone = "" if corners.name(corners.result, key) in corners.result.own else ", which is gone"
    text = f"a change of {_name(key)}{gone} is neither made nor in upstream: {_shown(lines)}"
    return Doubt(NOT_APPLIED, key, where, text)


def _indented(corners: Corners, key: str, rest: _Rest) -> int:
    """Line of the result at which a lacking line stands at another indentation, or 0."""
    wanted = {line.strip() for line in rest.lacking}
    known = Counter(line.strip() for line in corners.text(corners.before, key))
    name = corners.name(corners.upstream, key)
    there = Counter(line.strip() for line in corners.upstream.texts.get(name, ()))
    fresh = [line for line in wanted if there[line] > known[line]]
    numbers = corners.upstream.own.get(name, [])
    return next((n for n in numbers if corners.upstream.lines[n - 1].strip() in fresh), 0)


def _has_since(corners: Corners, other: str, lines: Lines) -> bool:
    """Whether another scope of upstream has all of these lines."""
    return not lines - Counter(corners.upstream.texts[other])


def _line(corners: Corners, key: str, lines: list[bytes]) -> int:
    """Where a doubt about a scope points to in the result."""
    result = corners.result
    name = corners.name(result, key)
    for line in lines:
        number = _number(result, name, line)
        if number:
            return number
    scope = result.by_key.get(name)
    return scope.start if scope else 0


def _number(of: Outline, key: str, line: bytes) -> int:
    return next((n for n in of.own.get(key, ()) if of.lines[n - 1] == line), 0)


def _name(key: str) -> str:
    return key or "the file's top level"


def _shown(lines: list[bytes]) -> str:
    """All of them: who accepts a question accepts each."""
    said = [line.strip().decode("utf-8", "replace") for line in lines]
    return ", ".join(f"`{one}`" for one in said if one)
