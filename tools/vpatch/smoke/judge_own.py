"""Verdicts on a user's own checkpoints, without a reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vpatch.smoke.judge import Judged, Outcomes, first_difference, short, verdict_of
from vpatch.smoke.run import Outcome

TIE_NATS = 0.25
"""A bf16 model's logits are of 10 to 30, where bf16 is spaced by 1/16 to 1/8: two that are not
further apart may change places when sums are made in another order, as with more rows in a step."""


def did_start(outcome: Outcome) -> Judged:
    """The engine started, and every request was answered."""
    if outcome.error is not None:
        return Judged("fail", short(outcome.error))
    outputs = outcome.outputs or {}
    took = outputs["seconds"]
    tokens = sum(len(answer) for answer in outputs["phases"]["batch"]["tokens"])
    return Judged(
        "pass", f"ready after {took['start']:.0f} s, {tokens} tokens in {took['run']:.1f} s"
    )


def started(name: str) -> Callable[[Outcomes], Judged]:
    """The same, of one start."""
    return lambda outcomes: did_start(outcomes[name])


def same_answers(name: str, base: str) -> Callable[[Outcomes], Judged]:
    """Greedy answers with the drafter are those without, up to ties of the two best tokens."""

    def judge(outcomes: Outcomes) -> Judged:
        mine, theirs = ((outcomes[one].outputs or {})["phases"]["batch"] for one in (name, base))
        equal, ties, different = 0, 0, []
        answers = zip(mine["tokens"], theirs["tokens"], theirs["best"], strict=True)
        for number, (with_drafts, alone, best) in enumerate(answers):
            if with_drafts == alone:
                equal += 1
                continue
            at = first_difference(with_drafts, alone)
            if _is_tie(at, with_drafts, best):
                ties += 1
            else:
                different.append(f"prompt {number} from token {at}")
        total = equal + ties + len(different)
        said = f"{equal} of {total} answers equal, {ties} part at a tie (within {TIE_NATS} nats)"
        if different:
            return Judged("fail", f"{said}; not {', '.join(different)}")
        # What follows a tie is not compared: a run of ties says nothing.
        return Judged(verdict_of(equal >= ties), said)

    return judge


def _is_tie(at: int, answer: Sequence[int], best: Sequence[Mapping[str, Any]]) -> bool:
    if at >= min(len(answer), len(best)):
        return False
    close: bool = best[at]["margin"] <= TIE_NATS
    return close and answer[at] in best[at]["tokens"]


def accepted(name: str) -> Callable[[Outcomes], Judged]:
    """What the engine itself counts as accepted, by place in the draft."""

    def judge(outcomes: Outcomes) -> Judged:
        counted = (outcomes[name].outputs or {})["drafting"]
        drafts = counted["drafts"]
        places = ", ".join(f"{number / max(drafts, 1):.2f}" for number in counted["by_place"])
        length = 1 + counted["accepted"] / max(drafts, 1)
        return Judged(
            verdict_of(counted["accepted"] > 0),
            f"accepted by place in the draft: {places}; {length:.2f} tokens a step",
        )

    return judge
