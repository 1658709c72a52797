"""All checks of the guard, over the files of one carried patch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from vpatch.rebase.guard.calls import calls_misfit
from vpatch.rebase.guard.change import Doubt, Reader
from vpatch.rebase.guard.corners import Corners, corners
from vpatch.rebase.guard.library import Library
from vpatch.rebase.guard.names import (
    attributes_gone,
    imports_gone,
    names_gone,
    used,
)
from vpatch.rebase.guard.outline import is_python
from vpatch.rebase.guard.override import overrides_gone
from vpatch.rebase.guard.parses import unreadable
from vpatch.rebase.guard.place import misplaced, moved
from vpatch.rebase.guard.twice import defined_twice, twice
from vpatch.rebase.guard.typing_only import typing_only
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
        old: Reads a file of the old series' tree, after the patch; without it, what files import
            is not asked for.
        new: Reads a file of the new tree, after the patch.

    Returns:
        Questions, each name once, in the order of the files; empty where nothing speaks against it.
    """
    found: dict[str, Question] = {}
    libraries = Library(read=old or _no_tree), Library(read=new or _no_tree)
    for change in changes:
        for doubt in _doubts(change, by_hand, libraries):
            question = doubt.of(patch, change.path)
            first = found.setdefault(question.name, question)
            if first is not question:
                found[question.name] = replace(first, text=_also(first.text))
    return tuple(found.values())


def _doubts(change: Change, by_hand: bool, libraries: tuple[Library, Library]) -> Iterator[Doubt]:
    yield from unreadable(change)
    at = corners(change)
    if not by_hand:
        yield from _placed(at)
    of = used(at, *libraries) if is_python(change.path) and change.result else None
    if of is not None:
        yield from names_gone(of)
        yield from typing_only(of)
        yield from imports_gone(of)
        yield from attributes_gone(of)
        yield from calls_misfit(of)
        yield from overrides_gone(of)


def _placed(at: Corners) -> Iterator[Doubt]:
    again = list(defined_twice(at))
    yield from again
    # Which of the two a line belongs to is no second concern.
    twins = {doubt.scope for doubt in again}
    for doubt in (*moved(at), *misplaced(at), *ambiguous(at), *twice(at)):
        if doubt.scope.partition("#")[0] not in twins:
            yield doubt


def _no_tree(path: str) -> bytes | None:  # noqa: ARG001
    return None


def _also(text: str) -> str:
    return text if text.endswith(" (and more)") else f"{text} (and more)"
