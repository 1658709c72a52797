"""Each patch of a series, carried onto another release by a three-way merge of its files.

Base is the file before the patch in the old series, theirs the file after it, ours the file in the
new tree so far. Nothing is checked out: files are merged in memory, and only where both sides
changed the same file does git merge them. Behind a patch that conflicts the others are tried on
what it would have made with its own lines, so that one run says all that is in the way; what comes
out behind a conflict is to look at, not to keep.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vpatch.git import Git
from vpatch.patches.apply import is_set_aside
from vpatch.rebase.absorb import all_stands
from vpatch.rebase.commits import Made, changes_of, make_commits
from vpatch.rebase.hunks import Run, runs_of
from vpatch.rebase.landing import Ground, changes_on, finished
from vpatch.rebase.lanes import Lanes, find_lanes
from vpatch.rebase.merge import Known, Labels, Merged, Merger
from vpatch.rebase.model import Carried, Choices, Conflicted, Entry, Files, How
from vpatch.rebase.moves import Move, find_moves
from vpatch.rebase.snapshot import Snapshot
from vpatch.rebase.steps import Step
from vpatch.scratch import scratch_folder


@dataclass(frozen=True)
class Target:
    """What the series is carried onto.

    Attributes:
        name: What the markers of a conflict call it.
        commit: The new release; its tree is in ``files``.
        kind: Kind of source that it came from.
        taken: Patches that its history has: file -> upstream's commit.
    """

    name: str
    commit: str
    files: Snapshot
    kind: str = "sdist"
    taken: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Unit:
    """One file of a patch: a path, or an old and a new one where the patch moves it."""

    was: str
    path: str
    base: Entry | None
    theirs: Entry | None
    leaves: str = ""
    runs: tuple[Run, ...] = ()


@dataclass
class _Line:
    """The carrying under way."""

    base: Snapshot
    target: Target
    merger: Merger
    moves: Mapping[str, Move]
    lanes: Lanes
    choices: Choices
    left_out: dict[str, list[str]] = field(default_factory=dict)


def tried(
    git: Git,
    steps: Sequence[Step],
    base: Snapshot,
    target: Target,
    choices: Choices,
    leave: Collection[str],
    known: Known,
) -> list[Tried]:
    """Carries a series, without a commit.

    Args:
        git: A repository of our own that has both releases; it gains objects.
        steps: The series on its recorded base.
        base: The old release; only its listing counts.
        target: The new release; its files are the patched ones afterwards.
        choices: What a person decided.
        leave: Patches that are left out: nothing is tried.
        known: Merges that were made before; it gains those that are made now.

    Returns:
        One for each patch, in order.

    Raises:
        HostError: git failed, or the disk is full.
    """
    paths = {path for step in steps for path in step.patch.paths}
    moves = find_moves(git, base, target.files, sorted(paths))
    target.files.read_ahead({moves[path].new if path in moves else path for path in paths})
    with scratch_folder("merge") as folder:
        places = {path: moves[path].new if path in moves else path for path in paths}
        lanes = find_lanes(git, base, target.files, places)
        line = _Line(base, target, Merger(git, folder, known), moves, lanes, choices)
        return [_carried(line, step, leave) for step in steps]


@dataclass(frozen=True)
class Tried:
    """A carried patch whose hunks were not looked at yet."""

    carried: Carried
    ground: Ground

    def so_far(self) -> Carried:
        """It; a conflict with what it would change: where that landed, nobody has to know yet."""
        if self.carried.how != "conflict":
            return self.carried
        return replace(self.carried, changes=changes_on(self.ground, self.carried.files))


def _carried(line: _Line, step: Step, leave: Collection[str]) -> Tried:
    patch, files = step.patch, line.target.files
    units = list(_units(line, step))
    ours = {path: files.entry(path) for unit in units for path in (unit.path, unit.leaves) if path}
    moved = {unit.was: unit.path for unit in units if unit.was in line.moves}
    ground = Ground(step, ours, moved, line.base, files)
    if patch.file in leave or patch.file in line.choices.skip:
        _leave_out(line, step)
        return Tried(Carried(patch, "emptied", left_out=True), ground)
    if not step.is_there or (line.target.kind == "wheel" and is_set_aside(patch)):
        which = "new" if step.is_there else "old"
        note = f"the {which} release is imported from its wheel, which has none of its files"
        return Tried(Carried(patch, "set-aside", note=note), ground)
    known = Carried(
        patch,
        "emptied",
        moved=moved,
        alike={was: line.moves[was].alike for was in moved},
        behind=_behind(line, step),
        taken=line.target.taken.get(patch.file, ""),
    )
    made, conflicts = _merged(line, patch.file, units, ours)
    changed = _changed(made, ours)
    given = line.choices.resolved.get(patch.file)
    if given is None and conflicts:
        if known.taken or all_stands(step, changes_on(ground, changed)):
            return Tried(known, ground)
        recall = line.choices.recall
        recalled = recall(patch, conflicts, made, files.entry) if recall else None
        known = replace(known, recalled=recalled)
        given = recalled.files if recalled and not recalled.refused else None
    if given is not None:
        by_hand = {path for path, entry in given.items() if made.get(path, ours.get(path)) != entry}
        by_hand |= {one.path for one in conflicts}
        known = replace(known, conflicts=conflicts, by_hand=frozenset(by_hand))
        ours = {**ours, **{path: files.entry(path) for path in given}}
        ground = replace(ground, ours=ours)
        changed = _changed(given, ours)
    files.update(changed)
    if conflicts and given is None:
        _leave_out(line, step)
        return Tried(replace(known, how="conflict", files=changed, conflicts=conflicts), ground)
    if not changed:
        return Tried(known, ground)
    # `three-way` until its hunks are looked at.
    how: How = "three-way" if given is None else "resolved"
    return Tried(replace(known, how=how, files=changed), ground)


def _changed(made: Files, ours: Files) -> dict[str, Entry | None]:
    return {path: entry for path, entry in made.items() if entry != ours.get(path)}


def _units(line: _Line, step: Step) -> Iterator[_Unit]:
    gone = {
        old: new
        for new, old in step.moves.items()
        if step.after.get(old) is None and step.after.get(new) is not None
    }
    taken = set(gone.values())
    runs = {each.path_old: runs_of(each) for each in step.patch.files if each.kind == "modify"}
    for was in step.patch.paths:
        path = line.moves[was].new if was in line.moves else was
        if was in gone:
            yield _Unit(was, gone[was], step.before[was], step.after[gone[was]], leaves=path)
        elif was not in taken:
            yield _Unit(was, path, step.before[was], step.after[was], runs=runs.get(was, ()))


def _merged(
    line: _Line, name: str, units: Sequence[_Unit], ours: Files
) -> tuple[dict[str, Entry | None], tuple[Conflicted, ...]]:
    made: dict[str, Entry | None] = {}
    conflicts: list[Conflicted] = []
    for unit in units:
        here = ours[unit.leaves or unit.path]
        labels = Labels(line.target.name, f"before {name}", name)
        merged = _side_by_side(line, unit, here)
        merged = merged or line.merger.merge(unit.base, here, unit.theirs, labels)
        why = merged.conflict or _no_place(line, unit, ours)
        if why:
            sides = (unit.base, here, unit.theirs)
            conflicts.append(Conflicted(unit.path, unit.was, why, *sides, merged.marked))
            if merged.theirs is not None:
                made[unit.path] = merged.theirs
            continue
        made[unit.path] = merged.entry
        if unit.leaves:
            made[unit.leaves] = None
    conflicts += [one for unit in units for one in _blocked(line, name, unit, ours, made)]
    return made, tuple(conflicts)


def _blocked(
    line: _Line, name: str, unit: _Unit, ours: Files, made: dict[str, Entry | None]
) -> Iterator[Conflicted]:
    """A file that merged, and that cannot be where it has to: it leaves what was made."""
    entry = made.get(unit.path)
    if entry is None or ours[unit.path] is not None:
        return
    part = line.target.files.blocked(unit.path, made)
    if part:
        del made[unit.path]
        if unit.leaves:
            del made[unit.leaves]
        reason = "folder-here" if part == unit.path else "file-above"
        here = ours[unit.leaves] if unit.leaves else None
        beside = f"{part}~{name}{unit.path[len(part) :]}"  # as git calls it
        sides = (unit.base, here, unit.theirs)
        yield Conflicted(beside, unit.was, reason, *sides, entry.data, unit.path)


def _side_by_side(line: _Line, unit: _Unit, ours: Entry | None) -> Merged | None:
    """The file with both changes, where an untouched line keeps them apart."""
    base, theirs = unit.base, unit.theirs
    if base is None or ours is None or theirs is None or base.mode != theirs.mode:
        return None
    data = line.lanes.merged(unit.was, base.data, ours.data, theirs.data, unit.runs)
    return Merged(Entry(ours.mode, data)) if data is not None else None


def _no_place(line: _Line, unit: _Unit, ours: Files) -> str:
    """Why a file that the patch makes cannot be there; empty where it can."""
    if unit.leaves and ours[unit.path] is not None:
        return "exists"
    makes = unit.theirs is not None and (unit.base is None or unit.leaves)
    if makes and line.base.has_folder(unit.path) and not line.target.files.has_folder(unit.path):
        return "folder-gone"
    return ""


def _leave_out(line: _Line, step: Step) -> None:
    for path in step.patch.paths:
        line.left_out.setdefault(path, []).append(step.patch.file)


def _behind(line: _Line, step: Step) -> tuple[str, ...]:
    names = (name for path in step.patch.paths for name in line.left_out.get(path, ()))
    return tuple(dict.fromkeys(names))


def committed(git: Git, target: Target, raw: Sequence[Tried]) -> tuple[Carried, ...]:
    """Carried patches as commits on the new release, and where their hunks landed.

    Raises:
        HostError: git failed, or the disk is full.
    """
    made = [Made(one.carried.patch, one.carried.files) for one in raw if one.carried.files]
    ids = iter(make_commits(git, target.commit, made))
    done = [
        replace(one.carried, commit=next(ids)) if one.carried.files else one.carried for one in raw
    ]
    diffs = changes_of(git, [carried.commit for carried in done if carried.commit])
    return tuple(
        finished(carried, one.ground, diffs.get(carried.commit, ()))
        for carried, one in zip(done, raw, strict=True)
    )
