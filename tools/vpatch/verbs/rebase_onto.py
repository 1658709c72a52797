"""The commit that ``--onto-git`` names, and whether a clone has all of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vpatch.errors import HostError, UsageError
from vpatch.patches.repository import Repository, scratch_repository


def onto_commit(repository: Repository, revision: str, since: str, lenders: Sequence[Path]) -> str:
    """The commit to carry a series onto.

    Args:
        repository: A clone of upstream's.
        revision: What is given of it.
        since: Where upstream was at the old release; empty where the clone ends there.
        lenders: Other git directories that are read.

    Raises:
        UsageError: it is no commit.
        HostError: the clone is a partial one, and lacks files that have to be read.
    """
    where = repository.work_tree or repository.git_dir
    commit = repository.find(revision)
    if commit is None:
        hint = f"git -C {where} log --all shows those that it has; git fetch brings more."
        if (repository.common_dir / "shallow").is_file():
            hint = f"The clone is shallow: git -C {where} fetch --unshallow brings the rest."
        raise UsageError(
            f"--onto-git names {revision!r}, which is no commit of {where}",
            hint=hint,
            code="no-revision",
        )
    if any((repository.common_dir / "objects" / "pack").glob("*.promisor")):
        lacking = _lacking((repository.common_dir, *lenders), commit, since)
        if lacking:
            raise HostError(
                f"{where} is a partial clone: it lacks {lacking} of the files of {revision!r}",
                hint=f"Fetch them: git -C {where} fetch --refetch --no-filter",
                code="partial-clone",
            )
    return commit


def _lacking(lenders: Sequence[Path], commit: str, since: str) -> int:
    """How many objects of a commit, and of its history since another, are not there."""
    ranges = [("--no-walk", commit), *([(f"{since}..{commit}",)] if since else [])]
    lacking: set[bytes] = set()
    with scratch_repository(*lenders) as git:
        for each in ranges:
            listed = git.output("rev-list", "--objects", "--missing=print", *each)
            lacking.update(line for line in listed.split(b"\n") if line.startswith(b"?"))
    return len(lacking)
