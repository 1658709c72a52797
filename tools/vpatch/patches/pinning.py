"""Making a pin from what was fetched, and checking a pin against it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vpatch.errors import FindingError, UsageError
from vpatch.findings import Finding, FindingsError
from vpatch.git import Git
from vpatch.patches.apply import OFFSET, Applied, apply_series
from vpatch.patches.origin import Origin
from vpatch.patches.pin import PIN, SCHEMA, Pin, PinnedWheel, Source
from vpatch.patches.repo import pin_findings
from vpatch.patches.series import Series
from vpatch.upstream.index import Artifact
from vpatch.upstream.mirror import Release


def make_pin(
    git: Git,
    *,
    series: Series,
    releases: Sequence[Release],
    wheels: Sequence[Artifact],
    previous: Pin | None = None,
    origin: Origin | None = None,
) -> Pin:
    """The pin of a series.

    Args:
        git: The mirror.
        releases: The release, once for each kind of source that the pin is to have.
        wheels: Upstream's wheels, one for each architecture; those of ``previous`` are kept.
        previous: The pin so far. Its revision is kept while the series' bytes are the same, and
            the next one is taken when they are not.
        origin: Where a rebase took the series from; by default what ``previous`` says.

    Raises:
        PatchConflictError: a patch does not fit one of the sources.
        FindingsError: a patch fits only at an offset, or the sources, or the wheels so far,
            disagree.
        UsageError: a kind of source that ``previous`` has is not given.
    """
    missing = set(previous.sources if previous else ()) - {release.kind for release in releases}
    if missing or not releases:
        kinds = ", ".join(sorted(missing)) or "release"
        raise UsageError(
            f"the pin of {series.tag} cannot be made without its {kinds} source",
            hint=f"vpatch fetch {series.tag}, with --upstream-git URL for git",
            code="source-missing",
        )
    commit = _commit(series.tag, releases)
    sources = [_measured(git, release, series, commit) for release in releases]
    pin = Pin(
        schema=SCHEMA,
        tag=series.tag,
        revision=_revision(series, previous),
        series_sha256=series.sha256,
        commit=commit,
        sources={source.kind: source.pinned for source in sources},
        blobs={path: blob for source in sources for path, blob in source.blobs.items()},
        wheels={**(previous.wheels if previous else {}), **_wheels(wheels)},
        origin=origin or (previous.origin if previous else None),
    )
    name = str(series.folder / PIN)
    known = [wheel for wheel in wheels if previous and wheel.arch in previous.wheels]
    findings = [
        *(finding for source in sources for finding in _source_findings(name, pin, source)),
        *(_wheel_findings(name, previous, known) if previous else ()),
    ]
    if findings:
        raise FindingsError(findings)
    return pin


def check_pin(
    git: Git,
    *,
    pin: Pin,
    series: Series,
    releases: Sequence[Release],
    wheels: Sequence[Artifact] = (),
) -> tuple[Finding, ...]:
    """What a pin says that is not so.

    Args:
        git: The mirror.
        releases: The release, once for each kind of source at hand.
        wheels: What the index lists; none where the index is not asked.

    Raises:
        PatchConflictError: a patch does not fit one of the sources.
    """
    name = str(series.folder / PIN)
    sources = [_measured(git, release, series, pin.commit) for release in releases]
    return (
        *pin_findings(pin, series),
        *(finding for source in sources for finding in _source_findings(name, pin, source)),
        *_blob_names_findings(name, pin, series, sources),
        *_wheel_findings(name, pin, wheels),
    )


@dataclass(frozen=True)
class _Measured:
    """What a source turns out to be."""

    kind: str
    pinned: Source
    blobs: dict[str, str]
    applied: Applied


def _measured(git: Git, release: Release, series: Series, pinned_commit: str) -> _Measured:
    applied = apply_series(git, release.tree, series, kind=release.kind)
    source = Source(
        file=release.filename or "",
        sha256=release.sha256 or "",
        commit=release.commit,
        base_tree=release.tree,
        patched_tree=applied.tree,
        upstream_commit=_other_commit(release, pinned_commit),
    )
    return _Measured(release.kind, source, _blob_ids(git, release.tree, series.paths), applied)


def _blob_ids(git: Git, tree: str, paths: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in git.output("ls-tree", "-r", "-z", tree, "--", *paths).split(b"\0")[:-1]:
        meta, _, path = entry.partition(b"\t")
        found[path.decode("utf-8", "surrogateescape")] = meta.split()[2].decode()
    return {path: found[path] for path in paths if path in found}


def _revision(series: Series, previous: Pin | None) -> int:
    if previous is None:
        return 1
    return previous.revision + (previous.series_sha256 != series.sha256)


def _commit(tag: str, releases: Sequence[Release]) -> str:
    """Upstream's commit in its longest form; the wheel's where sources are of different ones."""
    known = sorted(
        (release for release in releases if release.upstream_commit),
        key=lambda release: (release.kind == "wheel", len(release.upstream_commit or "")),
    )
    if not known:
        raise FindingError(
            f"no source of {tag} says which upstream commit it is",
            hint="Fetch it from git with --upstream-git URL as well.",
            code="no-commit",
        )
    first = known[-1].upstream_commit or ""
    same = (r.upstream_commit or "" for r in known if _is_same(r.upstream_commit or "", first))
    return max(same, key=len)


def _other_commit(release: Release, pinned: str) -> str:
    """The commit of a source that is not of the pin's: v0.26.0's sdist and wheels are of two."""
    commit = release.upstream_commit or ""
    return "" if _is_same(commit, pinned) else commit


def _is_same(one: str, other: str) -> bool:
    """Whether two commits, which may be short forms, can be the same; an unknown one can."""
    return one.startswith(other) or other.startswith(one)


def _wheels(wheels: Sequence[Artifact]) -> dict[str, PinnedWheel]:
    pinned: dict[str, PinnedWheel] = {}
    for wheel in wheels:
        if wheel.arch is None or wheel.sha256 is None or wheel.size is None:
            raise FindingError(
                f"{wheel.filename} cannot be pinned: the index does not state its sha256 and size",
                hint="Make pins with an index that has a JSON listing.",
                code="wheel-unknown",
            )
        pinned[wheel.arch] = PinnedWheel(wheel.filename, wheel.sha256, wheel.size)
    return pinned


def _source_findings(name: str, pin: Pin, source: _Measured) -> Iterator[Finding]:
    for patch in source.applied.patches:
        if patch.verdict == OFFSET:
            message = f"{patch.file} fits the {source.kind} source only at an offset: refresh it"
            yield Finding(name, None, "offset", message)
    pinned = pin.sources.get(source.kind)
    if pinned is None:
        yield Finding(name, None, "no-source", f"the pin has no source {source.kind}")
        return
    for key in ("file", "sha256", "commit", "upstream_commit", "base_tree", "patched_tree"):
        have, want = getattr(source.pinned, key), getattr(pinned, key)
        if have != want:
            message = f"`sources.{source.kind}.{key}` is {want}, and it turns out to be {have}"
            yield Finding(name, None, "source-differs", message)
    for path, blob in source.blobs.items():
        if pin.blobs.get(path) != blob:
            stated = pin.blobs.get(path, "not there")
            message = f"`blobs` has {stated} for {path}, and the {source.kind} source has {blob}"
            yield Finding(name, None, "blob-differs", message)


def _blob_names_findings(
    name: str, pin: Pin, series: Series, sources: Sequence[_Measured]
) -> Iterator[Finding]:
    """Blobs that no source at hand has, where all the sources of the pin are at hand."""
    complete = {source.kind for source in sources} >= set(pin.sources)
    present = {path for source in sources for path in source.blobs}
    for path in pin.blobs:
        if path not in series.paths or (complete and path not in present):
            message = f"`blobs` has {path}, which is no existing file that the series touches"
            yield Finding(name, None, "blob-unused", message)


def _wheel_findings(name: str, pin: Pin, wheels: Sequence[Artifact]) -> Iterator[Finding]:
    for wheel in wheels:
        pinned = pin.wheels.get(wheel.arch or "")
        if pinned is None:
            yield Finding(name, None, "no-wheel", f"the pin has no wheel for {wheel.arch}")
        elif (wheel.filename, wheel.sha256, wheel.size or pinned.size) != (
            pinned.file,
            pinned.sha256,
            pinned.size,
        ):
            message = (
                f"`wheels.{wheel.arch}` is {pinned.file} with sha256 {pinned.sha256}, "
                f"{pinned.size} bytes, and the index has {wheel.filename} with {wheel.sha256}, "
                f"{wheel.size} bytes"
            )
            yield Finding(name, None, "wheel-differs", message)
