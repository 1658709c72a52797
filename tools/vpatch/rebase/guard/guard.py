"""All checks of the guard, over the files of one carried patch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from vpatch.rebase.guard.change import Doubt, Reader
from vpatch.rebase.guard.corners import Corners, corners
from vpatch.rebase.guard.parses import unreadable
from vpatch.rebase.guard.place import misplaced
from vpatch.rebase.guard.twice import defined_twice, twice
from vpatch.rebase.guard.within import ambiguous
from vpatch.rebase.model import Change, Question


def guarded(
    patch: str,
    changes: Iterable[Change],
    *,
    by_hand: bool = False,
    old: Reader | None = None,
    new: Reader | None = None,
) -> tuple[Question, ...]:
    """What speaks against trusting a carried patch.

    Args:
        patch: Its file name, for the names of the questions.
        changes: What became of its files; those without a conflict.
        by_hand: A person wrote the result: where its lines stand was their choice.
        old: Reads a file of the old series' tree, after the patch.
        new: Reads a file of the new tree, after the patch.

    Returns:
        Questions, each name once, in the order of the files; empty where nothing speaks against it.
    """
    found: dict[str, Question] = {}
    for change in changes:
        for doubt in _doubts(change, by_hand):
            question = doubt.of(patch, change.path)
            first = found.setdefault(question.name, question)
            if first is not question:
                found[question.name] = replace(first, text=_also(first.text))
    return tuple(found.values())


def _doubts(change: Change, by_hand: bool) -> Iterator[Doubt]:
    yield from unreadable(change)
    at = corners(change)
    if not by_hand:
        yield from _placed(at)


def _placed(at: Corners) -> Iterator[Doubt]:
    again = list(defined_twice(at))
    yield from again
    # Which of the two a line belongs to is no second concern.
    twins = {doubt.scope for doubt in again}
    for doubt in (*misplaced(at), *ambiguous(at), *twice(at)):
        if doubt.scope.partition("#")[0] not in twins:
            yield doubt


def _also(text: str) -> str:
    return text if text.endswith(" (and more)") else f"{text} (and more)"
