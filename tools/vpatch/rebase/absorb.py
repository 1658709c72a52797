"""Whether upstream has a change already: where its lines stand in the new release, run by run.

Lines alone prove nothing. What counts has to stand in the same class and function, beside a line
that it stood beside, as often as after the patch, and what the patch takes out has to be gone.
Lines that differ in blanks alone are a question to a person.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from vpatch.rebase.guard.outline import Outline, outline
from vpatch.rebase.hunks import Run
from vpatch.rebase.model import Change, Evidence
from vpatch.rebase.steps import Step

# That many lines that say something need no neighbour to be known by.
_KNOWN_ALONE = 3
_SHORT = 8
_AROUND = 2


@dataclass(frozen=True)
class Standing:
    """A run that upstream has.

    Attributes:
        line: Of the new release, from 1; 0 where the lines went together with their scope.
        blanks: Only if blanks do not count.
    """

    path: str
    line: int
    text: str
    blanks: bool = False

    @property
    def evidence(self) -> Evidence:
        """The line."""
        return Evidence(self.path, self.line, self.text)


def all_stands(step: Step, changes: Sequence[Change]) -> bool:
    """Whether upstream has everything that a patch does."""
    by_lines = {change.was for change in changes}
    plain = all(
        each.path in by_lines
        and each.kind in ("modify", "add")
        and (each.kind == "add" or each.mode_old == each.mode_new)
        for each in step.patch.files
    )
    runs = [(change, each.run) for change in changes for each in change.runs]
    found = (standing(change, run) for change, run in runs)
    return plain and bool(runs) and all(one is not None and not one.blanks for one in found)


def standing(change: Change, run: Run) -> Standing | None:
    """Where the new release has what a run does; None where it does not.

    Args:
        change: The file that the run is of.
        run: From ``change.before`` to ``change.after``.
    """
    if not change.release:
        return None
    there = _Place(change, run)
    if run.added:
        line = there.added()
        if line is not None:
            return Standing(change.path, line, _told(run.added))
        line = there.added_but_for_blanks()
        return Standing(change.path, line, _told(run.added), blanks=True) if line else None
    line = there.removed()
    return None if line is None else Standing(change.path, line, f"gone: {_told(run.removed)}")


class _Place:
    """A run, and the new release's file."""

    def __init__(self, change: Change, run: Run) -> None:
        self.run = run
        self.before = outline(change.was, change.before)
        self.after = outline(change.was, change.after)
        self.release = outline(change.path, change.release)

    def added(self) -> int | None:
        """The line at which the added lines stand in their scope, as they should."""
        lines, start = self.run.added, self.run.new - 1
        scopes = self.after.inner[start : start + len(lines)]
        places = list(_places(self.release, lines, scopes))
        wanted = len(list(_places(self.after, lines, scopes)))
        known = sum(bool(line.strip()) for line in lines) >= _KNOWN_ALONE
        # Which one of many alike is this one cannot be told.
        if len(places) < wanted or (len(places) > wanted and not known) or self._left_over():
            return None
        around = self._around(self.after, start, len(lines))
        for place in places:
            here = self._around(self.release, place, len(lines))
            same = [one == two for one, two in zip(around, here, strict=True)]
            # A line or two are known by what stands around them, on both sides.
            beside = (one[:1] == two[:1] for one, two in zip(around, here, strict=True))
            if all(same) or (known and any(beside)):
                return place + 1
        return None

    def removed(self) -> int | None:
        """The line behind the gap that the removed lines left; 0 where their scope went too."""
        if self._left_over():
            return None
        start = self.run.old - 1
        scopes = self.before.inner[start : start + len(self.run.removed)]
        if all(scope and scope not in self.release.by_key for scope in scopes):
            return 0
        around = self._around(self.after, self.run.new - 1, 0)
        if not all(around):
            return None
        below = around[1][0]
        for number, line in enumerate(self.release.lines):
            if line == below and self._around(self.release, number, 0) == around:
                return number + 1
        return None

    def _left_over(self) -> bool:
        """Whether the lines that the patch takes out still stand in their scope."""
        lines, start = self.run.removed, self.run.old - 1
        if not any(line.strip() for line in lines):
            return False
        scopes = self.before.inner[start : start + len(lines)]
        now = list(_places(self.release, lines, scopes))
        return len(now) > len(list(_places(self.after, lines, scopes)))

    @staticmethod
    def _around(of: Outline, start: int, count: int) -> tuple[list[bytes], list[bytes]]:
        """The nearest lines above and below that say something, the nearest first."""
        above = (line for line in reversed(of.lines[:start]) if line.strip())
        below = (line for line in of.lines[start + count :] if line.strip())
        return list(islice(above, _AROUND)), list(islice(below, _AROUND))

    def added_but_for_blanks(self) -> int | None:
        """The line at which the added lines stand, if blanks do not count."""
        wanted = [b"".join(line.split()) for line in self.run.added if line.strip()]
        if not wanted or len(b"".join(wanted)) < _SHORT:
            return None
        numbers, texts = _squeezed(self.release.lines)
        exact = tuple(line for line in self.run.added if line.strip())
        start = -1
        for _ in range(texts.count(wanted[0])):
            start = texts.index(wanted[0], start + 1)
            if texts[start : start + len(wanted)] == wanted:
                first = numbers[start]
                there = self.release.lines[first - 1 : first - 1 + len(self.run.added)]
                if tuple(line for line in there if line.strip()) != exact:
                    return first
        return None


@lru_cache(maxsize=64)
def _squeezed(lines: tuple[bytes, ...]) -> tuple[list[int], list[bytes]]:
    """The lines that say something without their blanks: their numbers, and what they say."""
    said = [(n, b"".join(line.split())) for n, line in enumerate(lines, start=1) if line.strip()]
    return [number for number, _ in said], [text for _, text in said]


def _places(of: Outline, lines: Sequence[bytes], scopes: Sequence[str]) -> Iterator[int]:
    """Where lines stand, one behind the other, each in its scope; from 0."""
    wanted, length = tuple(lines), len(lines)
    for start in range(len(of.lines) - length + 1):
        end = start + length
        if of.lines[start] != wanted[0] or of.lines[start:end] != wanted:
            continue
        if of.inner[start:end] == list(scopes):
            yield start


def _told(lines: Sequence[bytes]) -> str:
    first = next((line for line in lines if line.strip()), lines[0])
    more = f" (and {len(lines) - 1} more)" if lines[1:] else ""
    return first.decode("utf-8", "replace").strip() + more
