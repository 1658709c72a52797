"""What upstream did to the files of a series, kept beside them from patch to patch.

Where a patch and upstream changed places of a file that an untouched line keeps apart, both changes
stand, and no merge has to be asked for: this is what a three-way merge does too. Upstream's changes
are told by git once, for all files, and move along as patches change the lines before them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vpatch.git import Git
from vpatch.patches.place import split_lines
from vpatch.rebase.hunks import Run
from vpatch.rebase.moves import tree_of
from vpatch.rebase.snapshot import Snapshot

_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)
_FILE = b"\ndiff --git "
_PLAIN = ("100644", "100755")
_OPTIONS = (
    "-r",
    "-p",
    "--unified=0",
    "--inter-hunk-context=0",
    "--diff-algorithm=myers",
    "--no-indent-heuristic",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--src-prefix=a/",
    "--dst-prefix=b/",
)


@dataclass(frozen=True)
class _Edit:
    """Lines of the old series' file, from 0, and what stands there in the new tree."""

    start: int
    end: int
    lines: tuple[bytes, ...]

    def moved(self, by: int) -> _Edit:
        return _Edit(self.start + by, self.end + by, self.lines)


class Lanes:
    """Upstream's changes of each file, in the coordinates of the old series' file as it is now."""

    def __init__(self, edits: Mapping[str, tuple[_Edit, ...]]) -> None:
        self._edits = dict(edits)

    def merged(
        self, path: str, base: bytes, ours: bytes, theirs: bytes, runs: Sequence[Run]
    ) -> bytes | None:
        """The file with both changes.

        Args:
            path: Its name in the old series.
            base, theirs: The file before and after a patch in the old series.
            ours: The file in the new tree so far.
            runs: What the patch does to it.

        Returns:
            None where the changes meet, or where the lane does not know this file as it is.
        """
        edits = self._edits.pop(path, None)
        if edits is None or not runs or _applied(base, edits) != ours:
            return None
        patch = [_Edit(run.old - 1, run.old - 1 + len(run.removed), run.added) for run in runs]
        if any(_meet(one, other) for one in edits for other in patch):
            return None
        shifted = tuple(edit.moved(_shift(edit, patch)) for edit in edits)
        result = _applied(theirs, shifted)
        self._edits[path] = shifted
        return result


def find_lanes(git: Git, old: Snapshot, new: Snapshot, places: Mapping[str, str]) -> Lanes:
    """What upstream did to files.

    Args:
        git: A repository of our own; it gains trees.
        places: A file's path in the old release -> its path in the new one.
    """
    plain = {
        was: path
        for was, path in places.items()
        if _is_plain(old, was) and _is_plain(new, path) and old.listed[was] != new.listed[path]
    }
    if not plain:
        return Lanes({})
    left = tree_of(git, {was: old.listed[was] for was in plain})
    right = tree_of(git, {was: new.listed[path] for was, path in plain.items()})
    names = sorted(plain, key=lambda name: name.encode("utf-8", "surrogateescape"))
    answer = b"\n" + git.output("diff-tree", *_OPTIONS, left, right)
    found: dict[str, tuple[_Edit, ...]] = {}
    texts = [text for text in answer.split(_FILE) if text.strip()]
    changed = [name for name in names if old.listed[name] != new.listed[plain[name]]]
    for name, text in zip(changed, texts, strict=True):
        entry = new.original(plain[name])
        lines = split_lines(entry.data) if entry else []
        found[name] = tuple(_edit(match, lines) for match in _HUNK.finditer(text))
    return Lanes(found)


def _is_plain(snapshot: Snapshot, path: str) -> bool:
    return path in snapshot.listed and snapshot.listed[path][0] in _PLAIN


def _edit(match: re.Match[bytes], new: Sequence[bytes]) -> _Edit:
    start, length, new_start, new_length = (
        int(number) if number is not None else 1 for number in match.groups()
    )
    # A side without lines is stated as the line before it.
    first = start - 1 if length else start
    new_first = new_start - 1 if new_length else new_start
    return _Edit(first, first + length, tuple(new[new_first : new_first + new_length]))


def _meet(one: _Edit, other: _Edit) -> bool:
    """Whether no untouched line keeps two changes apart."""
    return not (one.end < other.start or other.end < one.start)


def _shift(edit: _Edit, patch: Sequence[_Edit]) -> int:
    """How far a patch moves what stands behind its changes."""
    before = (each for each in patch if each.end < edit.start)
    return sum(len(each.lines) - (each.end - each.start) for each in before)


def _applied(text: bytes, edits: Sequence[_Edit]) -> bytes:
    lines = split_lines(text)
    out: list[bytes] = []
    position = 0
    for edit in edits:
        out += lines[position : edit.start]
        out += edit.lines
        position = edit.end
    out += lines[position:]
    return b"".join(out)
