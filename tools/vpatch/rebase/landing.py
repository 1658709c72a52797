"""Where the hunks of a carried patch landed, and how: told from lines, not from git's word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vpatch.patches.diff import FileChange
from vpatch.patches.place import applied_in_place, split_lines
from vpatch.rebase.hunks import Placed, Run, placed, runs_of
from vpatch.rebase.model import Carried, Change, Entry, Files, How
from vpatch.rebase.snapshot import Snapshot
from vpatch.rebase.steps import Step


@dataclass(frozen=True)
class Ground:
    """What a patch stands on.

    Attributes:
        step: The patch in the old series.
        ours: Its files in the new tree before it, by their names there.
        moved: old path -> new path.
        old, new: Both releases.
    """

    step: Step
    ours: Files
    moved: Mapping[str, str]
    old: Snapshot
    new: Snapshot


def changes_on(ground: Ground, files: Files, made: Sequence[FileChange] = ()) -> tuple[Change, ...]:
    """What a patch does to each of its files with text.

    Args:
        files: The files after it, by their names in the new tree.
        made: The diff of its commit; nothing where it has none: then no run landed.
    """
    new = {change.path: change for change in made}
    return tuple(
        _change(ground, change, files, new)
        for change in ground.step.patch.files
        if change.hunks and not change.binary
    )


def finished(carried: Carried, ground: Ground, made: Sequence[FileChange]) -> Carried:
    """A carried patch with its changes, and with the word for how it was carried."""
    changes = changes_on(ground, carried.files, made)
    how = carried.how
    if how == "three-way":
        how = _how(ground.step, carried, ground.ours, changes)
    return replace(carried, how=how, changes=changes)


def _change(
    ground: Ground, change: FileChange, files: Files, new: Mapping[str, FileChange]
) -> Change:
    step, ours = ground.step, ground.ours
    was = change.path_old or change.path
    place = ground.moved.get(was, was)
    path = change.path if change.path in step.moves else ground.moved.get(was, change.path)
    return Change(
        path=path,
        was=change.path,
        before=_data(step.before.get(was)) if change.path_old else b"",
        after=_data(step.after.get(change.path)) if change.path_new else b"",
        upstream=_data(ours.get(place)),
        result=_data(files[path] if path in files else ours.get(path)),
        runs=placed(runs_of(change), runs_of(new[path]) if path in new else ()),
        release=_data(ground.new.original(place)),
        release_before=_data(ground.old.original(was)),
    )


def _data(entry: Entry | None) -> bytes:
    return entry.data if entry is not None else b""


def _how(step: Step, carried: Carried, ours: Files, changes: Sequence[Change]) -> How:
    """``clean``, ``offset`` or ``three-way``."""
    made = {change.was: change for change in changes}
    whole = all(_same_entry(step, carried, ours, path) for path in step.patch.paths)
    if whole and not carried.moved:
        return "clean"
    words = [_how_file(change, made[change.path]) for change in step.patch.files if change.hunks]
    if "three-way" in words or carried.moved:
        return "three-way"
    return "offset" if "offset" in words else "clean"


def _same_entry(step: Step, carried: Carried, ours: Files, path: str) -> bool:
    after = carried.files[path] if path in carried.files else ours.get(path)
    return step.before.get(path) == ours.get(path) and step.after.get(path) == after


def _how_file(change: FileChange, made: Change) -> How:
    if applied_in_place(made.upstream, change) == made.result:
        return "clean"
    lines = split_lines(made.upstream)
    for number, hunk in enumerate(change.hunks, start=1):
        runs = [each for each in made.runs if each.run.hunk == number]
        shifts = {_shift(each) for each in runs}
        shift = shifts.pop()
        if shifts or shift is None:
            return "three-way"
        start = hunk.old_start - (1 if hunk.old_lines else 0) + shift
        if start < 0 or lines[start : start + len(hunk.before)] != list(hunk.before):
            return "three-way"
    return "offset"


def _shift(each: Placed) -> int | None:
    """How far below its old line a run landed; None where it did not land as it was."""
    landed: Run | None = each.landed
    return (
        None
        if landed is None or landed.changed != each.run.changed
        else (landed.old - each.run.old)
    )
