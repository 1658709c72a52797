"""The last word on every carried patch, on all cores: verdicts, doubts, gates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from vpatch.cores import cores, shared_out
from vpatch.git import Git
from vpatch.rebase.by_hand import guarded_by_hand
from vpatch.rebase.gated import Gated
from vpatch.rebase.guard.change import Reader
from vpatch.rebase.model import Carried, Question, RebasedPatch, Verdict
from vpatch.rebase.obsolete import Obsolete, by_gates, moved_to
from vpatch.rebase.snapshot import History, Snapshot
from vpatch.rebase.steps import Step
from vpatch.rebase.verdict import judged, left_as_obsolete, maybe_obsolete

# How a patch may have been carried so that the guard has something to look at.
_IN_DOUBT = frozenset({"clean", "offset", "three-way", "resolved"})
# More shares than cores: some take longer. Not many more: neighbours share what they read.
_SHARES = 3

_Said = tuple[Verdict, tuple[Question, ...]]
_Told = dict[int, "_Said | Obsolete"]


@dataclass(frozen=True)
class Docket:
    """What is to be judged.

    Attributes:
        git: A repository of our own with both releases.
        commit: The new release.
        steps, carried: The series, and what became of it.
        base, onto: Both releases' files.
        left: Patches that were left out, and why: file -> why.
        keep: Patches that somebody wants to keep.
        gated: Asked whether a patch that conflicts has anything to do still; None: nobody is.
    """

    git: Git
    commit: str
    steps: Sequence[Step]
    carried: Sequence[Carried]
    base: Snapshot
    onto: Snapshot
    left: Mapping[str, Obsolete]
    keep: Collection[str]
    gated: Gated | None


def all_judged(docket: Docket, jobs: int) -> tuple[RebasedPatch, ...]:
    """Every patch with its verdict.

    Args:
        jobs: How many processes; 0: one a core.

    Raises:
        HostError: git failed.
    """
    views = tuple(_views(docket))
    jobs = jobs or cores()
    tasks: list[Callable[[], _Told]] = [
        partial(_by_gates, docket),
        *(partial(_guarded, docket, views, share) for share in _shares(docket.carried, jobs)),
    ]
    told = shared_out(tasks, jobs)
    said: dict[int, _Said] = {}
    leaves: dict[int, Obsolete] = {}
    for number, each in (item for one in told for item in one.items()):
        if isinstance(each, Obsolete):
            leaves[number] = each
        else:
            said[number] = each
    return tuple(
        _maybe_left(RebasedPatch(one, *said[number]), leaves.get(number))
        for number, one in enumerate(docket.carried)
    )


def _maybe_left(patch: RebasedPatch, obsolete: Obsolete | None) -> RebasedPatch:
    return maybe_obsolete(patch, obsolete) if obsolete is not None else patch


def _shares(carried: Sequence[Carried], jobs: int) -> Iterator[Sequence[int]]:
    """Numbers of patches; those of one file are together: what is read of it is read once."""
    order = sorted(range(len(carried)), key=lambda number: carried[number].patch.paths[0])
    size = -(-len(order) // (_SHARES * jobs if jobs > 1 else 1)) or 1
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _by_gates(docket: Docket) -> _Told:
    """The patches that conflict, and that may have nothing to do."""
    asked = (
        (number, by_gates(one, docket.gated))
        for number, one in enumerate(docket.carried)
        if one.patch.file not in docket.left and one.patch.file not in docket.keep
    )
    return {number: found for number, found in asked if found is not None}


def _guarded(docket: Docket, views: Sequence[tuple[Reader, Reader]], share: Sequence[int]) -> _Told:
    return {number: _said(docket, docket.carried[number], *views[number]) for number in share}


def _said(docket: Docket, carried: Carried, old: Reader, new: Reader) -> _Said:
    obsolete = docket.left.get(carried.patch.file)
    if obsolete is not None:
        patch = _left(docket, carried, obsolete)
    else:
        patch = _judged(docket, carried)
        if carried.how in _IN_DOUBT:
            doubts = guarded_by_hand(carried, old, new)
            patch = replace(patch, questions=(*patch.questions, *doubts))
    return patch.verdict, patch.questions


def _left(docket: Docket, carried: Carried, obsolete: Obsolete) -> RebasedPatch:
    if carried.left_out:
        return left_as_obsolete(carried, obsolete)
    return maybe_obsolete(_judged(docket, carried), obsolete)


def _judged(docket: Docket, carried: Carried) -> RebasedPatch:
    conflicts = carried.how == "conflict"
    places = moved_to(docket.git, carried, docket.commit) if conflicts else ()
    return judged(carried, places)


def _views(docket: Docket) -> Iterator[tuple[Reader, Reader]]:
    """Both trees as they are behind each patch."""
    old, new = History(docket.base), History(docket.onto)
    for number, (step, one) in enumerate(zip(docket.steps, docket.carried, strict=True)):
        old.add(number, step.after)
        new.add(number, one.files)
    for number in range(len(docket.carried)):
        yield old.reader(number), new.reader(number)
