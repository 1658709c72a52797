"""The last stage of every verb that rewrites a series: verify it in scratch, then swap it in."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vpatch.errors import FindingError
from vpatch.findings import Finding, FindingsError
from vpatch.git import Git
from vpatch.patches.apply import is_set_aside
from vpatch.patches.export import NewSeries, is_ours, series_files
from vpatch.patches.origin import Origin
from vpatch.patches.pin import PIN, Pin
from vpatch.patches.pinning import make_pin
from vpatch.patches.series import LISTING, Series, lint
from vpatch.patches.swap import Content, Replacement
from vpatch.scratch import scratch_folder
from vpatch.upstream.mirror import Release

if TYPE_CHECKING:
    from vpatch.upstream.index import Artifact


@dataclass(frozen=True)
class Rewritten:
    """A verified series, not yet written.

    Attributes:
        files: What vpatch writes in the folder: the patches, ``series``, ``pin.toml``.
        changed: Whether that differs from what the folder holds.
    """

    series: Series
    pin: Pin
    files: Mapping[str, bytes]
    changed: bool


@dataclass(frozen=True)
class Birth:
    """What a series that moves to another release brings along.

    Attributes:
        tag: The release.
        listing: The ``series`` file so far.
        wheels: Upstream's wheels.
        origin: Where the series comes from.
    """

    tag: str
    listing: bytes
    wheels: Sequence[Artifact]
    origin: Origin


@dataclass(frozen=True)
class Wanted:
    """What the patched release is to be.

    Attributes:
        base_tree: The tree that the new patches were made on.
        tree: What they make of it.
    """

    base_tree: str
    tree: str


def verified(
    git: Git,
    *,
    folder: Path,
    before: Content,
    pin: Pin | None,
    new: NewSeries,
    releases: Sequence[Release],
    wanted: Wanted,
    tolerated: Collection[str] = (),
    birth: Birth | None = None,
) -> Rewritten:
    """Reads a new series as any user would, applies it to every source, and makes its pin.

    Args:
        git: A repository of our own that has the objects of the mirror and of the branch.
        folder: ``patches/TAG``; it is not written.
        before: What it holds (``read_folder``).
        pin: Its pin so far; None only with ``birth``.
        new: What the series is to be.
        releases: The release in every kind of source that the pin has.
        wanted: What has to come out.
        tolerated: Codes of lint's findings that do not stand in the way.
        birth: Given where the series comes from another release.

    Raises:
        FindingsError: lint finds something, or a patch does not fit a source in place.
        PatchConflictError: a patch does not fit a source.
        FindingError: another tree comes out than the wanted one.
        HostError: git failed, or the disk refused.
    """
    if birth is None and pin is None:
        raise ValueError("a series that is not born has a pin")
    tag = birth.tag if birth else pin.tag if pin else ""
    files = series_files(birth.listing if birth else before[LISTING][2], new)
    series = _read_again(files, folder, tag, tolerated, birth)
    made = make_pin(
        git,
        series=series,
        releases=releases,
        wheels=birth.wheels if birth else (),
        previous=pin,
        origin=birth.origin if birth else None,
    )
    for release in releases:
        _check_tree(git, series, release, made.sources[release.kind].patched_tree, wanted)
    files[PIN] = made.to_toml()
    standing = {path: entry[2] for path, entry in before.items() if is_ours(path)}
    return Rewritten(series, made, files, changed=files != standing)


def write(replacement: Replacement, rewritten: Rewritten) -> None:
    """Swaps a verified series in, if it differs; what is not vpatch's is carried over.

    Raises:
        FindingError: somebody else changed the folder meanwhile.
        HostError: the disk refused; the old series stands.
    """
    if rewritten.changed:
        replacement.write(rewritten.files, ours=is_ours)


def _read_again(
    files: Mapping[str, bytes],
    folder: Path,
    tag: str,
    tolerated: Collection[str],
    birth: Birth | None,
) -> Series:
    with scratch_folder("series") as scratch:
        place = scratch / tag
        place.mkdir()
        for name, data in files.items():
            (place / name).write_bytes(data)
        found = [finding for finding in lint(place) if finding.code not in tolerated]
        findings = [_placed(finding, place, folder) for finding in found]
        if findings:
            where = (
                f"it in the series of {birth.origin.tag}, and rebase" if birth else "the commits"
            )
            raise FindingsError(findings, hint=f"Nothing was written. Change {where}.")
        return replace(Series.read(place, tag), folder=folder)


def _placed(finding: Finding, scratch: Path, folder: Path) -> Finding:
    return replace(finding, file=finding.file.replace(str(scratch), str(folder), 1))


def _check_tree(git: Git, series: Series, release: Release, tree: str, wanted: Wanted) -> None:
    """The source's patched tree is the wanted one, or at least every touched file is."""
    if release.tree == wanted.base_tree:
        wrong = [] if tree == wanted.tree else ["the tree"]
    else:
        there = [
            path
            for patch in series.patches
            if not (release.kind == "wheel" and is_set_aside(patch))
            for path in patch.paths
        ]
        have, want = (git.blob_ids(each, there) if there else {} for each in (tree, wanted.tree))
        wrong = [path for path in there if have.get(path) != want.get(path)]
    if wrong:
        raise FindingError(
            f"the new series makes another {release.kind} of {series.tag} than the branch: "
            f"{wrong[0]} differs",
            hint="Nothing was written. Report it, with the branch.",
            code="trees-differ",
        )
