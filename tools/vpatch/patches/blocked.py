"""What keeps a tree from having a file at some path: a folder there, or a file on the way to it."""

from __future__ import annotations

from dataclasses import replace

from vpatch.git import Git
from vpatch.patches.diff import FileChange
from vpatch.patches.place import Misfit, whole_file

FOLDER, FILE = "folder-exists", "file-above"


def blocked(git: Git, tree: str, change: FileChange) -> Misfit | None:
    """Why a tree has no place for the file that a change makes; None where it has.

    Args:
        tree: A tree's id.

    Raises:
        HostError: git failed.
    """
    path = change.path_new
    if path is None or path == change.path_old:
        return None
    parts = path.split("/")
    wanted = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    listed = git.output("ls-tree", "-z", "--full-tree", tree, "--", *wanted)
    for entry in listed.decode("utf-8", "surrogateescape").split("\0")[:-1]:
        meta, _, name = entry.partition("\t")
        is_folder = meta.split(" ")[1] == "tree"
        if name == path and is_folder:
            return whole_file(change, path, FOLDER)
        if name in wanted[:-1] and not is_folder:
            return replace(whole_file(change, path, FILE), standing=(name,))
    return None
