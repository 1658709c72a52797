"""Gathers what `vpatch status` is made of: pins, series, gates, defects, stored reports."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import Version

from vpatch import pipeline
from vpatch.errors import ConflictError, FindingError, HostError, UsageError, VpatchError
from vpatch.patches.pin import Pin
from vpatch.patches.repo import pinned, pinned_tags
from vpatch.patches.series import Series
from vpatch.pipeline import Upstream
from vpatch.smoke.stored import FOLDER, StoredReport, read_reports
from vpatch.status.cell import Row
from vpatch.status.defects import Defect, of_release, read_defects, topics_of_tests
from vpatch.status.matrix import Facts, all_topics, make_row, untold
from vpatch.status.trees import gates_on
from vpatch.tags import parse_tag, version_of
from vpatch.upstream.mirror import Mirror

PROJECT = "vllm"
FIRST = Version("0.15.0")
"""The first release that has Kimi-K2.5."""


@dataclass(frozen=True)
class Wish:
    """What is asked.

    Attributes:
        tags: Only these releases; all where empty.
        reports: Where stored reports are; None: the repository's own folder.
        offline: Nothing is asked of the index, nothing is fetched.
    """

    tags: tuple[str, ...]
    reports: Path | None
    offline: bool


@dataclass(frozen=True)
class Status:
    """Releases x topics.

    Attributes:
        pinned: Newest first.
        unpinned: Those of which something is known.
        unseen: Releases without a pin that were not looked at.
        left: Defects that no series mends.
        notes: What could not be looked at.
    """

    topics: tuple[str, ...]
    pinned: tuple[Row, ...]
    unpinned: tuple[Row, ...]
    unseen: tuple[str, ...]
    reports: tuple[StoredReport, ...]
    left: tuple[Defect, ...]
    notes: tuple[str, ...]

    @property
    def broken(self) -> bool:
        """Whether a release with a pin is."""
        return any(row.broken for row in self.pinned)


@dataclass(frozen=True)
class _Known:
    """What all releases share."""

    upstream: Upstream
    repo: Path
    offline: bool
    series: Mapping[str, Series]
    tests: Mapping[str, Mapping[str, str]]
    defects: tuple[Defect, ...]
    reports: tuple[StoredReport, ...]


def collect(wish: Wish, repo: Path, upstream: Upstream) -> Status:
    """The status of a repository.

    Raises:
        UsageError: A tag is none, or there is no folder with reports.
        FindingError: A stored report or docs/defects.md is not what it has to be.
        HostError: The cache cannot be read or written.
    """
    tags = pinned_tags(repo)
    asked = [parse_tag(tag) for tag in wish.tags]
    reports = _reports(wish, repo)
    notes: list[str] = []
    read = {tag: _read(repo, tag) for tag in tags}
    pins = {tag: each[0] for tag, each in read.items() if not isinstance(each, str)}
    series = {tag: each[1] for tag, each in read.items() if not isinstance(each, str)}
    trouble = {tag: each for tag, each in read.items() if isinstance(each, str)}
    tests = {tag: topics_of_tests(one) for tag, one in series.items()}
    defects = read_defects(repo, tags)
    if not defects:
        notes.append("there is no docs/defects.md: what is needed is what gates say")
    known = _Known(upstream, repo, wish.offline, series, tests, defects, reports)
    facts = [
        _with_pin(known, pins[tag]) if tag in pins else Facts(tag, trouble=trouble[tag])
        for tag in tags
        if not asked or tag in asked
    ]
    others, unseen = _without_pin(known, tags, asked, notes)
    topics = all_topics([*facts, *others])
    notes += [f"{one.tag}: {one.why}" for one in (*facts, *others) if one.why]
    return Status(
        tuple(topics),
        tuple(make_row(one, topics) for one in reversed(facts)),
        tuple(make_row(one, topics) for one in reversed(others)),
        tuple(reversed(unseen)),
        reports,
        tuple(one for one in defects if one.left),
        tuple(notes),
    )


def _read(repo: Path, tag: str) -> tuple[Pin, Series] | str:
    """A pin and its series, or what is wrong with them."""
    try:
        return pinned(repo, tag)
    except FindingError as error:
        return error.message


def _reports(wish: Wish, repo: Path) -> tuple[StoredReport, ...]:
    if wish.reports is not None:
        return read_reports(wish.reports)
    own = repo / FOLDER
    return read_reports(own) if own.is_dir() else ()


def _with_pin(known: _Known, pin: Pin) -> Facts:
    tag, series = pin.tag, known.series[pin.tag]
    patches: dict[str, tuple[str, ...]] = {}
    for patch in series.patches:
        patches[patch.topic] = (*patches.get(patch.topic, ()), patch.subject)
    facts = Facts(
        tag,
        revision=pin.revision,
        series=series.sha256,
        patches=patches,
        defects=of_release(known.defects, tag, known.tests),
        reports=_of(known.reports, tag),
        carried=frozenset(series.topics),
    )
    git = Mirror.open(known.upstream.cache).git
    if known.offline and Mirror(known.upstream.cache).find(tag) is None:
        return replace(facts, why="it is not in the mirror: no gate was asked")
    try:
        prepared = pipeline.prepare(tag, known.repo, _quiet(known))
    except HostError as error:
        return replace(facts, why=f"no gate was asked: {error.message}")
    except (ConflictError, FindingError) as error:
        return replace(facts, trouble=error.message)
    kept = known.upstream.cache
    bare = gates_on(git, prepared.release.tree, tag, kept)
    patched = gates_on(git, prepared.applied.tree, tag, kept)
    return replace(facts, bare=bare, patched=patched, trouble=untold(patched))


def _quiet(known: _Known) -> Upstream:
    return replace(known.upstream, git_url=None)


def _of(reports: Sequence[StoredReport], tag: str) -> tuple[StoredReport, ...]:
    return tuple(one for one in reports if one.tag == tag)


def _without_pin(
    known: _Known, tags: Sequence[str], asked: Collection[str], notes: list[str]
) -> tuple[list[Facts], list[str]]:
    """Releases without a pin: those in the mirror, with their gates; and the names of others."""
    mirror = Mirror.open(known.upstream.cache)
    trees = {release.tag: release.tree for release in reversed(mirror.imported())}
    names = {tag for tag in trees if version_of(tag) >= FIRST}
    names |= _listed(known, asked, notes)
    names |= {one.tag for one in known.reports if version_of(one.tag) >= FIRST}
    others = sorted(names - set(tags), key=version_of)
    unknown = [tag for tag in asked if tag not in tags and tag not in others]
    if unknown:
        raise UsageError(
            f"nothing is known of {', '.join(unknown)}",
            hint=f"Import it with vpatch fetch {unknown[0]}; `vpatch releases` lists what exists.",
            code="unknown-tag",
        )
    found, unseen = [], []
    for tag in others:
        if asked and tag not in asked:
            continue
        reports = _of(known.reports, tag)
        if tag not in trees and not reports:
            unseen.append(tag)
            continue
        bare = gates_on(mirror.git, trees[tag], tag, known.upstream.cache) if tag in trees else None
        why = "" if bare else "it is not in the mirror: no gate was asked"
        carried = _nearest(known, tag)
        found.append(Facts(tag, bare=bare, why=why, reports=reports, carried=carried))
    return found, unseen


def _listed(known: _Known, asked: Collection[str], notes: list[str]) -> set[str]:
    """The releases that the index lists."""
    if known.offline or asked:
        if not asked:
            notes.append("the index was not asked: other releases may exist")
        return set()
    from vpatch.upstream.index import Index  # noqa: PLC0415 - the network stack loads where it is used

    try:
        artifacts = Index.from_pip_config().releases(PROJECT)
    except VpatchError as error:
        notes.append(f"the index could not be asked, other releases may exist: {error.message}")
        return set()
    versions = {one.version for one in artifacts if not one.yanked}
    return {f"v{each}" for each in versions if each >= FIRST and not each.is_prerelease}


def _nearest(known: _Known, tag: str) -> frozenset[str]:
    """The topics of the newest series that is not newer than a release; else of the oldest."""
    older = [name for name in known.series if version_of(name) <= version_of(tag)]
    of = known.series.get(max(older, key=version_of)) if older else None
    first = of or next(iter(known.series.values()), None)
    return frozenset(first.topics) if first else frozenset()
