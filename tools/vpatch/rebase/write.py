"""A carried series as a folder: verified on every source of its release, and pinned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vpatch.git import Git
from vpatch.patches.commits import read_commits
from vpatch.patches.export import Entry, NewSeries, export
from vpatch.patches.origin import Left, Origin
from vpatch.patches.pin import Pin
from vpatch.patches.rewrite import Birth, Rewritten, Wanted, verified
from vpatch.patches.series import LISTING, Series
from vpatch.patches.swap import Content
from vpatch.rebase.model import LEAVES, Rebased, RebasedPatch
from vpatch.upstream.mirror import Release

if TYPE_CHECKING:
    from vpatch.upstream.index import Artifact

# Patches that stay though they make no commit: the release's source has none of their files.
_STAYS = frozenset({"set-aside"})


def new_series(git: Git, old: Series, rebased: Rebased) -> NewSeries:
    """What the series of the new release is to be: unchanged patches keep their bytes.

    A patch is unchanged if it makes its commit, every hunk at its line, and its index lines name
    the new release's files. Else it is what git format-patch writes of the commit.

    Args:
        git: The repository in which it was carried.
        old: The series of the old release.
        rebased: Without conflicts.

    Raises:
        FindingsError: a carried patch does not survive as a mail.
        HostError: git failed.
    """
    commits = read_commits(git, rebased.base, rebased.head)
    without = [patch.file for patch in rebased.patches if not patch.carried.commit]
    made = export(git, old, commits, without)
    by_name = {entry.was: entry for entry in made.entries}
    entries: list[Entry] = []
    for patch in rebased.patches:
        entry = by_name.get(patch.file)
        if entry is None and patch.verdict.word in _STAYS:
            raw = patch.carried.patch.raw
            entry = Entry(patch.file, raw, patch.file, raw)
        if entry is not None:
            number = len(entries) + 1
            entries.append(replace(entry, file=f"{number:04d}-{entry.file.split('-', 1)[1]}"))
    gone = [patch.file for patch in rebased.patches if patch.verdict.word in LEAVES - _STAYS]
    return NewSeries(tuple(entries), tuple(gone))


def origin(old: Series, rebased: Rebased) -> Origin:
    """Where the new series comes from, for its pin."""
    gone = [patch for patch in rebased.patches if patch.verdict.word in LEAVES - _STAYS]
    return Origin(old.tag, old.sha256, tuple(_left(patch) for patch in gone))


def _left(patch: RebasedPatch) -> Left:
    return Left(
        patch=patch.file,
        subject=patch.carried.patch.subject,
        verdict=patch.verdict.word,
        why=patch.verdict.why,
        evidence=tuple(str(each) for each in patch.verdict.evidence),
    )


def written_out(
    git: Git,
    *,
    tag: str,
    old: Series,
    rebased: Rebased,
    folder: Path,
    before: Content,
    pin: Pin | None,
    releases: Sequence[Release],
    wheels: Sequence[Artifact],
) -> tuple[NewSeries, Rewritten]:
    """The new series, verified on every source of its release, with its pin.

    Args:
        git: The repository in which it was carried; it has the objects of the mirror.
        tag: The new release.
        old: The series of the old one.
        rebased: Without conflicts.
        folder: Where it is going to lie; it is not written.
        before: What the folder holds.
        pin: Its pin so far; None where it has none.
        releases: The release in every kind of source.
        wheels: Upstream's wheels.

    Raises:
        FindingsError: lint finds something, or a patch does not fit a source in place.
        PatchConflictError: a patch does not fit a source.
        FindingError: another tree comes out than the carried one.
        HostError: git failed, or the disk refused.
    """
    new = new_series(git, old, rebased)
    listing = (old.folder / LISTING).read_bytes()
    rewritten = verified(
        git,
        folder=folder,
        before=before,
        pin=pin,
        new=new,
        releases=releases,
        wanted=Wanted(rebased.base_tree, rebased.tree),
        birth=Birth(tag, listing, wheels, origin(old, rebased)),
    )
    return new, rewritten
