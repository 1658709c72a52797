"""From a tag to its patched tree: pin, mirror, series, apply, and the pin's word on the result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vpatch.errors import FindingError, HostError, UsageError
from vpatch.patches.apply import Applied, apply_series, unpatched
from vpatch.patches.pin import Pin
from vpatch.patches.repo import pinned
from vpatch.patches.series import Series
from vpatch.progress import Progress
from vpatch.upstream.mirror import ArchiveKind, Mirror, Release


@dataclass(frozen=True)
class Prepared:
    """A release with its series applied, every tree checked against the pin.

    Attributes:
        pin: What the series is made for.
        series: The patches, in order.
        release: The release's commit in the mirror.
        applied: The trees before and after.
    """

    pin: Pin
    series: Series
    release: Release
    applied: Applied


@dataclass(frozen=True)
class Upstream:
    """Where releases come from in this run.

    Attributes:
        cache: The user's cache, with the mirror and the downloads.
        git_url: ``--upstream-git``: take tags from this remote instead of the package index.
        kind: ``--source``: only this kind of source.
        progress: Told about downloads and imports.
    """

    cache: Path
    git_url: str | None
    kind: ArchiveKind | None
    progress: Progress


def fetch(tag: str, upstream: Upstream, pin: Pin | None) -> tuple[Mirror, Release]:
    """Imports a release where the mirror does not have it yet.

    Args:
        pin: Where the release is pinned, its archives' hashes are demanded.

    Raises:
        HostError: network, disk, hash, hostile archive.
        UsageError: there is no such release.
    """
    mirror = Mirror.open(upstream.cache)
    if upstream.git_url is not None:
        release = mirror.fetch(tag, upstream_git=upstream.git_url, progress=upstream.progress)
        return mirror, release
    sources = pin.sources if pin else {}
    hashes = {kind: source.sha256 for kind, source in sources.items() if source.sha256}
    found = _already_there(mirror, tag, upstream, hashes)
    if found is not None:
        return mirror, found
    from vpatch.upstream.index import Index  # noqa: PLC0415 - the network stack loads where it is used

    release = mirror.fetch(
        tag,
        index=Index.from_pip_config(),
        kind=upstream.kind,
        sha256=hashes,
        progress=upstream.progress,
    )
    return mirror, release


def _already_there(
    mirror: Mirror, tag: str, upstream: Upstream, hashes: dict[str, str]
) -> Release | None:
    # Asking pip for its configuration costs more than all the rest of `vpatch apply`.
    try:
        return mirror.fetch(tag, kind=upstream.kind, sha256=hashes)
    except HostError as error:
        if error.code != "not-imported":
            raise
        return None


def prepare(tag: str, repo: Path, upstream: Upstream, *, bare: bool = False) -> Prepared:
    """The release, fetched where needed, with its series applied.

    Args:
        tag: A release with a pin.
        repo: The folder that holds ``patches/``.
        bare: ``--unpatched``: leave the series out.

    Raises:
        UsageError: no such tag, or no pin for it.
        FindingError: a tree is not the one that the pin names.
        ConflictError: a patch does not fit.
        HostError: the release cannot be fetched.
    """
    pin, series = pinned(repo, tag)
    return prepare_pinned(pin, series, upstream, bare=bare)


def prepare_pinned(pin: Pin, series: Series, upstream: Upstream, *, bare: bool = False) -> Prepared:
    """As ``prepare``, of a series that was read already.

    Raises:
        As ``prepare``.
    """
    mirror, release = fetch(pin.tag, upstream, pin)
    _check_tree(pin, release.kind, "base", release.tree)
    _check_blobs(pin, mirror, release)
    if bare:
        applied = unpatched(pin.tag, release.kind, release.tree)
    else:
        applied = apply_series(mirror.git, release.tree, series, kind=release.kind)
        _check_tree(pin, release.kind, "patched", applied.tree)
    return Prepared(pin=pin, series=series, release=release, applied=applied)


def fetch_sources(tag: str, upstream: Upstream, pin: Pin) -> tuple[Mirror, tuple[Release, ...]]:
    """The release in every kind of source that its pin has, each with the pinned tree.

    Raises:
        HostError: network, disk, hash, hostile archive.
        UsageError: the pin has a git source, and nobody says from where.
        FindingError: a tree is not the one that the pin names.
    """
    mirror = Mirror.open(upstream.cache)
    releases = tuple(_pinned_source(tag, upstream, pin, kind, mirror) for kind in pin.sources)
    for release in releases:
        _check_tree(pin, release.kind, "base", release.tree)
    return mirror, releases


def _pinned_source(tag: str, upstream: Upstream, pin: Pin, kind: str, mirror: Mirror) -> Release:
    if kind == "git":
        found = mirror.find(tag, "git") if upstream.git_url is None else None
        if found is None and upstream.git_url is None:
            raise UsageError(
                f"the pin of {tag} has a git source, which is not in the mirror",
                hint="Name upstream's repository with --upstream-git URL.",
                code="source-missing",
            )
        return found or fetch(tag, upstream, pin)[1]
    archive: ArchiveKind = "sdist" if kind == "sdist" else "wheel"
    return fetch(tag, Upstream(upstream.cache, None, archive, upstream.progress), pin)[1]


def _check_tree(pin: Pin, kind: str, which: str, tree: str) -> None:
    source = pin.sources.get(kind)
    if source is None:
        return  # a git remote has no pinned tree: _check_blobs has the word
    wanted = source.base_tree if which == "base" else source.patched_tree
    if tree != wanted:
        raise FindingError(
            f"the {which} tree of {pin.tag} ({kind}) is {tree[:12]}, its pin says {wanted[:12]}",
            hint=f"`vpatch pin {pin.tag} --check` says what differs; if the series changed on "
            f"purpose, `vpatch pin {pin.tag}` writes a new revision.",
            code="tree-mismatch",
        )


def _check_blobs(pin: Pin, mirror: Mirror, release: Release) -> None:
    if release.kind in pin.sources:
        return  # the tree was the pinned one
    blobs = mirror.git.blob_ids(release.tree, pin.blobs)
    wrong = [path for path, blob in pin.blobs.items() if blobs.get(path) != blob]
    if wrong:
        raise FindingError(
            f"{wrong[0]} of {pin.tag} ({release.kind}) is not the file that the series is made for"
            + (f", and {len(wrong) - 1} more are not" if wrong[1:] else ""),
            hint="Check that the remote has upstream's tag: vpatch fetch without --upstream-git "
            "takes the release from the package index.",
            code="blob-mismatch",
        )
