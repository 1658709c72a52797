"""How the patches themselves changed on their way: git's range-diff of the old line and the new."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vpatch.git import Git
from vpatch.patches.series import Series
from vpatch.rebase.commits import Made, make_commits
from vpatch.rebase.model import Rebased
from vpatch.rebase.snapshot import Snapshot
from vpatch.rebase.steps import read_steps

_OPTIONS = ("--no-color", "--no-dual-color", "--creation-factor=80", "--no-notes")
# A pair of commits, and whether they are the same; diffs stand below, further in.
_ROW = re.compile(r" {0,3}(?:-|\d+): +\S+ ([=!<>]) ")
_SAME = "="
_Line = tuple[str, str]


def range_diff(git: Git, old: Series, commit: str, kind: str, rebased: Rebased) -> str:
    """The range-diff, as git prints it.

    Args:
        git: The repository in which the series was carried; it gains objects.
        old: The series of the old release.
        commit, kind: That release.
        rebased: Without conflicts.

    Returns:
        Empty where neither side has a commit.
    """
    steps = [
        step
        for step in read_steps(git, Snapshot(git, commit), old, kind=kind)
        if any(step.before.get(path) != entry for path, entry in step.after.items())
    ]
    line = make_commits(git, commit, [Made(step.patch, step.after) for step in steps], name="old")
    if not line and rebased.head == rebased.base:
        return ""
    before, after = (commit, (line or [commit])[-1]), (rebased.base, rebased.head)
    sides = (_range(before, after), _range(after, before))
    return git.output("range-diff", *_OPTIONS, *sides).decode("utf-8", "replace")


def _range(line: _Line, other: _Line) -> str:
    """The commits of a line. `A..A` is no range to git: none are told by the other line's ends."""
    start, end = line if line[0] != line[1] else other[::-1]
    return f"{start}..{end}"


def changed_rows(text: str) -> Iterator[str]:
    """The rows of pairs that are not the same, without the diffs below them."""
    for line in text.splitlines():
        match = _ROW.match(line)
        if match and match[1] != _SAME:
            yield line
