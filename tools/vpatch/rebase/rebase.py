"""One step of a series from a release to another: carried, judged, guarded."""

from __future__ import annotations

from dataclasses import dataclass

from vpatch.git import Git
from vpatch.patches.series import Series
from vpatch.rebase.carry import Target, carry
from vpatch.rebase.gated import Gated
from vpatch.rebase.model import Carried, Choices, Rebased, RebasedPatch
from vpatch.rebase.obsolete import Obsolete, find_obsolete, moved_to
from vpatch.rebase.snapshot import Snapshot
from vpatch.rebase.steps import read_steps
from vpatch.rebase.verdict import judged, left_as_obsolete

_NO_CHOICES = Choices()


@dataclass(frozen=True)
class Side:
    """One end of a rebase: a release, or any commit.

    Attributes:
        name: What people call it.
        commit: The commit, in the repository that is given.
        kind: Kind of source that it came from: what a wheel never has cannot be missed in it.
    """

    name: str
    commit: str
    kind: str = "sdist"


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
    onto = Target(target.name, target.commit, Snapshot(git, target.commit), target.kind)
    gated = Gated(git, steps, source.commit, target.commit) if gates else None
    left: dict[str, Obsolete] = {}
    while True:
        carried = carry(git, steps, base, onto, choices=choices, leave=left)
        more = find_obsolete(git, carried, target.name, target.commit, gated, choices.keep)
        if not more:
            break
        # What stood behind a patch that leaves is tried without it.
        left |= more
        onto.files.reset()
    head = next((one.commit for one in reversed(carried) if one.commit), target.commit)
    trees = git.output("rev-parse", f"{target.commit}^{{tree}}", f"{head}^{{tree}}").decode()
    base_tree, tree = trees.split()
    return Rebased(
        source=source.name,
        target=target.name,
        base=target.commit,
        base_tree=base_tree,
        head=head,
        tree=tree,
        patches=tuple(_judged(git, target, one, left) for one in carried),
        accepted=tuple(choices.accept),
    )


def _judged(git: Git, target: Side, carried: Carried, left: dict[str, Obsolete]) -> RebasedPatch:
    obsolete = left.get(carried.patch.file)
    if obsolete is not None:
        return left_as_obsolete(carried, obsolete)
    places = moved_to(git, carried, target.commit) if carried.how == "conflict" else ()
    return judged(carried, places)
