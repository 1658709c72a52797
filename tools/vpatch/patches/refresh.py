"""One patch written anew on the tree before it: positions, blob ids, context, nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vpatch.git import Git
from vpatch.patches.apply import CLEAN, OFFSET, Applied, AppliedPatch, apply_series, is_set_aside
from vpatch.patches.called import the_patch
from vpatch.patches.commits import DIFF_OPTIONS
from vpatch.patches.export import Entry, NewSeries
from vpatch.patches.patch import Patch
from vpatch.patches.same import names_its_blobs, stale_places
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
    entries = [Entry(patch.file, patch.raw, patch.file, patch.raw) for patch in series.patches]
    verdicts: list[AppliedPatch] = []
    tree = base_tree

    def apply(begin: int, end: int) -> Applied:
        some = replace(series, patches=series.patches[begin:end])
        applied = apply_series(git, tree, some, kind=kind)
        verdicts.extend(applied.patches)
        return applied

    done = 0
    for number in _to_look_at(git, base_tree, series, place, kind):
        tree = apply(done, number).tree
        after = apply(number, number + 1)
        done, patch = number + 1, series.patches[number]
        if _is_to_renew(git, patch, after, named=number == place):
            entries[number] = replace(entries[number], raw=_fresh(git, patch, after))
        tree = after.tree
    tree = apply(done, len(series.patches)).tree
    return Refreshed(NewSeries(tuple(entries)), tuple(verdicts), tree)


def _to_look_at(git: Git, base_tree: str, series: Series, place: int, kind: str) -> list[int]:
    """The named patch and those behind it that may have to follow: few, where all is in place."""
    there = [
        number
        for number, patch in enumerate(series.patches)
        if kind != "wheel" or not is_set_aside(patch)
    ]
    stale = stale_places(git, base_tree, [series.patches[number] for number in there])
    if stale is None:
        return list(range(place, len(series.patches)))
    return [place, *(there[each] for each in sorted(stale) if there[each] > place)]


def _is_to_renew(git: Git, patch: Patch, applied: Applied, *, named: bool) -> bool:
    verdict = applied.patches[0].verdict
    if verdict == CLEAN:
        return named or not names_its_blobs(git, patch, applied.base_tree, applied.tree)
    return verdict == OFFSET


def _fresh(git: Git, patch: Patch, applied: Applied) -> bytes:
    diff = git.output("diff-tree", "-r", "-p", *DIFF_OPTIONS, applied.base_tree, applied.tree)
    return patch.raw[: len(patch.raw) - len(patch.diff)] + diff
