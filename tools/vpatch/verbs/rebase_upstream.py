"""What upstream did to a conflict's lines, for ``vpatch rebase``: which states are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vpatch import pipeline
from vpatch.git import Git
from vpatch.pipeline import Upstream
from vpatch.rebase.model import Rebased
from vpatch.rebase.rebase import Side
from vpatch.rebase.touch import Point
from vpatch.rebase.upstream_change import conflicted_paths, history, with_touches
from vpatch.tags import is_tag, version_of
from vpatch.upstream.mirror import PROJECT, Mirror


def looked(
    git: Git, rebased: Rebased, source: Side, target: Side, upstream: Upstream, *, between: bool
) -> Rebased:
    """A rebase whose conflicts say which release, or commit, changed their lines.

    Args:
        git: The repository in which it was carried.
        source, target: Both ends.
        between: Download the releases between them, or the commits where the new one comes from a
            git remote; without it, the releases of the mirror count.

    Raises:
        HostError: git, or a release that cannot be fetched.
    """
    if not rebased.conflicts:
        return rebased
    start, end = (Point(side.name, side.commit) for side in (source, target))
    if target.since:
        # A clone: its own state at the old release, so that only what changed since is told.
        paths = conflicted_paths(rebased)
        points = history(git, target.since, target.commit, paths)
        return with_touches(git, rebased, Point(source.name, target.since), points)
    if between and upstream.git_url is not None:
        mirror = Mirror.open(upstream.cache)
        mirror.deepen(target.name, source.name, upstream.git_url, upstream.progress)
        points = history(mirror.git, "", target.commit, conflicted_paths(rebased))
        return with_touches(git, rebased, start, points)
    if not is_tag(target.name) or version_of(target.name) < version_of(source.name):
        return with_touches(git, rebased, start, [end])
    mirror = Mirror.open(upstream.cache)
    # A wheel has less than a release: what it lacks would look as if upstream had removed it.
    kinds = {"wheel"} if source.kind == "wheel" else {"git", "sdist"}
    known = {one.tag: one for one in mirror.imported() if one.kind in kinds}
    names = _inside(source.name, target.name, {*known, *(_listed() if between else ())})
    archives = replace(upstream, git_url=None, kind="wheel" if source.kind == "wheel" else "sdist")
    for name in (name for name in names if name not in known):
        known[name] = pipeline.fetch(name, archives, None)[1]
    points = tuple(Point(name, known[name].commit) for name in names)
    return with_touches(git, rebased, start, [*points, end])


def _inside(first: str, last: str, names: set[str]) -> list[str]:
    low, high = version_of(first), version_of(last)
    versions = {name: version_of(name) for name in names}
    inside = (name for name, version in versions.items() if low < version < high)
    return sorted(inside, key=lambda name: versions[name])


def _listed() -> Iterator[str]:
    from vpatch.upstream.index import Index  # noqa: PLC0415 - the network stack loads where it is used

    for artifact in Index.from_pip_config().releases(PROJECT):
        if not artifact.yanked and not artifact.version.is_prerelease:
            yield f"v{artifact.version}"
