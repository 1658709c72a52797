"""Where a branch leaves the release that its patches are made for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vpatch.errors import FindingError, UsageError
from vpatch.git import Git
from vpatch.patches.commit_object import commit_name
from vpatch.patches.pin import Pin
from vpatch.patches.repository import Repository


@dataclass(frozen=True)
class Base:
    """The commit below the first patch.

    Attributes:
        kind: The kind of source whose pinned tree it has; ``git`` where only the files that the
            series touches are known to be the pinned ones.
    """

    commit: str
    tree: str
    kind: str


def find_base(repository: Repository, git: Git, pin: Pin, head: str, given: str | None) -> Base:
    """The base of a branch.

    In this order: ``given``; the ref that `vpatch apply --worktree` writes; the newest ancestor
    with a pinned tree; upstream's tag; the commit that the pin names. A commit that merely has
    the pinned blobs is not looked for: a new patch of other files could stand below it.

    Args:
        repository: Where revisions are looked up.
        git: A repository of our own with the objects.
        pin: What the release is known by.
        head: The branch's commit.
        given: ``--base``.

    Raises:
        UsageError: there is none, or ``given`` is no commit or no ancestor.
        FindingError: the base is not the pinned release.
    """
    if given is not None:
        commit = repository.resolve(given)
        if not _is_ancestor(git, commit, head):
            raise UsageError(
                f"--base names {given}, which is no ancestor of {commit_name(head)}",
                hint=f"git merge-base {given} {head[:12]} names one.",
                code="not-an-ancestor",
            )
        return checked_base(git, pin, commit)
    for commit in _candidates(repository, git, pin, head):
        if _is_ancestor(git, commit, head):
            return checked_base(git, pin, commit)
    raise UsageError(
        f"nothing says where {commit_name(head)} leaves {pin.tag}: no ancestor has its pinned tree",
        hint="Name the commit below the first patch with --base REV.",
        code="no-base",
    )


def checked_base(git: Git, pin: Pin, commit: str) -> Base:
    """A commit as a base, if it is the pinned release.

    Raises:
        FindingError: it has neither a pinned tree nor the pinned files.
    """
    tree = git.line("rev-parse", "--verify", f"{commit}^{{tree}}")
    for kind, source in pin.sources.items():
        if source.base_tree == tree:
            return Base(commit, tree, kind)
    blobs = git.blob_ids(tree, pin.blobs) if pin.blobs else {}
    wrong = [path for path, blob in pin.blobs.items() if blobs.get(path) != blob]
    if wrong or not pin.blobs:
        what = f"{wrong[0]} there is another file" if wrong else "its pin names no file"
        raise FindingError(
            f"{commit_name(commit)} is not {pin.tag}, as its pin has it: {what}",
            hint="Name the commit below the first patch with --base REV; a branch on another "
            "release has to be rebased first.",
            code="base-mismatch",
        )
    return Base(commit, tree, "git")


def _candidates(repository: Repository, git: Git, pin: Pin, head: str) -> Iterator[str]:
    written = repository.find(f"refs/vpatch/base/{pin.tag}")
    if written is not None:
        yield written
    trees = {source.base_tree for source in pin.sources.values()}
    listed = git.output("rev-list", "--first-parent", "--format=%H %T", head).decode("ascii")
    for line in listed.splitlines():
        commit, _, tree = line.partition(" ")
        if commit != "commit" and tree in trees:
            yield commit
            break
    for revision in (f"refs/tags/{pin.tag}", pin.commit):
        found = repository.find(revision)
        if found is not None:
            yield found


def _is_ancestor(git: Git, commit: str, head: str) -> bool:
    return git.run("merge-base", "--is-ancestor", commit, head, ok=(0, 1)).status == 0
