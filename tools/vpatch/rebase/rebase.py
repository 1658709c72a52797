"""One step of a series from a release to another: carried, judged, guarded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vpatch.git import Git
from vpatch.patches.series import Series
from vpatch.rebase.ahead import read_imported
from vpatch.rebase.by_hand import guarded_by_hand
from vpatch.rebase.carry import Target, carry
from vpatch.rebase.gated import Gated
from vpatch.rebase.guard.change import Reader
from vpatch.rebase.model import Carried, Choices, Rebased, RebasedPatch
from vpatch.rebase.obsolete import Obsolete, by_gates, find_obsolete, moved_to
from vpatch.rebase.snapshot import History, Snapshot
from vpatch.rebase.steps import Step, read_steps
from vpatch.rebase.taken import find_taken
from vpatch.rebase.verdict import judged, left_as_obsolete, maybe_obsolete

_NO_CHOICES = Choices()
# How a patch may have been carried so that the guard has something to look at.
_IN_DOUBT = frozenset({"clean", "offset", "three-way", "resolved"})


@dataclass(frozen=True)
class Side:
    """One end of a rebase: a release, or any commit.

    Attributes:
        name: What people call it.
        commit: The commit, in the repository that is given.
        kind: Kind of source that it came from: what a wheel never has cannot be missed in it.
        since: Of the new end: where its history was at the old one; empty where nobody knows.
    """

    name: str
    commit: str
    kind: str = "sdist"
    since: str = ""


def rebase(
    git: Git,
    series: Series,
    source: Side,
    target: Side,
    choices: Choices = _NO_CHOICES,
    *,
    gates: bool = True,
) -> Rebased:
    """Carries a series from one commit to another. Nothing is written but objects.

    Args:
        git: A repository of our own that has both commits.
        series: The patches; they apply to ``source`` exactly.
        choices: What a person decided.
        gates: Ask the gates of vLLM whether a patch that does not fit has anything to do still.

    Raises:
        PatchConflictError: a patch does not fit the release that it is made for.
        HostError: git failed, or the disk is full.
    """
    base = Snapshot(git, source.commit)
    steps = read_steps(git, base, series, kind=source.kind)
    taken = find_taken(git, series.patches, target.since, target.commit) if target.since else {}
    onto = Target(target.name, target.commit, Snapshot(git, target.commit), target.kind, taken)
    gated = Gated(git, steps, source.commit, target.commit) if gates else None
    left: dict[str, Obsolete] = {}
    while True:
        carried = carry(git, steps, base, onto, choices=choices, leave=left)
        more = find_obsolete(git, carried, target.name, target.commit, gated, choices)
        if not more:
            break
        # What stood behind a patch that leaves is tried without it.
        left |= more
        onto.files.reset()
    head = next((one.commit for one in reversed(carried) if one.commit), target.commit)
    trees = git.output("rev-parse", f"{target.commit}^{{tree}}", f"{head}^{{tree}}").decode()
    base_tree, tree = trees.split()
    reasons = [
        left.get(one.patch.file) or (one.patch.file not in choices.keep and by_gates(one, gated))
        for one in carried
    ]
    read_imported(base, onto.files, steps, carried)
    zipped = zip(carried, reasons, _views(base, onto.files, steps, carried), strict=True)
    return Rebased(
        source=source.name,
        target=target.name,
        base=target.commit,
        base_tree=base_tree,
        head=head,
        tree=tree,
        patches=tuple(_judged(git, target, one, why or None, views) for one, why, views in zipped),
        accepted=tuple(choices.accept),
    )


def _judged(
    git: Git,
    target: Side,
    carried: Carried,
    obsolete: Obsolete | None,
    views: tuple[Reader, Reader],
) -> RebasedPatch:
    if obsolete is not None and carried.left_out:
        return left_as_obsolete(carried, obsolete)
    places = moved_to(git, carried, target.commit) if carried.how == "conflict" else ()
    patch = judged(carried, places)
    if obsolete is not None:
        return maybe_obsolete(patch, obsolete)
    if carried.how not in _IN_DOUBT:
        return patch
    old, new = views
    doubts = guarded_by_hand(carried, old, new)
    return replace(patch, questions=(*patch.questions, *doubts))


def _views(
    base: Snapshot, onto: Snapshot, steps: Sequence[Step], carried: Sequence[Carried]
) -> Iterator[tuple[Reader, Reader]]:
    """Both trees as they are behind each patch."""
    old, new = History(base), History(onto)
    for number, (step, one) in enumerate(zip(steps, carried, strict=True)):
        old.add(number, step.after)
        new.add(number, one.files)
    for number in range(len(carried)):
        yield old.reader(number), new.reader(number)
