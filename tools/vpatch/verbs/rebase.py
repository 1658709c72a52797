"""``vpatch rebase``: a series moves to another release, and every patch gets a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vpatch import pipeline
from vpatch.errors import UsageError
from vpatch.git import Git
from vpatch.patches.pin import PIN, Pin
from vpatch.patches.repo import series_folder
from vpatch.patches.repository import find_repository, scratch_repository
from vpatch.patches.series import Series
from vpatch.pipeline import Upstream
from vpatch.rebase.model import Choices, Rebased
from vpatch.rebase.rebase import Side, rebase
from vpatch.report import Report
from vpatch.tags import parse_tag
from vpatch.upstream.mirror import Mirror
from vpatch.verbs.rebase_report import report


@dataclass(frozen=True)
class Wish:
    """What is wanted of a rebase.

    Attributes:
        accept: ``--accept``: names of questions that may stand.
        dry_run: ``--dry-run``: write nothing.
        markdown: ``--markdown``: the report as Markdown.
        onto_git: ``--onto-git``: a revision of the repository of ``here`` in the place of TO.
        here: The current folder.
    """

    accept: tuple[str, ...] = ()
    dry_run: bool = False
    markdown: bool = False
    onto_git: str | None = None
    here: Path = Path()


@dataclass(frozen=True)
class Ground:
    """Both ends of a rebase, in one repository of our own.

    Attributes:
        git: It borrows the objects of the mirror, and of the user's repository where that is asked.
    """

    git: Git
    pin: Pin
    series: Series
    source: Side
    target: Side


def run(source: str, target: str, repo: Path, upstream: Upstream, wish: Wish) -> Report:
    """Carries the series of one release to another.

    Raises:
        UsageError: no such tag, no pin for ``source``, or both are the same.
        FindingError: a release is not the pinned one.
        ConflictError: the series does not fit the release that it is made for.
        HostError: git, network, disk.
    """
    with ground(source, target, repo, upstream, wish) as found:
        choices = Choices(accept=wish.accept)
        rebased = rebase(found.git, found.series, found.source, found.target, choices)
        _check_accepted(rebased, wish)
    return report(rebased, markdown=wish.markdown)


@contextmanager
def ground(
    source: str, target: str, repo: Path, upstream: Upstream, wish: Wish
) -> Iterator[Ground]:
    """Both releases, fetched where needed, in a repository that is gone afterwards.

    Raises:
        As ``run``.
    """
    source, target = parse_tag(source), parse_tag(target)
    if source == target and wish.onto_git is None:
        raise UsageError(
            f"{source} is rebased to itself",
            hint="Name the release that the series is to move to.",
            code="same-tag",
        )
    old = Upstream(upstream.cache, None, None, upstream.progress)
    prepared = pipeline.prepare(source, repo, old, bare=True)
    start = Side(source, prepared.release.commit, prepared.release.kind)
    lenders = [Mirror.open(upstream.cache).git.git_dir]
    if wish.onto_git is not None:
        found = find_repository(wish.here)
        if found is None:
            raise UsageError(
                f"--onto-git names {wish.onto_git!r}, and {wish.here} is in no repository",
                hint="Go to a clone of upstream's repository, and name the series with --repo DIR.",
                code="no-repository",
            )
        end = Side(wish.onto_git, found.resolve(wish.onto_git), "git")
        lenders.append(found.common_dir)
    else:
        _, release = pipeline.fetch(target, upstream, _pin_of(repo, target))
        end = Side(target, release.commit, release.kind)
    with scratch_repository(*lenders) as git:
        yield Ground(git, prepared.pin, prepared.series, start, end)


def _pin_of(repo: Path, tag: str) -> Pin | None:
    path = series_folder(repo, tag) / PIN
    return Pin.read(path) if path.is_file() else None


def _check_accepted(rebased: Rebased, wish: Wish) -> None:
    """A name that is no question is a mistake: it might be meant for another one."""
    asked = {question.name for patch in rebased.patches for question in patch.questions}
    wrong = [name for name in wish.accept if name not in asked]
    if wrong:
        raise UsageError(
            f"--accept names {wrong[0]!r}, which nothing asks",
            hint="`vpatch rebase FROM TO --dry-run` lists what is asked, with names.",
            code="nothing-to-accept",
        )
