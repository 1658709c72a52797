"""Verdicts of the full tier's checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vpatch.smoke import statistics
from vpatch.smoke.judge import (
    Judged,
    Outcomes,
    acceptance,
    compared_requests,
    right_states,
    short,
    verdict_of,
)
from vpatch.smoke.run import Outcome

_WORDS = 12
GRAMMAR = f"(t[13][0-9]*){{{_WORDS}}}"
"""What structured output has to be: words of the tiny tokenizer, t<id>, whose first digit is 1 or
3. No word begins with another one that would lead nowhere."""
_END = 2

Judge = Callable[[Outcomes], Judged]


def reused_blocks(name: str) -> Judge:
    """The second time blocks of the prompts were not computed; answers and states are the same."""

    def judge(outcomes: Outcomes) -> Judged:
        phases = (outcomes[name].outputs or {})["phases"]
        again = compared_requests(outcomes[name], "again")
        reused = sum(one["first_position"] for one in again)
        if not reused:
            return Judged("fail", "no block was taken from the cache: this run proves nothing")
        if phases["first"]["tokens"] != phases["again"]["tokens"]:
            return Judged("fail", "answers differ the second time")
        states = right_states(name, cached="again")(outcomes)
        return Judged(states.verdict, f"{reused} tokens from the cache; {states.evidence}")

    return judge


def saw_picture(name: str, length: int) -> Judge:
    """The picture's embeddings were in the prompt, and the rows of its tokens are right."""

    def judge(outcomes: Outcomes) -> Judged:
        (prompt,) = (outcomes[name].outputs or {})["phases"]["picture"]["prompts"]
        if len(prompt) != length:
            return Judged("fail", f"the prompt has {len(prompt)} tokens, not {length}")
        states = right_states(name, "picture")(outcomes)
        return Judged(
            states.verdict, f"prompt of {length} tokens with a picture; {states.evidence}"
        )

    return judge


def refused_weights(pattern: str) -> Callable[[Outcome], Judged]:
    """A drafter whose checkpoint lacks weights is refused with this message, once it is loaded."""

    def judge(outcome: Outcome) -> Judged:
        if outcome.error is None:
            return Judged("fail", "was not refused")
        good = re.search(pattern, outcome.error, re.DOTALL) is not None
        said = short(outcome.error)
        return Judged(verdict_of(good), said if good else f"was not refused for this: {said}")

    return judge


def keeps_distribution(name: str) -> Judge:
    """Sampled tokens follow the reference's distribution (statistics.py)."""

    def judge(outcomes: Outcomes) -> Judged:
        outcome = outcomes[name]
        sampled = (outcome.outputs or {})["phases"]["sampled"]["tokens"]
        after: list[Mapping[str, Any]] = (outcome.compared or {})["after"]
        shares = {tuple(one["prefix"]): one["probabilities"] for one in after}
        found = statistics.follows(sampled, shares)
        if not found.freedom:
            return Judged("fail", "no prefix came often enough: this run proves nothing")
        if not _accepted(outcome):
            return Judged("fail", "no draft was accepted: this run proves nothing")
        return Judged(verdict_of(found.follows), f"{found.evidence}; {_drafts(outcome)}")

    return judge


def obeyed(name: str, base: str) -> Judge:
    """Every answer is of the grammar, and the one that the target alone gives under it."""

    def judge(outcomes: Outcomes) -> Judged:
        answers, alone = (
            (outcomes[start].outputs or {})["phases"]["structured"]["tokens"]
            for start in (name, base)
        )
        wrong = [answer for answer in answers if not _is_of_grammar(answer)]
        if wrong:
            return Judged("fail", f"{wrong[0]} is not of the grammar {GRAMMAR}")
        if answers != alone:
            return Judged("fail", "answers are not those of the target alone")
        return Judged(
            verdict_of(bool(answers and _accepted(outcomes[name]))),
            f"{len(answers)} answers of the grammar {GRAMMAR}, as the target alone gives; "
            + _drafts(outcomes[name]),
        )

    return judge


def _accepted(outcome: Outcome) -> int:
    """How many drafts the engine itself says that it accepted."""
    accepted: int = (outcome.outputs or {})["drafting"].get("accepted", 0)
    return accepted


def _drafts(outcome: Outcome) -> str:
    drafted = (outcome.outputs or {})["drafting"].get("drafted", 0)
    return f"{_accepted(outcome)} of {drafted} drafts accepted"


def _is_of_grammar(answer: Sequence[int]) -> bool:
    words = answer[:_WORDS]
    return [*answer] == [*words, _END] and all(str(word)[0] in "13" for word in words)


def trained_for_ids(right: Sequence[str], wrong: Sequence[str]) -> Judge:
    """Drafters are accepted more often with the ids that they were trained for."""

    def judge(outcomes: Outcomes) -> Judged:
        good, bad = (
            statistics.mean_interval([_rate(outcomes[name]) for name in names])
            for names in (right, wrong)
        )
        better = statistics.separated(good, bad) and good.mean > bad.mean
        return Judged(
            verdict_of(better),
            f"first drafts accepted: right ids {_said(good)}, ids shifted by one {_said(bad)} "
            f"(95 %, {good.count} seeds)",
        )

    return judge


def _rate(outcome: Outcome) -> float:
    drafted, accepted = acceptance(outcome)
    return sum(accepted[:1]) / max(sum(drafted[:1]), 1)


def _said(interval: statistics.Interval) -> str:
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def did_serve(outcome: Outcome) -> Judged:
    """The server answered."""
    if outcome.error is not None:
        return Judged("fail", short(outcome.error))
    took = (outcome.outputs or {})["seconds"]
    return Judged("pass", f"answered over HTTP, ready after {took['start']:.0f} s")


def served_the_same(name: str, base: str) -> Judge:
    """Over HTTP, streamed and not, the answers are those of the engine without a drafter."""

    def judge(outcomes: Outcomes) -> Judged:
        served = outcomes[name].outputs or {}
        wanted = (outcomes[base].outputs or {})["phases"]["batch"]["tokens"]
        for kind in ("tokens", "streamed"):
            if served[kind] != wanted:
                return Judged("fail", f"answers over HTTP ({kind}) are not the engine's own")
        counted = served["metrics"]
        places = ", ".join(map(str, counted["accepted_by_position"]))
        if not counted["drafted"]:
            return Judged("fail", "the server drafted nothing")
        return Judged(
            "pass",
            f"{len(wanted)} answers equal, streamed too; accepted by place in the draft: {places} "
            f"of {counted['drafts']}",
        )

    return judge
