"""Files of a series that upstream moved between two releases."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from vpatch.git import Git
from vpatch.rebase.snapshot import Snapshot

# git's own measure of what is still the same file, and where a person should look at it.
_LEAST = 50
SURE = 80


@dataclass(frozen=True)
class Move:
    """A file that is not where it was.

    Attributes:
        alike: How much of it is the same, in percent, as git measures it; below ``SURE`` a person
            has to look whether it is the same file.
    """

    old: str
    new: str
    alike: int


def find_moves(
    git: Git, old: Snapshot, new: Snapshot, paths: Collection[str]
) -> Mapping[str, Move]:
    """Where the files went that the new release does not have any more.

    Only files that the old release does not have count as their new place: a file that merely
    looks alike, and was there before, is another one.

    Args:
        git: A repository of our own; it gains trees.
        paths: The files that are asked for.
    """
    missing = (path for path in paths if path in old.listed and path not in new.listed)
    return _found(git, old, new, tuple(missing))


@lru_cache(maxsize=1)
def _found(git: Git, old: Snapshot, new: Snapshot, missing: Sequence[str]) -> Mapping[str, Move]:
    """The same, asked once however often a series is carried between the two."""
    if not missing:
        return {}
    fresh = [path for path in new.listed if path not in old.listed]
    trees = (
        tree_of(git, {path: side.listed[path] for path in listed})
        for side, listed in ((old, missing), (new, fresh))
    )
    options = ("-r", "-z", "--raw", f"-M{_LEAST}%", "-l0", "--diff-filter=R")
    fields = git.output("diff-tree", *options, *trees).decode("utf-8", "surrogateescape")
    words = fields.split("\0")
    found = (
        Move(was, now, int(status.rpartition("R")[2]))
        for status, was, now in zip(words[0::3], words[1::3], words[2::3], strict=False)
    )
    return {move.old: move for move in found}


def tree_of(git: Git, files: Mapping[str, tuple[str, str]]) -> str:
    """A tree of some files: path -> mode and blob id."""
    lines = (f"{mode} {blob}\t{path}\0" for path, (mode, blob) in files.items())
    with git.temporary_index() as index:
        data = "".join(lines).encode("utf-8", "surrogateescape")
        index.run("update-index", "-z", "--index-info", stdin=data)
        return index.line("write-tree")
