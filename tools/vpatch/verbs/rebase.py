"""``vpatch rebase``: a series moves to another release, and every patch gets a verdict."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from vpatch import pipeline
from vpatch.errors import UsageError
from vpatch.git import Git
from vpatch.patches.called import the_patch
from vpatch.patches.export import is_ours
from vpatch.patches.pin import PIN, Pin
from vpatch.patches.repo import series_folder
from vpatch.patches.repository import find_repository, scratch_repository
from vpatch.patches.rewrite import write
from vpatch.patches.series import Series
from vpatch.patches.swap import replacing
from vpatch.pipeline import Upstream
from vpatch.rebase.model import Choices, Rebased
from vpatch.rebase.rangediff import range_diff
from vpatch.rebase.rebase import Means, Side, rebase
from vpatch.rebase.record import find_place, make_commits, take
from vpatch.rebase.resolutions import Resolutions
from vpatch.rebase.write import written_out
from vpatch.report import Report
from vpatch.tags import parse_tag
from vpatch.upstream.mirror import Mirror
from vpatch.upstream.urls import redact
from vpatch.verbs.pin import every_source, listed_wheels
from vpatch.verbs.rebase_asked import accepted, check_names, wholly_asked
from vpatch.verbs.rebase_onto import onto_commit
from vpatch.verbs.rebase_report import Written, report
from vpatch.verbs.rebase_upstream import looked


@dataclass(frozen=True)
class Wish:
    """What is wanted of a rebase.

    Attributes:
        accept: ``--accept``: names of questions that may stand.
        keep: ``--keep``: patches that do not leave as obsolete.
        dry_run: ``--dry-run``: write nothing.
        out: ``--out``: the folder for the series, in the place of ``patches/TO``.
        replace: ``--replace``: a series of TO that differs may go.
        commit: ``--commit``: commit it as well.
        markdown: ``--markdown``: the report as Markdown.
        resolutions: Without ``--no-resolutions``: what is stored of conflicts is used.
        worktree: ``--worktree``: where a conflict is resolved.
        between: ``--between``: download the releases between FROM and TO, to say which one is in
            the way of a patch.
        onto_git: ``--onto-git``: a revision of the repository of ``here`` in the place of TO.
        here: The current folder.
    """

    accept: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    dry_run: bool = False
    out: Path | None = None
    replace: bool = False
    commit: bool = False
    markdown: bool = False
    resolutions: bool = True
    worktree: Path | None = None
    between: bool = False
    onto_git: str | None = None
    here: Path = Path()


@dataclass(frozen=True)
class Ground:
    """Both ends of a rebase, in one repository of our own.

    Attributes:
        git: It borrows the objects of the mirror, and of the user's repository where that is asked.
        means: What a rebase may use.
    """

    git: Git
    pin: Pin
    series: Series
    source: Side
    target: Side
    means: Means


OnConflict = Callable[[Ground, Rebased, Resolutions], Report]


def run(
    source: str,
    target: str,
    repo: Path,
    upstream: Upstream,
    wish: Wish,
    on_conflict: OnConflict | None = None,
) -> Report:
    """Carries the series of one release to another, and writes it where nothing is in the way.

    Args:
        on_conflict: Takes over where a patch conflicts, unless it is a dry run.

    Raises:
        UsageError: no such tag, no pin for ``source``, or both are the same; another series is
            there already; options that do not go together.
        FindingError: a release is not the pinned one.
        ConflictError: the series does not fit the release that it is made for.
        HostError: git, network, disk.
    """
    _check(wish, upstream)
    upstream.progress.say(f"reading {source}, its series and {wish.onto_git or target}")
    with ground(source, target, repo, upstream, wish) as found:
        known = known_resolutions(repo, wish)
        keep = kept(found.series, wish)
        choices = Choices(accepted(found.series, wish.accept), keep=keep, recall=known.recall)
        ends = (found.source, found.target)
        rebased = rebase(found.git, found.series, *ends, choices, means=found.means)
        old = (found.git, found.series)
        rebased = wholly_asked(*old, rebased, found.source, found.means.kept)
        rebased = replace(rebased, kept=keep)
        check_names(rebased, found.series, wish.accept)
        rebased = looked(found.git, rebased, *ends, upstream, between=wish.between)
        if rebased.conflicts and on_conflict is not None and not wish.dry_run:
            return on_conflict(found, rebased, known)
        if rebased.exit_code or wish.dry_run:
            given = again(wish, upstream)
            return report(rebased, known=known, markdown=wish.markdown, given=given)
        written = write_out(found, rebased, repo, upstream, wish)
        return report(rebased, written, known=known, markdown=wish.markdown)


def again(wish: Wish, upstream: Upstream) -> str:
    """The options that the same command needs once more, without ``--dry-run`` of a release."""
    given: list[str] = []
    if wish.onto_git is not None:
        given += ["--dry-run", f"--onto-git={wish.onto_git}"]
    if upstream.git_url is not None:
        given.append(f"--upstream-git={redact(upstream.git_url)}")
    if upstream.kind is not None:
        given += ["--source", upstream.kind]
    if wish.out is not None:
        given.append(f"--out={wish.out}")
    flags = {"--replace": wish.replace, "--commit": wish.commit}
    flags["--no-resolutions"] = not wish.resolutions
    given += [flag for flag, there in flags.items() if there]
    return "".join(f" {shlex.quote(each)}" for each in given)


def known_resolutions(repo: Path, wish: Wish) -> Resolutions:
    """What is stored, unless nobody wants it.

    Raises:
        HostError: a file cannot be opened.
    """
    return Resolutions.read(repo) if wish.resolutions else Resolutions.none(repo)


def _check(wish: Wish, upstream: Upstream) -> None:
    for wrong, why in (
        (
            wish.onto_git is not None and not wish.dry_run,
            "--onto-git is for --dry-run: a pin needs a release",
        ),
        (
            wish.onto_git is not None and (upstream.git_url is not None or upstream.kind),
            "--onto-git is in the place of TO: --upstream-git and --source say where TO is from",
        ),
        (
            upstream.git_url is not None and upstream.kind,
            "--source is for the package index, and --upstream-git is a git remote",
        ),
        (wish.commit and (wish.out or wish.dry_run), "--commit is for patches/TO, written"),
    ):
        if wrong:
            raise UsageError(why, hint="vpatch rebase --help", code="usage")


def write_out(
    found: Ground, rebased: Rebased, repo: Path, upstream: Upstream, wish: Wish
) -> Written:
    """Verifies the new series and writes it, with its pin.

    Raises:
        As ``run``.
    """
    tag = rebased.target
    home = series_folder(repo, tag)
    folder = Path(os.path.abspath(wish.out)) if wish.out else home  # noqa: PTH100 - ".." goes
    place = find_place(folder) if wish.commit else None
    pin = _pin_of(repo, tag)
    releases = every_source(tag, upstream, pin)
    wheels = () if pin is not None and pin.wheels else listed_wheels(tag)
    with replacing(folder, on_wait=upstream.progress.say) as replacement:
        new, rewritten = written_out(
            found.git,
            tag=tag,
            old=found.series,
            rebased=rebased,
            folder=folder,
            before=replacement.before,
            pin=pin,
            releases=releases,
            wheels=wheels,
        )
        there = any(is_ours(name) for name in replacement.before)
        if there and rewritten.changed and not wish.replace:
            raise UsageError(
                f"{folder} holds another series already",
                hint="Write elsewhere with --out DIR and compare, or let it go with --replace.",
                code="series-exists",
            )
        commits: tuple[str, ...] = ()
        if place is not None and rewritten.pin.origin is not None and rewritten.changed:
            commits = make_commits(
                place, found.series, new, rewritten.pin.origin, tag, rewritten.files
            )
        write(replacement, rewritten)
        if place is not None and commits:
            ours = {name for name in replacement.before if is_ours(name)}
            take(place, commits, sorted({*ours, *rewritten.files}))
    start = found.source
    changes = range_diff(found.git, found.series, start.commit, start.kind, rebased)
    return Written(folder, rewritten, new, commits, changes, home)


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
        since = found.find(prepared.pin.commit) or ""
        end = Side(target, onto_commit(found, wish.onto_git, since, lenders), "git", since)
        lenders.append(found.common_dir)
    else:
        _, release = pipeline.fetch(target, upstream, _pin_of(repo, target))
        end = Side(target, release.commit, release.kind)
    with scratch_repository(*lenders) as git:
        means = Means(kept=upstream.cache, say=upstream.progress.say)
        yield Ground(git, prepared.pin, prepared.series, start, end, means)


def _pin_of(repo: Path, tag: str) -> Pin | None:
    path = series_folder(repo, tag) / PIN
    return Pin.read(path) if path.is_file() else None


def kept(series: Series, wish: Wish) -> tuple[str, ...]:
    """The patches that ``--keep`` names, by their files.

    Raises:
        UsageError: the series has no such patch.
    """
    names = [patch.file for patch in series.patches]
    return tuple(the_patch(name, names, series.tag, "--keep") for name in wish.keep)
