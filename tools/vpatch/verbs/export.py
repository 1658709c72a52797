"""``vpatch export``: commits become the series."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType

from vpatch import pipeline
from vpatch.errors import FindingError, UsageError
from vpatch.patches.base import Base, find_base
from vpatch.patches.called import is_called
from vpatch.patches.commits import Commit, read_commits
from vpatch.patches.export import KEPT, NewSeries, export
from vpatch.patches.repo import pinned, series_folder
from vpatch.patches.repository import Repository, find_repository, scratch_repository
from vpatch.patches.rewrite import Rewritten, Wanted, verified, write
from vpatch.patches.series import Series
from vpatch.patches.swap import Content, Replacement, leftovers, read_folder, replacing
from vpatch.pipeline import Upstream
from vpatch.report import Report, lines, plain, table

_SHOWN = 5


@dataclass(frozen=True)
class Wish:
    """What is exported, and how.

    Attributes:
        source: ``--from``: a worktree, or a revision of the repository of ``here``.
        here: The current folder.
        base: ``--base``.
        drop: ``--drop``: patches that may be lost.
        check: ``--check``: write nothing.
    """

    source: str
    here: Path
    base: str | None = None
    drop: tuple[str, ...] = ()
    check: bool = False


def run(tag: str, repo: Path, upstream: Upstream, wish: Wish) -> Report:
    """Computes, verifies and swaps in the series that a branch's commits are.

    Raises:
        UsageError: no pin, no such branch, no base, a --drop of nothing lost.
        FindingError: a dirty worktree, a base of another release, another tree.
        FindingsError: commits that do not survive, lost patches, lint.
        ConflictError: a patch does not fit a source.
        HostError: git, network, disk.
    """
    repository, revision = find_source(wish.source, wish.here)
    with series_for_writing(tag, repo, upstream, check=wish.check) as (before, replacement):
        pin, old = pinned(repo, tag)
        mirror, releases = pipeline.fetch_sources(pin.tag, upstream, pin)
        with scratch_repository(mirror.git.git_dir, repository.common_dir) as git:
            head = repository.resolve(revision)
            base = find_base(repository, git, pin, head, wish.base)
            commits = read_commits(git, base.commit, head)
            drop = [_file_of(name, old) for name in wish.drop]
            new = export(git, old, commits, drop, kind=base.kind)
            tree = commits[-1].tree if commits else base.tree
            rewritten = verified(
                git,
                folder=old.folder,
                before=before,
                pin=pin,
                new=new,
                releases=releases,
                wanted=Wanted(base.tree, tree),
            )
        if replacement is not None:
            write(replacement, rewritten)
    return _report(pin.revision, base, commits, new, rewritten, check=wish.check)


def _file_of(name: str, series: Series) -> str:
    """The file of the patch that a name or a number means; the name where there is none."""
    files = (patch.file for patch in series.patches)
    return next((file for file in files if is_called(file, name)), name)


@contextmanager
def series_for_writing(
    tag: str, repo: Path, upstream: Upstream, *, check: bool
) -> Iterator[tuple[Content, Replacement | None]]:
    """A series folder's content, and its lock unless nothing is going to be written.

    Raises:
        UsageError: not a tag, or no series of it.
        HostError: the folder cannot be read, or written where it has to be.
    """
    folder = series_folder(repo, tag)
    if not folder.is_dir() and not leftovers(folder):
        pinned(repo, tag)  # says what there is instead
    if check:
        yield read_folder(folder), None
        return
    with replacing(folder, on_wait=upstream.progress.say) as replacement:
        yield replacement.before, replacement


def find_source(source: str, here: Path) -> tuple[Repository, str]:
    """The repository and the revision that ``--from`` names.

    Raises:
        UsageError: it is neither a worktree nor a revision of the repository of ``here``.
        FindingError: the worktree has changes that are in no commit, or git is in the midst of
            something there.
        HostError: the repository cannot be read.
    """
    folder = here / source
    if source and folder.is_dir():
        worktree = find_repository(folder, upwards=False)
        if worktree is not None:
            check_settled(worktree)
            return worktree, "HEAD"
    repository = find_repository(here)
    if repository is None or repository.find(source) is None:
        where = f"the repository of {here}" if repository else f"{here}, which is in no repository"
        raise UsageError(
            f"--from names {source!r}, which is neither a git worktree nor a commit of {where}",
            hint="Name the folder that `vpatch apply --worktree` wrote, or a branch.",
            code="no-source",
        )
    return repository, source


def check_settled(repository: Repository) -> None:
    """Refuses a worktree whose HEAD is not all that its owner has in mind.

    Raises:
        FindingError: something is unfinished, or files are in no commit.
    """
    where = repository.work_tree or repository.git_dir
    unfinished = repository.unfinished()
    if unfinished is not None:
        raise FindingError(
            f"{where} is in the midst of {unfinished}",
            hint=f"git -C {where} status says how to finish or abort it.",
            code="unfinished",
        )
    changed = repository.changed_files()
    if changed:
        raise FindingError(
            f"{where} has changes that are in no commit: {named(changed)}",
            hint="Commit them, or name the branch instead of the folder: --from BRANCH.",
            code="uncommitted",
        )


def named(names: Sequence[str]) -> str:
    """The first few of some names, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def change_rows(rows: Collection[dict[str, str]]) -> list[tuple[str, str, str]]:
    """Rows of a table: what became of each patch that is not as it was."""
    return [
        (
            row["change"],
            row["file"] or row["was"],
            f"was {row['was']}" if row["was"] and row["file"] not in ("", row["was"]) else "",
        )
        for row in rows
        if row["change"] != KEPT
    ]


def summary(tag: str, before: int, rewritten: Rewritten, new: NewSeries, *, check: bool) -> str:
    """One line: how many of each, and the revision."""
    counts: dict[str, int] = {}
    for row in new.rows:
        counts[row["change"]] = counts.get(row["change"], 0) + 1
    told = ", ".join(f"{count} {change}" for change, count in counts.items()) or "no patches"
    after = rewritten.pin.revision
    revision = f"revision {after}" if after == before else f"revision {before} -> {after}"
    if not rewritten.changed:
        return f"{tag}: {told}; nothing changes, {revision}"
    return f"{tag}: {told}; {'would be ' if check else ''}{revision}"


def _report(
    before: int,
    base: Base,
    commits: Sequence[Commit],
    new: NewSeries,
    rewritten: Rewritten,
    *,
    check: bool,
) -> Report:
    tag = rewritten.pin.tag
    data = {
        "tag": tag,
        "base": {"commit": base.commit, "tree": base.tree, "kind": base.kind},
        "head": commits[-1].id if commits else base.commit,
        "changed": rewritten.changed,
        "written": rewritten.changed and not check,
        "revision": rewritten.pin.revision,
        "patches": list(new.rows),
    }
    shown = change_rows(new.rows)
    text: RenderableType = lines(
        table(("change", "patch", ""), shown) if shown else None,
        plain(summary(tag, before, rewritten, new, check=check)),
    )
    return Report("export", data, text, exit_code=1 if check and rewritten.changed else 0)
