"""A series on the release that it is made for: every file before and after every patch, exactly.

The lines of an exact series tell what each patch makes, without git. What is more than lines (a
binary diff, hunks at an offset) goes through `git apply`, on the files of that patch alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vpatch.git import Git
from vpatch.patches.apply import apply_series, is_set_aside
from vpatch.patches.diff import FileChange
from vpatch.patches.patch import Patch
from vpatch.patches.place import applied_in_place
from vpatch.patches.series import Series
from vpatch.rebase.model import Entry, Files
from vpatch.rebase.snapshot import Snapshot

_FILE = "100644"
_SUBMODULE = "160000"


@dataclass(frozen=True)
class Step:
    """One patch of the old series.

    Attributes:
        before, after: The files that it touches, before and after it.
        moves: new path -> old path, where the patch moves or copies a file.
        is_there: False where the old release, imported from its wheel, has none of its files:
            nobody can say what it makes.
    """

    patch: Patch
    before: Files
    after: Files
    moves: dict[str, str]
    is_there: bool = True


def read_steps(
    git: Git, base: Snapshot, series: Series, *, kind: str = "sdist"
) -> tuple[Step, ...]:
    """The series on its base.

    Args:
        git: A repository of our own; it gains objects where a patch is more than lines.
        base: The old release; it is the patched tree afterwards.
        kind: Kind of source that it came from.

    Raises:
        PatchConflictError: a patch does not fit the release that it is made for.
        HostError: git failed.
    """
    base.read_ahead(series.paths)
    return tuple(_step(git, base, series, patch, kind) for patch in series.patches)


def _step(git: Git, base: Snapshot, series: Series, patch: Patch, kind: str) -> Step:
    moves = {
        change.path_new: change.path_old
        for change in patch.files
        if change.kind in ("rename", "copy") and change.path_new and change.path_old
    }
    before: Files = {path: base.entry(path) for path in patch.paths}
    if kind == "wheel" and is_set_aside(patch):
        return Step(patch, before, before, moves, is_there=False)
    after = _by_lines(before, patch.files)
    if after is None:
        after = _by_git(git, before, patch)
    if after is None:
        # It says which line is in the way, and why.
        apply_series(git, base.tree, series, kind=kind)
        raise ValueError(f"{patch.file} fits {series.tag} in one way and not in another")
    base.update(after)
    return Step(patch, before, after, moves)


def _by_lines(before: Files, changes: Sequence[FileChange]) -> Files | None:
    """The files after a patch, told from its lines; None where they do not tell."""
    files = dict(before)
    for change in changes:
        if change.binary or _SUBMODULE in (change.mode_old, change.mode_new):
            return None
        old = files[change.path_old] if change.path_old is not None else None
        if (old is None) != (change.path_old is None):
            return None
        data = applied_in_place(old.data if old else b"", change)
        if data is None:
            return None
        if change.path_old is not None and change.kind != "copy":
            files[change.path_old] = None
        if change.path_new is None:
            if data:
                return None
        elif files[change.path_new] is not None:
            return None
        else:
            mode = change.mode_new or (old.mode if old else _FILE)
            files[change.path_new] = Entry(mode, data)
    return files


def _by_git(git: Git, before: Files, patch: Patch) -> Files | None:
    """The files after a patch, as `git apply` makes them; None where it refuses."""
    with git.temporary_index() as index:
        for path, entry in before.items():
            if entry is not None:
                blob = entry.id
                if entry.mode != _SUBMODULE:
                    blob = git.line("hash-object", "-w", "-t", "blob", "--stdin", stdin=entry.data)
                name = path.encode("utf-8", "surrogateescape")
                line = f"{entry.mode} {blob}\t".encode() + name + b"\0"
                index.run("update-index", "-z", "--index-info", stdin=line)
        if index.run("apply", "--cached", "-", stdin=patch.diff, ok=(0, 1)).status:
            return None
        tree = index.line("write-tree")
    made = Snapshot(git, tree)
    made.read_ahead(made.listed)
    return {path: made.entry(path) for path in patch.paths}
