"""``vpatch blame``: which release breaks which patch of a pinned series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import Version

from vpatch import pipeline
from vpatch.errors import HostError, UsageError
from vpatch.patches.called import is_called, the_patch
from vpatch.patches.pin import PIN, Pin
from vpatch.patches.repo import pinned_tags, series_folder
from vpatch.patches.series import Series
from vpatch.pipeline import Upstream
from vpatch.rebase.blame import Blamed, Wanted, blame_all
from vpatch.rebase.rebase import Side
from vpatch.report import Report
from vpatch.tags import parse_tag, version_of
from vpatch.upstream.mirror import PROJECT, Mirror, Release
from vpatch.verbs.blame_report import report


@dataclass(frozen=True)
class Wish:
    """What is wanted.

    Attributes:
        patch: Only this one is shown: its file, or its number.
        source: ``--from``: the pinned release; None: every pinned series, on the pinned releases.
        target: ``--to``: the last release that is looked at; None: the newest one known.
        fetch: ``--fetch``: download what the mirror does not have.
        markdown: ``--markdown``: the report as Markdown.
    """

    patch: str | None = None
    source: str | None = None
    target: str | None = None
    fetch: bool = False
    markdown: bool = False


def run(repo: Path, upstream: Upstream, wish: Wish) -> Report:
    """Tries series on releases; nothing is written.

    Raises:
        UsageError: no such tag, pin or patch, or the two releases are in the wrong order.
        FindingError: a release is not the one that its pin names.
        ConflictError: a patch does not fit the release that it is made for.
        HostError: a release cannot be fetched.
    """
    found = blamed(repo, upstream, wish)
    return report(found, only=wish.patch, markdown=wish.markdown)


def blamed(repo: Path, upstream: Upstream, wish: Wish) -> tuple[Blamed, ...]:
    """The series, tried.

    Raises:
        As ``run``.
    """
    mirror = Mirror.open(upstream.cache)
    tags = pinned_tags(repo)
    sources = tags if wish.source is None else [parse_tag(wish.source)]
    last = parse_tag(wish.target) if wish.target else None
    if last and all(version_of(last) < version_of(tag) for tag in sources):
        raise UsageError(
            f"--to {last} is older than {sources[0]}",
            hint="blame looks at the releases behind the one that a series is made for.",
            code="wrong-order",
        )
    known = tags if wish.source is None else list(_known(mirror, upstream))
    wanted: list[Wanted] = []
    unseen: list[tuple[str, ...]] = []
    for tag in sources:
        between = _between(tag, last, known)
        releases = [
            _release(name, repo, mirror, upstream, wish.fetch or name == last) for name in between
        ]
        ready = pipeline.prepare(tag, repo, upstream, bare=True)
        own = _side(ready.release)
        _check_patch(wish.patch, [patch.file for patch in ready.series.patches], tag)
        targets = (own, *(_side(release) for release in releases if release is not None))
        wanted.append((_up_to(ready.series, wish.patch), own, targets))
        unseen.append(
            tuple(name for name, one in zip(between, releases, strict=True) if one is None)
        )
    done = blame_all([mirror.git.git_dir], wanted)
    return tuple(replace(one, unseen=missing) for one, missing in zip(done, unseen, strict=True))


def _between(tag: str, last: str | None, known: Sequence[str]) -> list[str]:
    """The releases behind one, up to another, the oldest first."""
    first = version_of(tag)
    end = version_of(last) if last else None
    names = {*known, *([last] if last else [])}
    versions = {name: version_of(name) for name in names}
    inside = (name for name, one in versions.items() if first < one and (not end or one <= end))
    return sorted(inside, key=lambda name: versions[name])


def _known(mirror: Mirror, upstream: Upstream) -> Iterator[str]:
    """The releases that exist: those of the index, and those that the mirror has."""
    for release in mirror.imported():
        yield release.tag
    from vpatch.upstream.index import Index  # noqa: PLC0415 - the network stack loads where it is used

    try:
        artifacts = Index.from_pip_config().releases(PROJECT)
    except HostError as error:
        upstream.progress.say(f"only releases of the mirror are looked at: {error.message}")
        return
    versions: set[Version] = {each.version for each in artifacts if not each.yanked}
    for version in versions:
        if not version.is_prerelease:
            yield f"v{version}"


def _release(
    tag: str, repo: Path, mirror: Mirror, upstream: Upstream, fetch: bool
) -> Release | None:
    """A release; None where the mirror does not have it, and nobody wants it fetched."""
    pin = _pin_of(repo, tag)
    # Pinned releases belong to the project, and the one at the end was asked for by name.
    if fetch or pin is not None:
        return pipeline.fetch(tag, upstream, pin)[1]
    return mirror.find(tag, "sdist") or mirror.find(tag)


def _side(release: Release) -> Side:
    return Side(release.tag, release.commit, release.kind)


def _pin_of(repo: Path, tag: str) -> Pin | None:
    path = series_folder(repo, tag) / PIN
    return Pin.read(path) if path.is_file() else None


def _up_to(series: Series, wanted: str | None) -> Series:
    """The series up to the patch that is wanted: those behind it do not matter to its verdict."""
    ends = (n for n, one in enumerate(series.patches, 1) if wanted and is_called(one.file, wanted))
    return replace(series, patches=series.patches[: next(ends, None)])


def _check_patch(wanted: str | None, names: Sequence[str], tag: str) -> None:
    if wanted is not None:
        the_patch(wanted, names, tag)
