"""Where the hunks of a carried patch landed, and how: told from lines, not from git's word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from vpatch.patches.diff import FileChange
from vpatch.patches.place import applied_in_place, split_lines
from vpatch.rebase.hunks import Placed, Run, placed, runs_of
from vpatch.rebase.model import Carried, Change, Entry, Files, How
from vpatch.rebase.steps import Step


def finished(step: Step, carried: Carried, ours: Files, made: Sequence[FileChange]) -> Carried:
    """A carried patch with its changes, and with the word for how it was carried.

    Args:
        step: The patch in the old series.
        carried: What the merge made of it.
        ours: The files in the new tree before it.
        made: The diff of its commit; nothing where it has none.
    """
    new = {change.path: change for change in made}
    changes = tuple(
        _change(step, change, carried, ours, new)
        for change in step.patch.files
        if change.hunks and not change.binary
    )
    how = carried.how
    if how == "three-way":
        how = _how(step, carried, ours, changes)
    return replace(carried, how=how, changes=changes)


def _change(
    step: Step,
    change: FileChange,
    carried: Carried,
    ours: Files,
    new: Mapping[str, FileChange],
) -> Change:
    was = change.path_old or change.path
    path = change.path if step.moves.get(change.path) else carried.moved.get(was, change.path)
    upstream = _data(ours, carried.moved.get(was, was)) or _data(ours, path)
    result = _data(carried.files, path) if path in carried.files else _data(ours, path)
    runs = runs_of(change)
    landed = runs_of(new[path]) if path in new else ()
    return Change(
        path=path,
        was=change.path,
        before=_data(step.before, was) if change.path_old else b"",
        after=_data(step.after, change.path) if change.path_new else b"",
        upstream=upstream,
        result=result,
        runs=placed(runs, landed),
    )


def _data(files: Files, path: str) -> bytes:
    entry: Entry | None = files.get(path)
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
