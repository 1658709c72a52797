"""The three-way merge of one file: what the patch did to it, on what upstream made of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from vpatch.errors import HostError
from vpatch.git import Git
from vpatch.rebase.markers import with_theirs
from vpatch.rebase.model import Entry

# git merge-file ends with the number of conflicts, and with more than this where it fails.
_MOST_CONFLICTS = 127
_PLAIN = ("100644", "100755")

Side = TypeVar("Side", str, bytes)


@dataclass(frozen=True)
class Labels:
    """What the markers of a conflict are called."""

    ours: str
    base: str
    theirs: str


@dataclass(frozen=True)
class Merged:
    """A merged file, or why it is none.

    Attributes:
        entry: The file; None where there is none (deleted), or where it conflicts.
        conflict: Why it conflicts, as `Conflicted.reason`; empty where it does not.
        marked: The merge with markers, where lines conflict.
        theirs: The merge that takes the patch's lines where both sides changed the same ones: not
            a result, but what the patches behind it can be tried on.
    """

    entry: Entry | None
    conflict: str = ""
    marked: bytes = b""
    theirs: Entry | None = None


Known = dict[tuple[Entry, Entry, Entry, Labels], Merged]


class Merger:
    """Merges files, in a folder of its own, each three of them once.

    Args:
        git: Any repository.
        folder: A folder that nobody else uses.
        known: What was merged before; it gains what is merged now.
    """

    def __init__(self, git: Git, folder: Path, known: Known | None = None) -> None:
        self.git = git
        self.folder = folder
        self.known: Known = {} if known is None else known

    def merge(
        self, base: Entry | None, ours: Entry | None, theirs: Entry | None, labels: Labels
    ) -> Merged:
        """What a file becomes.

        Args:
            base, theirs: The file before and after the patch in the old series.
            ours: The file in the new tree so far.

        Raises:
            HostError: git failed, or the disk is full.
        """
        if theirs in (base, ours):
            return Merged(ours)
        if ours == base:
            return Merged(theirs)
        if base is None:
            return Merged(None, "exists")
        if ours is None:
            return Merged(None, "gone")
        if theirs is None:
            return Merged(None, "changed")
        asked = (base, ours, theirs, labels)
        if asked not in self.known:
            self.known[asked] = self._content(*asked)
        return self.known[asked]

    def _content(self, base: Entry, ours: Entry, theirs: Entry, labels: Labels) -> Merged:
        mode = _one_of(base.mode, ours.mode, theirs.mode)
        # What a link leads to is no text of a file that stands in its place.
        if mode is None or len({side.mode[:2] for side in (base, ours, theirs)}) > 1:
            return Merged(None, "mode")
        data = _one_of(base.data, ours.data, theirs.data)
        if data is not None:
            return Merged(Entry(mode, data))
        sides = (ours, base, theirs)
        if any(side.mode not in _PLAIN or b"\0" in side.data for side in sides):
            return Merged(None, "binary")
        status, text = self._lines(sides, labels, "--diff3")
        if not status:
            return Merged(Entry(mode, text))
        forced = with_theirs(text, (side.data for side in sides))
        if forced is None:
            _, forced = self._lines(sides, labels, "--theirs")
        return Merged(None, "content", text, Entry(mode, forced))

    def _lines(
        self, sides: tuple[Entry, Entry, Entry], labels: Labels, style: str
    ) -> tuple[int, bytes]:
        paths = [self.folder / name for name in ("ours", "base", "theirs")]
        try:
            for path, side in zip(paths, sides, strict=True):
                path.write_bytes(side.data)
        except OSError as error:
            raise HostError(
                f"{self.folder} cannot be written: {error.strerror}",
                hint="Free disk space, or point TMPDIR at a larger disk, and run it again.",
                code="disk",
            ) from error
        names = (labels.ours, labels.base, labels.theirs)
        options = [part for name in names for part in ("-L", name)]
        command = ("merge-file", "--stdout", style, *options, "--", *map(str, paths))
        output = self.git.run(*command, ok=range(_MOST_CONFLICTS + 1))
        return output.status, output.stdout


def _one_of(base: Side, ours: Side, theirs: Side) -> Side | None:
    """The side that alone changed something, or both where they agree; else None."""
    if theirs in (base, ours):
        return ours
    return theirs if ours == base else None
