"""What a proof of a series depends on: the trees that its tests run in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace

from vpatch.git import Git
from vpatch.patches.apply import apply_series
from vpatch.patches.series import Series


def proof_key(git: Git, base_tree: str, series: Series, around: Iterable[str]) -> str:
    """A hash over the tree after every patch, the patches' names, and what is around them.

    Messages, positions, blob ids and lines of context are not in it: a patch that makes the same
    tree of the same tree proves the same.

    Args:
        git: The repository that holds the release; it gains blobs and trees.
        base_tree: The release without patches.
        series: The patches.
        around: What else a proof depends on, as text.

    Raises:
        PatchConflictError: a patch does not fit.
    """
    parts = [*around, base_tree]
    tree = base_tree
    for patch in series.patches:
        tree = apply_series(git, tree, replace(series, patches=(patch,))).tree
        parts += [patch.file, tree]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
