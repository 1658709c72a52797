"""Is the place inside its scope the right one, where its lines fit more than one?

Lines that stand once in a scope, before and now, are what a place is measured by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from vpatch.rebase.guard.change import AMBIGUOUS, Doubt
from vpatch.rebase.guard.corners import Corners
from vpatch.rebase.guard.outline import FILE, Outline
from vpatch.rebase.hunks import Placed, Run


def ambiguous(corners: Corners) -> Iterator[Doubt]:
    """Runs whose place in their scope is not the only one that they fit."""
    change = corners.change
    astray = change.before == change.upstream and change.after != change.result
    if astray and corners.meant == corners.made:
        # No merge is needed: the same lines in the same scopes, and not where they were.
        first = next((each.landed for each in change.runs if each.landed), None)
        text = "upstream has the file that the patch was made on, and this is another result"
        yield Doubt(AMBIGUOUS, FILE, first.new if first else 0, text)
    for placed in change.runs:
        landed = placed.landed
        key = _scope(corners.before, corners.after, placed.run)
        if landed is None or not corners.before.own.get(key):
            continue
        now = _scope(corners.upstream, corners.result, landed)
        if corners.key(now) != key:
            continue  # said already, or the same lines in a new scope
        why = _why(_Place(corners.before, key, placed.run), _Place(corners.upstream, now, landed))
        if why:
            yield Doubt(
                AMBIGUOUS, key, landed.new, f"{why}, in {key or 'the file'}: {_what(placed)}"
            )


class _Place:
    """Where a run stands among the lines of its scope; blank lines do not count.

    Attributes:
        lines: The scope's own lines.
        start, end: The run's removed lines among them.
    """

    def __init__(self, of: Outline, key: str, run: Run) -> None:
        numbers = [n for n in of.own[key] if of.lines[n - 1].strip()]
        self.lines = [of.lines[n - 1] for n in numbers]
        gone = range(run.old, run.old + len(run.removed))
        self.start = sum(n < gone.start for n in numbers)
        self.end = self.start + sum(n in gone for n in numbers)


def _why(was: _Place, now: _Place) -> str:
    """What speaks against a place; empty where nothing does."""
    if was.lines == now.lines:
        return "" if was.start == now.start else "it stands at another of several like places"
    once = _once(was.lines) & _once(now.lines)
    if any(line in once for line in was.lines[was.start : was.end]):
        return ""
    above, below = _around(was, once)
    first = now.lines.index(was.lines[above]) if above >= 0 else -1
    last = now.lines.index(was.lines[below]) if below < len(was.lines) else len(now.lines)
    if not (first < now.start and now.end <= last):
        return "what stood above it or below it stands on the other side of it now"
    before, after = was.lines[above + 1 : below], now.lines[first + 1 : last]
    if before == after:
        alike = was.start - above == now.start - first
        return "" if alike else "it stands at another of several like places"
    if (now.start == first + 1 and was.start == above + 1) or (
        now.end == last and was.end == below
    ):
        return ""
    return _several(was, now, (above, below), (first, last))


def _several(was: _Place, now: _Place, old: tuple[int, int], new: tuple[int, int]) -> str:
    wanted = was.lines[max(was.start - 1, old[0] + 1) : min(was.end + 1, old[1])]
    lead = was.start - max(was.start - 1, old[0] + 1)
    places_old = _places(was.lines, wanted, old)
    places_new = _places(now.lines, wanted, new)
    if len(places_old) == len(places_new):
        at = places_old.index(was.start - lead)
        return "" if places_new[at] == now.start - lead else "it stands at another of like places"
    if max(len(places_old), len(places_new)) <= 1:
        return ""
    return f"its lines fit {len(places_new)} places, and fitted {len(places_old)}"


def _places(lines: Sequence[bytes], wanted: Sequence[bytes], within: tuple[int, int]) -> list[int]:
    size = len(wanted)
    starts = range(within[0] + 1, within[1] - size + 1)
    return [n for n in starts if list(lines[n : n + size]) == list(wanted)]


def _around(place: _Place, once: set[bytes]) -> tuple[int, int]:
    """The nearest lines above and below a place that stand once."""
    above = next((n for n in range(place.start - 1, -1, -1) if place.lines[n] in once), -1)
    below = range(place.end, len(place.lines))
    return above, next((n for n in below if place.lines[n] in once), len(place.lines))


def _once(lines: Sequence[bytes]) -> set[bytes]:
    return {line for line, count in Counter(lines).items() if count == 1}


def _scope(old: Outline, new: Outline, run: Run) -> str:
    """The scope of the first line that a run changes and that is not blank."""
    for n, line in enumerate(run.removed, start=run.old):
        if line.strip():
            return old.at(n)
    for n, line in enumerate(run.added, start=run.new):
        if line.strip():
            return new.at(n)
    return old.at(run.old)


def _what(placed: Placed) -> str:
    lines = [line for line in (*placed.run.added, *placed.run.removed) if line.strip()]
    text = max(lines, key=lambda line: len(line.strip()), default=b"")
    return f"`{text.strip().decode('utf-8', 'replace')}`"
