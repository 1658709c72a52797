"""One step of a series from a release to another: carried, judged, guarded."""

from __future__ import annotations

from dataclasses import dataclass

from vpatch.git import Git
from vpatch.patches.series import Series
from vpatch.rebase.carry import Target, carry
from vpatch.rebase.model import Choices, Rebased
from vpatch.rebase.snapshot import Snapshot
from vpatch.rebase.steps import read_steps
from vpatch.rebase.verdict import judged

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
    git: Git, series: Series, source: Side, target: Side, choices: Choices = _NO_CHOICES
) -> Rebased:
    """Carries a series from one commit to another. Nothing is written but objects.

    Args:
        git: A repository of our own that has both commits.
        series: The patches; they apply to ``source`` exactly.
        choices: What a person decided.

    Raises:
        PatchConflictError: a patch does not fit the release that it is made for.
        HostError: git failed, or the disk is full.
    """
    base = Snapshot(git, source.commit)
    steps = read_steps(git, base, series, kind=source.kind)
    onto = Target(target.name, target.commit, Snapshot(git, target.commit), target.kind)
    carried = carry(git, steps, base, onto, choices=choices)
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
        patches=tuple(judged(one) for one in carried),
        accepted=tuple(choices.accept),
    )
