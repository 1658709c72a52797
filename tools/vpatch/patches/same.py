"""Which commit is which patch of a series, and whether it still is that patch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

from vpatch.git import Git, blob_id
from vpatch.patches.apply import CLEAN, PatchConflictError, apply_series
from vpatch.patches.commits import Commit
from vpatch.patches.inplace import contents_in_place
from vpatch.patches.patch import Patch
from vpatch.patches.series import Series


def match(patches: Sequence[Patch], commits: Sequence[Commit]) -> dict[str, Patch]:
    """Which commit is which old patch: commit id -> patch, each used once.

    By the subject; what is left by the bytes of the diff; what is left then by what the diff does,
    whatever its line numbers and blob ids (``git patch-id --verbatim``).
    """
    keys: tuple[Callable[[Patch], str], ...] = (
        lambda patch: patch.subject,
        lambda patch: hashlib.sha256(patch.diff).hexdigest(),
        diff_id,
    )
    matched: dict[str, Patch] = {}
    left = list(patches)
    for key in keys:
        by_key: dict[str, list[Patch]] = {}
        for patch in left:
            by_key.setdefault(key(patch), []).append(patch)
        for commit in commits:
            if commit.id not in matched:
                same = by_key.get(key(commit.patch))
                if same:
                    matched[commit.id] = same.pop(0)
        left = [patch for group in by_key.values() for patch in group]
    return matched


def diff_id(patch: Patch) -> str:
    """A hash of what a diff does: files, modes and lines, not their numbers nor blob ids."""
    digest = hashlib.sha256()
    for change in patch.files:
        names = (change.kind, change.path_old, change.path_new, change.mode_old, change.mode_new)
        digest.update(repr((*names, change.blob_new if change.binary else "")).encode())
        for hunk in change.hunks:
            digest.update(repr(hunk.body).encode())
    return digest.hexdigest()


def makes(git: Git, old: Series, patch: Patch, commit: Commit) -> bool:
    """Whether an old patch makes exactly this commit, every hunk at its line.

    Its blob ids may be those of an earlier series.

    Args:
        git: A repository that has the commit.
        old: The series of the patch.

    Raises:
        HostError: git failed.
    """
    if patch.raw == commit.raw:
        return True
    if not commit.is_made_by(patch.mail):
        return False
    before = tree_before(git, commit)
    try:
        applied = apply_series(git, before, Series(old.tag, old.folder, (patch,)))
    except PatchConflictError:
        return False
    return applied.tree == commit.tree and applied.patches[0].verdict == CLEAN


def names_its_blobs(git: Git, patch: Patch, before: str, after: str) -> bool:
    """Whether a patch's index lines name the files of the trees before and after it.

    ``git am -3`` looks for its merge base by these ids: with those of an earlier series it finds
    none. A diff without an index line names nothing, and so nothing wrong.

    Args:
        git: A repository that has the trees.
        patch: It makes ``after`` of ``before``.

    Raises:
        HostError: git failed.
    """
    paths = patch.paths
    found, left = (git.blob_ids(tree, paths) if paths else {} for tree in (before, after))
    return _names(patch, found, left)


def stale_places(git: Git, base_tree: str, patches: Sequence[Patch]) -> set[int] | None:
    """Which of these patches name other blobs than they find and leave (their ``index`` lines).

    Returns:
        Their places among the patches; None where a hunk stands elsewhere, or a change is more
        than hunks.

    Raises:
        HostError: git failed.
    """
    steps = contents_in_place(git, base_tree, patches)
    if steps is None:
        return None
    paths = dict.fromkeys(path for step in steps for path in step)
    there = git.blob_ids(base_tree, paths) if paths else {}
    stale = set()
    for place, (patch, step) in enumerate(zip(patches, steps, strict=True)):
        made = {path: blob_id(data) for path, data in step.items()}
        if not _names(patch, there, made):
            stale.add(place)
        there.update(made)
    return stale


def _names(patch: Patch, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    found, left = _named_blobs(patch)
    return all(
        there.get(path, "").startswith(blob)
        for named, there in ((found, before), (left, after))
        for path, blob in named.items()
    )


def _named_blobs(patch: Patch) -> tuple[dict[str, str], dict[str, str]]:
    """The blob ids that a patch finds, and those that it leaves, by path."""
    found: dict[str, str] = {}
    left: dict[str, str] = {}
    for change in patch.files:
        # A second diff of a file starts from what the first one made.
        if change.path_old is not None and change.blob_old and change.path_old not in left:
            found.setdefault(change.path_old, change.blob_old)
        if change.path_new is not None and change.blob_new:
            left[change.path_new] = change.blob_new
    return found, left


def tree_before(git: Git, commit: Commit) -> str:
    """The tree that a commit changes.

    Raises:
        HostError: git failed.
    """
    return git.line("rev-parse", "--verify", f"{commit.parent}^{{tree}}")
