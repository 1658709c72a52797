"""What goes with patches that leave: gates that the old series turned green, red with the new one.

The gates are vLLM's (``vpatch check``): a series of anything else loses none. A gate that was green
without the series is upstream's own affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vpatch.errors import UsageError
from vpatch.git import Git
from vpatch.patches.apply import apply_series
from vpatch.patches.series import Series
from vpatch.rebase.model import LEAVES, Question, Rebased, RebasedPatch
from vpatch.rebase.rebase import Side

if TYPE_CHECKING:
    from vpatch.gates.check import Checked
    from vpatch.gates.gate import Verdict

_TESTS = "tests/"


def with_lost_gates(git: Git, series: Series, rebased: Rebased, source: Side) -> Rebased:
    """A rebase, with a question for every gate that is lost.

    Args:
        git: A repository of our own with both releases; it gains objects.
        series: The old series.
        rebased: What became of it. Where there is a conflict, or where nothing left and nobody
            resolved anything, there is nothing to ask.
        source: The old release.

    Raises:
        HostError: git failed.
    """
    chosen = [patch for patch in rebased.patches if _is_chosen(patch)]
    if rebased.conflicts or not chosen:
        return rebased
    try:
        lost = _lost(git, series, rebased, source)
    except UsageError:
        return rebased  # no vLLM
    asked = [(_answers_for(verdict, chosen), verdict) for verdict in lost]
    patches = tuple(
        replace(
            patch,
            questions=(
                *patch.questions,
                *(_question(p, v, source) for p, v in asked if p is patch),
            ),
        )
        for patch in rebased.patches
    )
    return replace(rebased, patches=patches)


def _is_chosen(patch: RebasedPatch) -> bool:
    word = patch.verdict.word
    return word in LEAVES - {"set-aside"} or word == "resolved"


def _lost(git: Git, series: Series, rebased: Rebased, source: Side) -> list[Verdict]:
    after = _checked(git, rebased.tree)
    if not after.failed:
        return []
    with_series = apply_series(git, f"{source.commit}^{{tree}}", series, kind=source.kind).tree
    green = _green(_checked(git, with_series))
    lost = [verdict for verdict in after.failed if verdict.gate.name in green]
    if not lost:
        return []
    bare = _green(_checked(git, source.commit))
    return [verdict for verdict in lost if verdict.gate.name not in bare]


def _checked(git: Git, tree: str) -> Checked:
    from vpatch.gates.check import check_tree  # noqa: PLC0415 - the gates take a while to import
    from vpatch.gates.tree import of_git  # noqa: PLC0415

    return check_tree(of_git(git, tree, tree))


def _green(checked: Checked) -> set[str]:
    return {each.gate.name for each in checked.verdicts if each.found.word == "pass"}


def _answers_for(verdict: Verdict, chosen: Sequence[RebasedPatch]) -> RebasedPatch:
    """The patch that the loss is asked about: the last of those that most speaks for."""
    files = {each.file for each in verdict.found.evidence}

    def speaks_for(numbered: tuple[int, RebasedPatch]) -> tuple[bool, bool, bool, bool, int]:
        number, each = numbered
        patch = each.carried.patch
        leaves, touches = each.verdict.word in LEAVES, not files.isdisjoint(patch.paths)
        return not _is_test(each), leaves, touches, patch.topic == verdict.gate.topic, number

    return max(enumerate(chosen), key=speaks_for)[1]


def _is_test(patch: RebasedPatch) -> bool:
    return all(path.startswith(_TESTS) for path in patch.carried.patch.paths)


def _question(patch: RebasedPatch, verdict: Verdict, source: Side) -> Question:
    gate, found = verdict.gate, verdict.found
    place = next(iter(found.evidence), None)
    return Question(
        name=f"{patch.file}:lost-gate:{gate.name}",
        kind="lost-gate",
        path=place.file if place else patch.carried.patch.paths[0],
        line=place.line if place else 0,
        text=f"gate {gate.name} ({gate.asks}) passes with the series on {source.name}, and fails "
        f"with what is left of it: {found.error or found.note}",
    )
