"""One patch written anew on the tree before it: positions, blob ids, context, nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vpatch.git import Git
from vpatch.patches.apply import CLEAN, OFFSET, Applied, AppliedPatch, apply_series
from vpatch.patches.called import the_patch
from vpatch.patches.commits import DIFF_OPTIONS
from vpatch.patches.export import Entry, NewSeries
from vpatch.patches.patch import Patch
from vpatch.patches.same import names_its_blobs
from vpatch.patches.series import Series


@dataclass(frozen=True)
class Refreshed:
    """The series with one patch refreshed, and those behind it that had to follow.

    Attributes:
        verdicts: How each patch stood before, in order.
        tree: What the series makes; refreshing changes nothing of it.
    """

    new: NewSeries
    verdicts: tuple[AppliedPatch, ...]
    tree: str


def refresh(git: Git, base_tree: str, series: Series, name: str, *, kind: str) -> Refreshed:
    """Refreshes a patch, and those behind it that are right no more.

    These fit only at an offset, or name blobs that are not there (``index`` lines).

    Args:
        git: A repository of our own with the base.
        base_tree: The release's tree.
        series: The series as it stands, which may not be the one that its pin names.
        name: The patch: its file's name, or its number.
        kind: The kind of source that the base comes from.

    Raises:
        UsageError: the series has no such patch.
        PatchConflictError: a patch does not fit.
        HostError: git failed.
    """
    names = [patch.file for patch in series.patches]
    place = names.index(the_patch(name, names, series.tag))
    before = apply_series(git, base_tree, _of(series, *series.patches[:place]), kind=kind)
    tree = before.tree
    verdicts = list(before.patches)
    entries = [Entry(patch.file, patch.raw, patch.file, patch.raw) for patch in series.patches]
    for number, patch in enumerate(series.patches[place:], start=place):
        applied = apply_series(git, tree, _of(series, patch), kind=kind)
        verdicts += applied.patches
        verdict = applied.patches[0].verdict
        named = number == place and verdict == CLEAN
        if verdict == OFFSET or named or _is_stale(git, patch, tree, applied):
            fresh = _fresh(git, patch, tree, applied.tree)
            entries[number] = replace(entries[number], raw=fresh)
        tree = applied.tree
    return Refreshed(NewSeries(tuple(entries)), tuple(verdicts), tree)


def _is_stale(git: Git, patch: Patch, before: str, applied: Applied) -> bool:
    if applied.patches[0].verdict != CLEAN:
        return False
    return not names_its_blobs(git, patch, before, applied.tree)


def _of(series: Series, *patches: Patch) -> Series:
    return replace(series, patches=patches)


def _fresh(git: Git, patch: Patch, before: str, after: str) -> bytes:
    diff = git.output("diff-tree", "-r", "-p", *DIFF_OPTIONS, before, after)
    return patch.raw[: len(patch.raw) - len(patch.diff)] + diff
