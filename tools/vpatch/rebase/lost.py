"""What goes with patches that leave: gates that the old series turned green, red with the new one.

The gates are vLLM's (``vpatch check``): a series of anything else loses none. A gate that was green
without the series is upstream's own affair.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from vpatch.cores import shared_out
from vpatch.errors import UsageError
from vpatch.git import Git
from vpatch.patches.apply import apply_series
from vpatch.patches.series import Series
from vpatch.rebase.model import LEAVES, Question, Rebased, RebasedPatch
from vpatch.rebase.rebase import Side

if TYPE_CHECKING:
    from vpatch.gates.gate import Verdict
    from vpatch.gates.kept import GateSaid

_TESTS = "tests/"


def with_lost_gates(
    git: Git, series: Series, rebased: Rebased, source: Side, kept: Path | None
) -> Rebased:
    """A rebase, with a question for every gate that is lost.

    Args:
        git: A repository of our own with both releases; it gains objects.
        series: The old series.
        rebased: What became of it. Where there is a conflict, or where nothing left and nobody
            resolved anything, there is nothing to ask.
        source: The old release.
        kept: The user's cache, where the gates' answers are kept; None: nowhere.

    Raises:
        HostError: git failed.
    """
    chosen = [patch for patch in rebased.patches if _is_chosen(patch)]
    if rebased.conflicts or not chosen:
        return rebased
    try:
        lost = _lost(git, series, rebased, source, kept)
    except UsageError:
        return rebased  # no vLLM
    asked = [(_answers_for(gate, chosen), gate) for gate in lost]
    patches = tuple(
        replace(
            patch,
            questions=(
                *patch.questions,
                *(_question(gate, patch, source) for each, gate in asked if each is patch),
            ),
        )
        for patch in rebased.patches
    )
    return replace(rebased, patches=patches)


def _is_chosen(patch: RebasedPatch) -> bool:
    word = patch.verdict.word
    return word in LEAVES - {"set-aside"} or word == "resolved"


def _lost(
    git: Git, series: Series, rebased: Rebased, source: Side, kept: Path | None
) -> list[GateSaid]:
    bare = git.line("rev-parse", f"{source.commit}^{{tree}}")
    with_series = apply_series(git, bare, series, kind=source.kind).tree
    trees = (rebased.tree, with_series)
    after, before = shared_out([partial(_asked, git, tree, kept) for tree in trees])
    red = [gate for gate in after.values() if gate.word == "fail"]
    lost = [gate for gate in red if before[gate.name].word == "pass"]
    if not lost:
        return []
    without = _asked(git, bare, kept)
    return [gate for gate in lost if without[gate.name].word != "pass"]


def _asked(git: Git, tree: str, kept: Path | None) -> Mapping[str, GateSaid]:
    """What all gates say of a tree."""
    from vpatch.gates.check import GATES, check_tree  # noqa: PLC0415 - they take a while to import
    from vpatch.gates.kept import gates_of  # noqa: PLC0415
    from vpatch.gates.tree import of_git  # noqa: PLC0415

    def ask(_: Collection[str]) -> Sequence[Verdict]:
        return check_tree(of_git(git, tree, tree)).verdicts

    return gates_of(tree, [gate.name for gate in GATES], kept, ask)


def _answers_for(gate: GateSaid, chosen: Sequence[RebasedPatch]) -> RebasedPatch:
    """The patch that the loss is asked about: the last of those that most speaks for."""
    from vpatch.gates.check import GATES  # noqa: PLC0415

    topic = next((each.topic for each in GATES if each.name == gate.name), "")
    file = gate.place.rpartition(":")[0]

    def speaks_for(numbered: tuple[int, RebasedPatch]) -> tuple[bool, bool, bool, bool, int]:
        number, each = numbered
        patch = each.carried.patch
        leaves, touches = each.verdict.word in LEAVES, file in patch.paths
        return not _is_test(each), leaves, touches, patch.topic == topic, number

    return max(enumerate(chosen), key=speaks_for)[1]


def _is_test(patch: RebasedPatch) -> bool:
    return all(path.startswith(_TESTS) for path in patch.carried.patch.paths)


def _question(gate: GateSaid, patch: RebasedPatch, source: Side) -> Question:
    file, _, line = gate.place.rpartition(":")
    return Question(
        name=f"{patch.file}:lost-gate:{gate.name}",
        kind="lost-gate",
        path=file or patch.carried.patch.paths[0],
        line=int(line or 0),
        text=f"gate {gate.name} ({gate.asks}) passes with the series on {source.name}, and fails "
        f"with what is left of it: {gate.error or gate.note}",
    )
