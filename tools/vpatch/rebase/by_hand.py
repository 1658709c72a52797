"""A resolved patch, as the guard looks at it: a person chose some places, the merge the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vpatch.rebase.guard.change import Reader
from vpatch.rebase.guard.guard import guarded
from vpatch.rebase.guard.outline import outline
from vpatch.rebase.guard.parses import unreadable
from vpatch.rebase.hunks import Placed
from vpatch.rebase.markers import Clash, clashes
from vpatch.rebase.model import Carried, Change, Question


def guarded_by_hand(carried: Carried, old: Reader, new: Reader) -> tuple[Question, ...]:
    """What speaks against trusting a patch; where a person put lines is not asked.

    Args:
        old, new: As `guarded` takes them.
    """
    file = carried.patch.file
    chosen = [change for change in carried.changes if change.path in carried.by_hand]
    merged = [change for change in carried.changes if change.path not in carried.by_hand]
    found = [
        *guarded(file, merged, old=old, new=new),
        *guarded(file, chosen, by_hand=True, old=old, new=new),
        *_beside(carried, chosen, old, new),
    ]
    return tuple({question.name: question for question in found}.values())


def _beside(
    carried: Carried, chosen: Iterable[Change], old: Reader, new: Reader
) -> Iterator[Question]:
    """Questions about what a merge placed in a file with a conflict, in other scopes than those."""
    file = carried.patch.file
    marked = {one.path: one.merged for one in carried.conflicts if one.reason == "content"}
    for change in chosen:
        found = clashes(marked.get(change.path, b""))
        if not found or any(unreadable(change)):
            continue
        before, after = outline(change.was, change.before), outline(change.was, change.after)
        shown = {
            scope
            for each in change.runs
            if _is_shown(each, found)
            for scope in (before.at(each.run.old), after.at(each.run.new))
        }
        for question in guarded(file, [change], old=old, new=new):
            scope = question.name.removeprefix(f"{file}:{question.kind}:{change.path}:")
            if scope.partition("#")[0] not in shown:
                yield question


def _is_shown(each: Placed, found: tuple[Clash, ...]) -> bool:
    """Whether a run is one that a person was shown."""
    if each.landed is None or each.landed.changed != each.run.changed:
        return True  # it is not as the merge would have put it
    added, removed = b"".join(each.run.added), b"".join(each.run.removed)
    return any(added in clash.theirs and removed in clash.base for clash in found)
