"""What a series makes where every hunk stands at its line, told from the lines alone."""

from __future__ import annotations

from collections.abc import Sequence

from vpatch.git import Git
from vpatch.patches.patch import Patch
from vpatch.patches.place import applied_in_place


def contents_in_place(
    git: Git, base_tree: str, patches: Sequence[Patch]
) -> list[dict[str, bytes]] | None:
    """The files that each patch touches, as it leaves them.

    Args:
        git: A repository that has the base; git only reads from it.
        base_tree: Id of the tree that the first patch finds.
        patches: In order, each on what the ones before it leave.

    Returns:
        For each patch: path -> content. None where some hunk stands elsewhere, or a change is more
        than hunks (a rename, a mode, a binary file).

    Raises:
        HostError: git failed.
    """
    paths = dict.fromkeys(path for patch in patches for path in patch.paths)
    blobs = git.read_blobs(f"{base_tree}:{path}" for path in paths) if paths else {}
    there = {name.removeprefix(f"{base_tree}:"): data for name, data in blobs.items()}
    steps: list[dict[str, bytes]] = []
    for patch in patches:
        step: dict[str, bytes] = {}
        for change in patch.files:
            added = change.kind == "add"
            if change.binary or not change.hunks or not (added or change.kind == "modify"):
                return None
            if added == (change.path in there):
                return None
            data = applied_in_place(there.get(change.path, b""), change)
            if data is None:
                return None
            there[change.path] = step[change.path] = data
        steps.append(step)
    return steps
