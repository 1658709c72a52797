"""The judging: an old series carried by vpatch's rebase, against the maintainers' new one."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from debian_quilt import Line, Step, counterpart
from vpatch.git import Git
from vpatch.patches.repository import scratch_repository
from vpatch.patches.series import Series
from vpatch.rebase.hunks import runs_of
from vpatch.rebase.model import LEAVES, RebasedPatch
from vpatch.rebase.rebase import Side, rebase

# agrees: the maintainers' tree, or both let it go. asked: a person looks at it. differs: neither.
OUTCOMES = ("agrees", "asked", "differs")


@dataclass(frozen=True)
class Judged:
    """An old patch, and both words on it.

    Attributes:
        name: In the old series.
        became: What the maintainers did: ``kept`` (the same bytes), ``refreshed`` (the same name,
            other bytes), ``renamed``, or ``dropped``.
        verdict: vpatch's word.
        outcome: One of ``OUTCOMES``.
        questions: What it asks, by kind.
        why: vpatch's sentence.
        diff: Where it differs: from the maintainers' tree to vpatch's.
    """

    name: str
    became: str
    verdict: str
    outcome: str
    questions: tuple[str, ...]
    why: str
    diff: str = ""


@dataclass(frozen=True)
class Once:
    """The whole series in one run.

    Attributes:
        counts: How many patches have each verdict; ``asked`` how many of the carried ones ask.
        agree: Carried without a question or left, as the maintainers did.
        differ: The same, otherwise than they did.
    """

    counts: dict[str, int]
    asked: int
    agree: int
    differ: tuple[str, ...]
    seconds: float


def judge(git: Git, old: Line, new: Line) -> Iterator[Judged]:
    """Each patch on the ground that the maintainers gave it."""
    ground = new.base
    for step in old.steps:
        after = counterpart(new.steps, step)
        if after is not None:
            ground = after.before
        with scratch_repository(git.git_dir) as scratch:
            source = Side("old", step.before)
            target = Side("new", ground)
            with tempfile.TemporaryDirectory() as folder:
                series = Series("old", Path(folder), (step.patch,))
                rebased = rebase(scratch, series, source, target, gates=False)
            wanted = after.after if after is not None else ground
            diff = scratch.output("diff-tree", "-r", "-p", wanted, rebased.head)
        yield _judged(step, after, rebased.patches[0], diff.decode("utf-8", "replace"))
        if after is not None:
            ground = after.after


def _judged(step: Step, after: Step | None, patch: RebasedPatch, diff: str) -> Judged:
    word = patch.verdict.word
    asks = word == "conflict" or bool(patch.questions)
    outcome = "agrees" if not diff else "differs"
    if asks:
        outcome = "asked"
    return Judged(
        name=step.quilt.name,
        became=_became(step, after),
        verdict=word,
        outcome=outcome,
        questions=tuple(dict.fromkeys(question.kind for question in patch.questions)),
        why=patch.verdict.why,
        diff=diff if outcome == "differs" else "",
    )


def _became(step: Step, after: Step | None) -> str:
    if after is None:
        return "dropped"
    if after.quilt.raw == step.quilt.raw:
        return "kept"
    return "refreshed" if after.quilt.name == step.quilt.name else "renamed"


def judge_at_once(git: Git, old: Line, new: Line) -> Once:
    """The whole series in one run; patches behind a conflict are not judged."""
    start = time.perf_counter()
    with scratch_repository(git.git_dir) as scratch, tempfile.TemporaryDirectory() as folder:
        series = Series("old", Path(folder), tuple(step.patch for step in old.steps))
        source, target = Side("old", old.base), Side("new", new.base)
        rebased = rebase(scratch, series, source, target, gates=False)
    seconds = time.perf_counter() - start
    differ, agree = [], 0
    for step, patch in zip(old.steps, rebased.patches, strict=True):
        if patch.verdict.word == "conflict" or patch.questions or patch.carried.behind:
            continue
        if _same(patch, counterpart(new.steps, step)):
            agree += 1
        else:
            differ.append(step.quilt.name)
    asked = sum(1 for one in rebased.patches if one.questions and one.verdict.word != "conflict")
    counts = {str(word): count for word, count in rebased.counts.items()}
    return Once(counts, asked, agree, tuple(differ), seconds)


def _same(patch: RebasedPatch, after: Step | None) -> bool:
    """Whether both let it go, or both change the same lines of the same files."""
    if patch.verdict.word in LEAVES or after is None:
        return patch.verdict.word in LEAVES and after is None
    ours = Counter(
        (change.path, *each.landed.changed)
        for change in patch.carried.changes
        for each in change.runs
        if each.landed is not None
    )
    theirs = Counter(
        (change.path, *run.changed) for change in after.patch.files for run in runs_of(change)
    )
    return ours == theirs
