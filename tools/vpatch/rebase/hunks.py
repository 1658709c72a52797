"""What a patch takes out and puts in, run by run, and where each run landed.

A hunk may hold several runs of changed lines with unchanged lines between them; the runs are what a
merge keeps, moves or finds done already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vpatch.patches.diff import FileChange


@dataclass(frozen=True)
class Run:
    """Lines that go and lines that come at one place, without context.

    Attributes:
        hunk: Number of the hunk in its file's diff, from 1.
        old: Line of the file before, from 1, at which ``removed`` stands; where nothing is
            removed, the line in front of which ``added`` is put.
        new: The same in the file after.
        removed, added: Lines with their newlines; not both empty.
    """

    hunk: int
    old: int
    new: int
    removed: tuple[bytes, ...]
    added: tuple[bytes, ...]

    @property
    def changed(self) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """What it does, wherever it does it."""
        return self.removed, self.added


@dataclass(frozen=True)
class Placed:
    """A run of the old patch, and the run that it became.

    Attributes:
        run: From the file before the patch to the file after it, in the old series.
        landed: From the new tree's file so far to the result; None where the merge left nothing
            of it to do, or where it conflicts.
    """

    run: Run
    landed: Run | None


def runs_of(change: FileChange) -> tuple[Run, ...]:
    """The runs of a file's diff, in order."""
    return tuple(
        run
        for number, hunk in enumerate(change.hunks, start=1)
        for run in _runs(number, hunk.old_start, hunk.new_start, hunk.body)
    )


def _runs(
    number: int, old_start: int, new_start: int, body: Sequence[tuple[str, bytes]]
) -> list[Run]:
    # A side without lines is stated as the line before it: `@@ -0,0 +1,3 @@`.
    old = old_start + all(sign == "+" for sign, _ in body)
    new = new_start + all(sign == "-" for sign, _ in body)
    found: list[Run] = []
    removed: list[bytes] = []
    added: list[bytes] = []
    for sign, line in (*body, (" ", b"")):
        if sign == "-":
            removed.append(line)
        elif sign == "+":
            added.append(line)
        else:
            if removed or added:
                found.append(Run(number, old, new, tuple(removed), tuple(added)))
            old += len(removed) + 1
            new += len(added) + 1
            removed, added = [], []
    return found


def placed(old: Sequence[Run], new: Sequence[Run]) -> tuple[Placed, ...]:
    """Which run of the new diff each run of the old one became, both in order.

    A run that does the same is the same one; where a diff cuts a repetitive block elsewhere, the
    same lines in another turn count too. The longest common line of both is taken.
    """
    best = _longest_common([_turned(run) for run in old], [_turned(run) for run in new])
    partner = dict(best)
    return tuple(
        Placed(run, new[partner[number]] if number in partner else None)
        for number, run in enumerate(old)
    )


def _turned(run: Run) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    return tuple(sorted(run.removed)), tuple(sorted(run.added))


def _longest_common(one: Sequence[object], other: Sequence[object]) -> list[tuple[int, int]]:
    lengths = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i in range(len(one) - 1, -1, -1):
        for j in range(len(other) - 1, -1, -1):
            same = lengths[i + 1][j + 1] + 1 if one[i] == other[j] else 0
            lengths[i][j] = max(same, lengths[i + 1][j], lengths[i][j + 1])
    pairs: list[tuple[int, int]] = []
    i = j = 0
    while i < len(one) and j < len(other):
        if one[i] == other[j] and lengths[i][j] == lengths[i + 1][j + 1] + 1:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif lengths[i + 1][j] >= lengths[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs
