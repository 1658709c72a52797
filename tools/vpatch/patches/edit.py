"""A worktree of a series for people to work in: written, recognized, and never thrown away."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vpatch.errors import FindingError, UsageError
from vpatch.findings import FindingsError
from vpatch.git import Git
from vpatch.patches.commit_object import CommitObject
from vpatch.patches.commits import Commit, read_commits
from vpatch.patches.repository import Repository, find_repository, scratch_repository
from vpatch.patches.same import makes, match
from vpatch.patches.series import Series
from vpatch.patches.swap import making, put_in_place
from vpatch.patches.worktree import base_ref, branch_name, written_ref

_SHOWN = 5
# What tools write by the thousand, and make again by themselves.
_CACHES = {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"}


@dataclass(frozen=True)
class State:
    """What a worktree of ours holds.

    Attributes:
        is_series: Its commits are the series, patch by patch, and nothing else is going on.
        unknown: What would be lost with it, a phrase each; empty where nothing would.
    """

    is_series: bool
    unknown: tuple[str, ...]


def look_at(folder: Path, series: Series) -> State | None:
    """What a folder holds, if it is a worktree of this series' tag.

    Returns:
        None where there is nothing, or an empty folder.

    Raises:
        UsageError: something else is there.
        HostError: git failed.
    """
    if not folder.is_symlink() and (
        not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    ):
        return None
    repository = find_repository(folder, upwards=False) if folder.is_dir() else None
    base = repository.find(f"refs/{base_ref(series.tag)}") if repository else None
    if repository is None or base is None or repository.work_tree is None or folder.is_symlink():
        raise UsageError(
            f"{folder} is no worktree of {series.tag}, and nothing in it is going to be touched",
            hint="Name a folder that does not exist: vpatch edit TAG DIR.",
            code="not-vacant",
        )
    commits = _commits(repository, base)
    known = _known(repository, series, commits)
    unknown = tuple(_unknown(repository, series.tag, base, known))
    same = commits is not None and len(known) == len(commits) == len(series.patches)
    head = repository.find("HEAD") == repository.find(f"refs/heads/{branch_name(series.tag)}")
    in_order = same and head and _in_order(series, commits or ())
    return State(is_series=in_order and not unknown, unknown=unknown)


def replace_worktree(folder: Path, check: Callable[[], bool], make: Callable[[Path], None]) -> bool:
    """Makes a new folder beside one, and gives it its place.

    Args:
        folder: The place; what is there is removed.
        check: Whether the new one is wanted still, asked at the last moment: another process may
            have made it meanwhile. Raises where the old one may not go.
        make: Fills the new folder, which does not exist yet.

    Returns:
        Whether the new folder stands there now.

    Raises:
        HostError: the disk refused; the old folder stands.
    """
    with making(folder) as scratch:
        fresh = scratch / "new"
        make(fresh)
        if not check():
            return False
        put_in_place(fresh, folder, scratch)
        return True


def _commits(repository: Repository, base: str) -> tuple[Commit, ...] | None:
    """The commits behind the base, if they are a line of commits that can be patches."""
    with scratch_repository(repository.common_dir) as git:
        try:
            return read_commits(git, base, repository.resolve("HEAD"))
        except (FindingsError, UsageError):
            return None


def _known(
    repository: Repository, series: Series, commits: tuple[Commit, ...] | None
) -> frozenset[str]:
    """The commits that the series has as patches, with their message, author, date and change."""
    if not commits:
        return frozenset()
    matched = match(series.patches, commits)
    with scratch_repository(repository.common_dir) as git:
        return frozenset(
            commit.id
            for commit in commits
            if commit.id in matched and makes(git, series, matched[commit.id], commit)
        )


def _in_order(series: Series, commits: tuple[Commit, ...]) -> bool:
    matched = match(series.patches, commits)
    files = [matched[commit.id].file for commit in commits if commit.id in matched]
    return files == [patch.file for patch in series.patches]


def _unknown(repository: Repository, tag: str, base: str, known: frozenset[str]) -> Iterator[str]:
    unfinished = repository.unfinished()
    if unfinished is not None:
        yield f"{unfinished} that is not finished"
    yield from (f"the file {path}" for path in unsaved_files(repository))
    own = {
        f"refs/heads/{branch_name(tag)}", f"refs/{base_ref(tag)}", f"refs/{written_ref(tag)}"
    }  # fmt: skip
    yield from kept_refs(Git(repository.git_dir), own)
    roots = [base, *filter(None, [repository.find(f"refs/{written_ref(tag)}")])]
    yield from lost_commits(repository, roots, known)


def lost_commits(
    repository: Repository, roots: Sequence[str], known: Collection[str] = ()
) -> Iterator[str]:
    """Commits that a repository has and that nobody else may have, a phrase each.

    Args:
        roots: Commits that are kept elsewhere, with all behind them.
        known: More of them, each alone.
    """
    git = Git(repository.git_dir)
    tips = ["--all", *filter(None, [repository.find("HEAD")])]
    listed = git.output("rev-list", *tips, "--not", *roots).decode("ascii").split()
    wanted = [commit for commit in listed if commit not in known]
    for commit, data in git.read_blobs(wanted).items():
        subject = CommitObject.parse(commit, data).subject
        yield f"commit {commit[:12]} ({subject[:60]!r})"


def unsaved_files(repository: Repository) -> Iterator[str]:
    """Files that are not as HEAD has them, whoever ignores them, and however they are hidden."""
    git = Git(repository.git_dir, work_tree=repository.work_tree)
    options = (
        "--porcelain",
        "-z",
        "--untracked-files=all",
        "--ignored=traditional",
        "--no-renames",
    )
    for entry in git.output("status", *options).split(b"\0"):
        path = entry[3:].decode("utf-8", "surrogateescape")
        if path and not (entry.startswith(b"!!") and is_cache(path)):
            yield path
    for entry in git.output("ls-files", "-v", "-z").split(b"\0"):
        if entry[:1].islower() or entry[:1] == b"S":
            path = entry[2:].decode("utf-8", "surrogateescape")
            yield f"{path}, which git is told not to look at"


def is_cache(path: str) -> bool:
    """Whether a file is one that tools make again by themselves."""
    return path.endswith(".pyc") or not _CACHES.isdisjoint(path.split("/"))


def kept_refs(git: Git, own: Collection[str]) -> Iterator[str]:
    """Stashes, other branches, tags, linked worktrees: somebody wanted to keep something.

    Args:
        own: Refs that do not count.
    """
    for ref in git.output("for-each-ref", "--format=%(refname)").decode("utf-8", "replace").split():
        if ref == "refs/stash":
            yield "a stash"
        elif ref not in own:
            yield f"the ref {ref.removeprefix('refs/heads/')}"
    worktrees = git.git_dir / "worktrees"
    if worktrees.is_dir():
        yield from (f"the linked worktree {path.name}" for path in sorted(worktrees.iterdir()))


def refused(folder: Path, tag: str, unknown: tuple[str, ...]) -> FindingError:
    """Why a worktree stays as it is."""
    if not unknown:
        return FindingError(
            f"{folder} holds another state of the series of {tag}, with nothing of its own",
            hint="--discard writes it anew.",
            code="other-state",
        )
    more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
    return FindingError(
        f"{folder} holds what the series of {tag} does not have: "
        f"{', '.join(unknown[:_SHOWN])}{more}",
        hint=f"Take commits into the series with vpatch export {tag} --from {folder}, or go on "
        "working there; what is to go, remove yourself.",
        code="unknown-work",
    )
