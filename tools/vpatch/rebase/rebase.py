"""One step of a series from a release to another: carried, judged, guarded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vpatch.garbage import uncollected
from vpatch.git import Git
from vpatch.patches.called import counted
from vpatch.patches.series import Series
from vpatch.progress import SilentProgress
from vpatch.rebase.ahead import read_imported
from vpatch.rebase.carry import Target, committed, tried
from vpatch.rebase.gated import Gated
from vpatch.rebase.judge import Docket, all_judged
from vpatch.rebase.merge import Known
from vpatch.rebase.model import Carried, Choices, Rebased
from vpatch.rebase.obsolete import Obsolete, find_obsolete
from vpatch.rebase.snapshot import Snapshot
from vpatch.rebase.steps import Step, read_steps
from vpatch.rebase.taken import find_taken

_NO_CHOICES = Choices()


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


@dataclass(frozen=True)
class Means:
    """What a rebase may use.

    Attributes:
        kept: The user's cache, where the gates' answers are kept; None: nowhere.
        jobs: How many processes; 0: one a core.
        say: Is told what is being done.
    """

    kept: Path | None = None
    jobs: int = 0
    say: Callable[[str], None] = SilentProgress().say


_NO_MEANS = Means()


def rebase(
    git: Git,
    series: Series,
    source: Side,
    target: Side,
    choices: Choices = _NO_CHOICES,
    *,
    gates: bool = True,
    means: Means = _NO_MEANS,
) -> Rebased:
    """Carries a series from one commit to another. Nothing is written but objects.

    Args:
        git: A repository of our own that has both commits.
        series: The patches; they apply to ``source`` exactly.
        choices: What a person decided.
        gates: Ask the gates of vLLM whether a patch that does not fit has anything to do still.
        means: What it may use.

    Raises:
        PatchConflictError: a patch does not fit the release that it is made for.
        HostError: git failed, or the disk is full.
    """
    with uncollected():
        means.say(f"carrying {counted(len(series.patches))} from {source.name} to {target.name}")
        base = Snapshot(git, source.commit)
        steps = read_steps(git, base, series, kind=source.kind)
        gated = Gated(git, steps, source.commit, target.commit, means.kept) if gates else None
        onto = _target(git, series, target)
        left, carried = _carried(git, steps, base, onto, choices, gated)
        head = next((one.commit for one in reversed(carried) if one.commit), target.commit)
        trees = git.output("rev-parse", f"{target.commit}^{{tree}}", f"{head}^{{tree}}").decode()
        base_tree, tree = trees.split()
        read_imported(base, onto.files, steps, carried)
        docket = Docket(
            git, target.commit, steps, carried, base, onto.files, left, choices.keep, gated
        )
        means.say("checking where they landed, and what they use")
        return Rebased(
            source=source.name,
            target=target.name,
            base=target.commit,
            base_tree=base_tree,
            head=head,
            tree=tree,
            patches=all_judged(docket, means.jobs),
            accepted=tuple(choices.accept),
        )


def _target(git: Git, series: Series, target: Side) -> Target:
    taken = find_taken(git, series.patches, target.since, target.commit) if target.since else {}
    return Target(target.name, target.commit, Snapshot(git, target.commit), target.kind, taken)


def _carried(
    git: Git,
    steps: Sequence[Step],
    base: Snapshot,
    onto: Target,
    choices: Choices,
    gated: Gated | None,
) -> tuple[dict[str, Obsolete], tuple[Carried, ...]]:
    """What may leave, and what becomes of all patches without it."""
    left: dict[str, Obsolete] = {}
    merges: Known = {}
    while True:
        made = tried(git, steps, base, onto, choices, left, merges)
        so_far = [one.so_far() for one in made]
        more = find_obsolete(git, so_far, onto.name, onto.commit, gated, choices)
        if not more:
            return left, committed(git, onto, made)
        # What stood behind a patch that leaves is tried without it.
        left |= more
        onto.files.reset()
