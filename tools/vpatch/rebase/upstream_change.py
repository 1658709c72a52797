"""What upstream did to the lines that a patch conflicts over: which release, or commit, and how.

The lines are followed from the old release on, through each state of upstream that is at hand: a
release, or a commit of a clone. A state that changes them, or a line beside them, is told with the
lines of that change alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from vpatch.git import Git
from vpatch.patches.diff import Hunk, read_changes
from vpatch.rebase.model import Change, Conflicted, Rebased, RebasedPatch
from vpatch.rebase.touch import Point, Touch

_SHOWN = 8
_HEAD = b"diff --git a/file b/file\nindex 1..2 100644\n--- a/file\n+++ b/file\n"
_WHOLE = {
    "gone": "the file is not there any more",
    "exists": "there is such a file",
    "folder-gone": "its folder is not there any more",
    "folder-here": "a folder of this name is there",
    "file-above": "a file stands where its folder has to be",
}


@dataclass(frozen=True)
class Lines:
    """Lines of a file: from ``start`` on, up to and without ``end``; none where both are the same.

    Attributes:
        start: From 1.
    """

    start: int
    end: int


def history(git: Git, since: str, until: str, paths: Sequence[str]) -> tuple[Point, ...]:
    """The commits of a clone that touch files, the oldest first.

    Args:
        since: Where upstream was at the old release; empty where the clone ends there.
        until: Where it is.
    """
    options = ("--first-parent", "--reverse", "--topo-order", "--format=%H%x00%s")
    span = f"{since}..{until}" if since else until
    listed = git.output("log", *options, span, "--", *paths)
    pairs = (line.split("\0", 1) for line in listed.decode("utf-8", "replace").split("\n")[:-1])
    return tuple(Point(commit[:12], commit, title) for commit, title in pairs)


def conflicted_paths(rebased: Rebased) -> tuple[str, ...]:
    """The files that patches conflict over, by both their names."""
    conflicts = [each for patch in rebased.conflicts for each in patch.carried.conflicts]
    return tuple(dict.fromkeys(path for each in conflicts for path in (each.was, each.path)))


def with_touches(git: Git, rebased: Rebased, start: Point, points: Sequence[Point]) -> Rebased:
    """A rebase whose conflicts say what upstream did to their lines.

    Args:
        git: The repository in which it was carried; it gains objects.
        start: The old release.
        points: The states of upstream behind it, the oldest first, the new release last.

    Raises:
        HostError: git failed.
    """
    paths = conflicted_paths(rebased)
    if not paths:
        return rebased
    states = [_State(point, git.blob_ids(point.commit, paths)) for point in (start, *points)]
    return replace(
        rebased,
        patches=tuple(
            replace(patch, upstream=_touches(git, patch, states))
            if patch.verdict.word == "conflict"
            else patch
            for patch in rebased.patches
        ),
    )


@dataclass(frozen=True)
class _State:
    """Upstream at some point, and the ids of its files."""

    point: Point
    blobs: Mapping[str, str]

    def blob(self, conflict: Conflicted) -> str:
        return self.blobs.get(conflict.was) or self.blobs.get(conflict.path) or ""


def _touches(git: Git, patch: RebasedPatch, states: Sequence[_State]) -> tuple[Touch, ...]:
    changes = {change.was: change for change in patch.carried.changes}
    found: list[Touch] = []
    for conflict in patch.carried.conflicts:
        change = changes.get(conflict.was)
        if conflict.reason == "content" and change is not None:
            found += _of_lines(git, conflict, change, states)
        else:
            found += _of_file(conflict, states)
    when = {state.point: number for number, state in enumerate(states)}
    return tuple(sorted(found, key=lambda touch: when[touch.point]))


def _of_file(conflict: Conflicted, states: Sequence[_State]) -> Iterator[Touch]:
    """The first state in which the file is there, or not, or another one."""
    text = _WHOLE.get(conflict.reason)
    for before, state in pairwise(states):
        was, now = before.blob(conflict), state.blob(conflict)
        if (bool(was) != bool(now)) if text else (was != now):
            told = text or "the file is another one"
            yield Touch(conflict.path, 0, state.point, before.point.name, (told,))
            return


def _of_lines(
    git: Git, conflict: Conflicted, change: Change, states: Sequence[_State]
) -> Iterator[Touch]:
    """The states that change what the patch changes, each once for neighbouring lines."""
    ours = _hunks(git, _store(git, change.before), _store(git, change.release_before))
    places = [
        Lines(run.old, run.old + len(run.removed)) for run in (each.run for each in change.runs)
    ]
    lines = [moved(place, ours)[0] for place in places]
    blob = states[0].blob(conflict)
    for before, state in pairwise(states):
        now = state.blob(conflict)
        if now == blob or not now:
            continue
        hunks = _hunks(git, blob, now)
        followed = [moved(each, hunks) for each in lines]
        touched = {hunk.old_start: (hunk, place) for place, found in followed for hunk in found}
        for hunk, place in touched.values():
            yield Touch(conflict.path, place.start, state.point, before.point.name, *_told(hunk))
        lines, blob = [place for place, _ in followed], now


def _told(hunk: Hunk) -> tuple[tuple[str, ...], int]:
    shown = [f"{sign}{line.decode('utf-8', 'replace').rstrip()}" for sign, line in hunk.body]
    return tuple(shown[:_SHOWN]), max(len(shown) - _SHOWN, 0)


def moved(lines: Lines, hunks: Sequence[Hunk]) -> tuple[Lines, tuple[Hunk, ...]]:
    """Where lines are behind a diff without context, and the hunks that touch them.

    A hunk beside them counts: two changes side by side are a conflict as well.
    """
    start, end, shift = lines.start, lines.end, 0
    touching: list[Hunk] = []
    for hunk in hunks:
        # A side without lines is stated as the line before it.
        first = hunk.old_start + (hunk.old_lines == 0)
        last = first + hunk.old_lines
        grown = hunk.new_lines - hunk.old_lines
        if last < start:
            shift += grown
        elif first <= end:
            touching.append(hunk)
            start, end = min(start, first), max(end, last)
    inside = sum(hunk.new_lines - hunk.old_lines for hunk in touching)
    return Lines(start + shift, max(end + shift + inside, start + shift)), tuple(touching)


def _store(git: Git, data: bytes) -> str:
    return git.line("hash-object", "-w", "-t", "blob", "--stdin", stdin=data)


def _hunks(git: Git, before: str, after: str) -> tuple[Hunk, ...]:
    if not before or not after or before == after:
        return ()
    text = git.output("diff", "--no-color", "--no-ext-diff", "--text", "-U0", before, after)
    # git names the blobs; a reader of diffs wants one name.
    hunks = text[text.find(b"\n@@ ") + 1 :]
    changes = read_changes(after, _HEAD + hunks, 1)
    return tuple(hunk for change in changes for hunk in change.hunks)
