"""A fresh repository in which a release and its series are commits, for people to work in.

The commits are git's own: `git am` makes them, on a branch ``vpatch/TAG``. The folder has every
object that it needs, so it outlives the cache that it came from.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from vpatch.errors import FindingError, UsageError
from vpatch.files import disk_errors
from vpatch.git import Git
from vpatch.patches.apply import SET_ASIDE, Applied
from vpatch.patches.series import Series
from vpatch.patches.swap import making, tidy
from vpatch.scratch import scratch_folder


@dataclass(frozen=True)
class Worktree:
    """What was written.

    Attributes:
        branch: The checked-out branch: the base, then one commit per patch.
        base_ref: The ref that keeps the base, short enough to type: ``git log vpatch/base/TAG..``.
        head: The branch's commit.
    """

    folder: Path
    branch: str
    base_ref: str
    head: str
    tree: str


def write_worktree(
    git: Git, commit: str, applied: Applied, series: Series, folder: Path
) -> Worktree:
    """Writes a release with its series applied as a repository of its own.

    Args:
        git: The mirror.
        commit: The release's commit there.
        applied: What ``apply_series`` (or ``unpatched``) made of it.
        series: The patches; those that were set aside make no commit.
        folder: Where to; it must not exist, or be empty.

    Raises:
        UsageError: the folder holds something.
        FindingError: `git am` makes another tree than ``apply_series``.
        HostError: git failed, or the disk refused.
    """
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 - ".." goes, links stay
    tidy(folder)
    _check_vacant(folder)
    with making(folder) as scratch:
        made = fill_worktree(git, commit, applied, series, scratch / "new")
        _check_vacant(folder)
        made.folder.rename(folder)
    return replace(made, folder=folder)


def fill_worktree(
    git: Git, commit: str, applied: Applied, series: Series, folder: Path
) -> Worktree:
    """The same as `write_worktree` in a new folder that nobody else knows of; not all at once.

    Raises:
        FindingError: `git am` makes another tree than ``apply_series``.
        HostError: git failed, or the disk refused.
    """
    with disk_errors(folder):
        folder.mkdir()
        head = _fill(git, commit, applied, series, folder)
    return Worktree(
        folder=folder,
        branch=branch_name(applied.tag),
        base_ref=base_ref(applied.tag),
        head=head,
        tree=applied.tree,
    )


def _check_vacant(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(
            f"{folder} is not a folder",
            hint="Name a folder that does not exist.",
            code="not-vacant",
        )
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(
            f"{folder} is not empty, and nothing in it is going to be overwritten",
            hint="Name a folder that does not exist, or remove it.",
            code="not-vacant",
        )


def _fill(mirror: Git, commit: str, applied: Applied, series: Series, place: Path) -> str:
    git = Git(place / ".git", work_tree=place)
    git.run("init", "--quiet", "--template=", f"--initial-branch={branch_name(applied.tag)}")
    borrowed = _borrow(git, mirror)
    git.run("update-ref", f"refs/{base_ref(applied.tag)}", commit)
    git.run("update-ref", "HEAD", commit)
    git.run("reset", "--quiet", "--hard")
    _commit_patches(git, applied, series)
    head, tree = git.output("rev-parse", "HEAD", "HEAD^{tree}").decode().split()
    if tree != applied.tree:
        raise FindingError(
            f"git am makes {tree[:12]} of {applied.tag} where vpatch apply makes "
            f"{applied.tree[:12]}",
            hint="vpatch lint says which patch the tools read differently.",
            code="trees-differ",
        )
    git.run("update-ref", f"refs/{written_ref(applied.tag)}", head)
    _own(git, borrowed)
    return head


def _borrow(git: Git, mirror: Git) -> Path:
    """Lets the new repository read the mirror's objects for now."""
    alternates = git.git_dir / "objects" / "info" / "alternates"
    alternates.parent.mkdir(parents=True, exist_ok=True)
    alternates.write_bytes(os.fsencode(mirror.git_dir.resolve() / "objects") + b"\n")
    shallow = mirror.git_dir / "shallow"
    if shallow.is_file():
        shutil.copyfile(shallow, git.git_dir / "shallow")
    return alternates


def _own(git: Git, alternates: Path) -> None:
    """Copies everything that is reachable into the new repository, and lets go of the mirror."""
    # One snapshot has little to gain from new deltas; those that the mirror has are kept.
    git.run("repack", "-a", "-d", "-q", "--window=0")
    alternates.unlink()
    git.run("rev-list", "--objects", "--all", "--quiet")


def _commit_patches(git: Git, applied: Applied, series: Series) -> None:
    skipped = {patch.file for patch in applied.patches if patch.verdict == SET_ASIDE}
    chosen = [patch for patch in series.patches if patch.file not in skipped]
    if not (applied.patches and chosen):
        return
    with scratch_folder("am") as folder:
        mails = [folder / patch.file for patch in chosen]
        for mail, patch in zip(mails, chosen, strict=True):
            mail.write_bytes(patch.raw)
        git.run("am", "--quiet", "--committer-date-is-author-date", *map(str, mails))


def branch_name(tag: str) -> str:
    """The branch that has the series as commits."""
    return f"vpatch/{tag}"


def base_ref(tag: str) -> str:
    """The ref, below ``refs/``, of the release as it is."""
    return f"vpatch/base/{tag}"


def written_ref(tag: str) -> str:
    """The ref, below ``refs/``, of the branch as vpatch wrote it: nobody's work is in it."""
    return f"vpatch/written/{tag}"
