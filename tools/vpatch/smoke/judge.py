"""From what engine starts answered to verdicts, each with its evidence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vpatch.smoke.run import Outcome

Verdict = Literal["pass", "fail", "not-run"]
Outcomes = Mapping[str, Outcome]


@dataclass(frozen=True)
class Judged:
    """A verdict and one line that says why."""

    verdict: Verdict
    evidence: str


@dataclass(frozen=True)
class Check:
    """A question to one or several starts.

    Attributes:
        name: ``states/llama-nested/v1/eager``: what is asked, and the start.
        starts: The starts that have to answer first.
        judge: Called with all outcomes once those starts have ended well.
        on_error: Called instead where the (only) start's error is the answer.
    """

    name: str
    starts: tuple[str, ...]
    judge: Callable[[Outcomes], Judged]
    on_error: Callable[[Outcome], Judged] | None = None


@dataclass(frozen=True)
class Result:
    """A check's verdict.

    Attributes:
        seconds: What its starts took; shared by the checks of one start.
        log: Of the start that failed it, or of its own.
    """

    check: str
    verdict: Verdict
    evidence: str
    seconds: float
    log: str = ""
    tail: str = field(default="", repr=False)

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        found = {
            "check": self.check,
            "verdict": self.verdict,
            "seconds": round(self.seconds, 1),
            "evidence": self.evidence,
        }
        return {**found, "log_tail": self.tail} if self.verdict == "fail" else found


def judge_all(checks: Sequence[Check], outcomes: Outcomes) -> list[Result]:
    """Every check, in order."""
    names = {check.name for check in checks}
    return [_judged(check, outcomes, names) for check in checks]


def _judged(check: Check, outcomes: Outcomes, names: Collection[str]) -> Result:
    first = outcomes[check.starts[0]]
    broken = next((outcomes[name] for name in check.starts if outcomes[name].error), None)
    if check.on_error is not None:
        judged = check.on_error(first)
    elif broken is not None:
        judged = Judged("not-run", f"{broken.name} did not run: {_why(broken, names)}")
    else:
        judged = check.judge(outcomes)
    shown = broken or first
    tail = shown.tail() if judged.verdict == "fail" else ""
    seconds = first.seconds
    return Result(check.name, judged.verdict, judged.evidence, seconds, str(shown.log), tail)


def _why(broken: Outcome, names: Collection[str]) -> str:
    """Where its error is told; the error itself where no check of this run tells it."""
    told = f"starts/{broken.name}"
    return f"see {told}" if told in names else short(broken.error or "")


def verdict_of(good: bool) -> Verdict:
    """A yes or no as a verdict."""
    return "pass" if good else "fail"


def short(error: str, limit: int = 300) -> str:
    """An error on one line."""
    line = " ".join(error.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def did_start(outcome: Outcome) -> Judged:
    """The engine started, and every request was answered."""
    if outcome.error is not None:
        return Judged("fail", short(outcome.error))
    outputs = outcome.outputs or {}
    tokens = sum(len(answer) for phase in outputs["phases"].values() for answer in phase["tokens"])
    drafter = f" + {outputs['drafter']}" if outputs["drafter"] else ""
    took = outputs["seconds"]
    return Judged(
        "pass",
        f"{outputs['target']}{drafter}: ready after {took['start']:.0f} s, "
        f"{tokens} tokens in {took['run']:.1f} s",
    )


def compared_requests(outcome: Outcome, phase: str | None = None) -> list[dict[str, Any]]:
    """What engine/compare.py found about each request, of one phase or of all."""
    compared: Mapping[str, Any] = outcome.compared or {"phases": {}}
    phases = compared["phases"]
    return [one for name in phases if phase in (None, name) for one in phases[name]]


def _layers(ids: Sequence[int]) -> str:
    return "(" + ", ".join(map(str, ids)) + ")"


def took_ids(name: str, ids: Sequence[int]) -> Callable[[Outcomes], Judged]:
    """The layers whose states came are the ones asked for, by the reference's states."""

    def judge(outcomes: Outcomes) -> Judged:
        found: Counter[tuple[int, ...]] = Counter()
        for request in compared_requests(outcomes[name]):
            for layers, rows in request["layers"]:
                found[tuple(layers)] += rows
        total = sum(found.values())
        if total == 0:
            return Judged("fail", "the drafter got no row")
        right = found[tuple(ids)]
        if right == total:
            return Judged("pass", f"asked {_layers(ids)}, got them in {total} rows")
        wrong, rows = next(one for one in found.most_common() if one[0] != tuple(ids))
        return Judged(
            "fail", f"asked {_layers(ids)}, but {rows} of {total} rows hold {_layers(wrong)}"
        )

    return judge


def right_states(
    name: str, phase: str | None = None, *, cached: str | None = None
) -> Callable[[Outcomes], Judged]:
    """Every input token has a row, and each row is the reference's within the bound.

    Args:
        name: The start.
        phase: The phase that is judged; all where None.
        cached: A phase whose first tokens may come from the cache, and have no row.
    """

    def judge(outcomes: Outcomes) -> Judged:
        requests = compared_requests(outcomes[name], phase)
        if not requests:
            return Judged("fail", "the drafter got no row")
        bound = (outcomes[name].compared or {})["bound"]
        rows = sum(one["rows"] for one in requests)
        within = sum(one["within"] for one in requests)
        missing = sum(one["first_position"] + len(one["missing"]) for one in requests)
        reused = compared_requests(outcomes[name], cached) if cached else []
        missing -= sum(one["first_position"] for one in reused)
        worsts = [one["worst"] for one in requests]
        apart = min((one["layers_apart"] for one in requests), default=0.0)
        worst = None if None in worsts else max(worsts, default=None)
        said = "not finite, or of another shape" if worst is None else f"{100 * worst:.2g} %"
        scale = f"bound {100 * bound:.2g} %, neighbouring layers {100 * apart:.2g} % apart"
        if missing or not rows:
            return Judged("fail", f"{missing} input tokens have no row; worst {said} ({scale})")
        if within != rows or worst is None:
            return Judged(
                "fail", f"{within} of {rows} rows within the bound; worst {said} ({scale})"
            )
        return Judged("pass", f"{rows} rows, worst {said} ({scale})")

    return judge


def same_tokens(name: str, base: str) -> Callable[[Outcomes], Judged]:
    """Greedy answers with the drafter are those without it, and the reference's own choice."""

    def judge(outcomes: Outcomes) -> Judged:
        equal, ties, different = 0, 0, []
        strays: list[str] = []
        for phase, answered in _phases(outcomes[name]).items():
            pairs = zip(answered["tokens"], _phases(outcomes[base])[phase]["tokens"], strict=True)
            compared = compared_requests(outcomes[name], phase)
            strays += _strays(phase, answered["tokens"], compared)
            for number, (mine, theirs) in enumerate(pairs):
                if mine == theirs:
                    equal += 1
                elif _is_tie(compared[number : number + 1], mine, theirs):
                    ties += 1
                else:
                    different.append(
                        f"{phase} request {number} from token {first_difference(mine, theirs)}"
                    )
        total = equal + ties + len(different)
        if not total:
            return Judged("fail", "there are no answers: this run proves nothing")
        tied = f", {ties} part at a tie of the best logits" if ties else ""
        if different:
            return Judged("fail", f"{equal} of {total} answers equal{tied}; not {different[0]}")
        if strays:
            return Judged("fail", f"not the float32 reference's choice: {strays[0]}")
        return Judged("pass", f"{equal} of {total} answers equal{tied}; {_drafts(outcomes[name])}")

    return judge


def _strays(
    phase: str, answers: Sequence[Sequence[int]], compared: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Where an answer takes a token that rounding cannot make the best one."""
    return [
        f"{phase} request {number}, token {place}"
        for number, (answer, found) in enumerate(zip(answers, compared, strict=True))
        for place, token in enumerate(answer)
        if place < len(found["ties"]) and token not in found["ties"][place]
    ]


def _phases(outcome: Outcome) -> Mapping[str, Any]:
    phases: Mapping[str, Any] = (outcome.outputs or {})["phases"]
    return {name: phase for name, phase in phases.items() if not name.startswith("sampled")}


def first_difference(mine: Sequence[int], theirs: Sequence[int]) -> int:
    """The first place where two answers differ, or the shorter one's length."""
    return next(
        (at for at, (one, other) in enumerate(zip(mine, theirs, strict=False)) if one != other),
        min(len(mine), len(theirs)),
    )


def _is_tie(compared: list[dict[str, Any]], mine: Sequence[int], theirs: Sequence[int]) -> bool:
    if not compared or len(mine) != len(theirs):
        return False
    place = first_difference(mine, theirs)
    return {mine[place], theirs[place]} <= set(compared[0]["ties"][place])


def _drafts(outcome: Outcome) -> str:
    drafted, accepted = acceptance(outcome)
    return f"{sum(accepted)} of {sum(drafted)} drafts accepted"


def acceptance(outcome: Outcome) -> tuple[list[int], list[int]]:
    """By place in the draft: how many were tried, and how many accepted."""
    requests = compared_requests(outcome)
    places = max((len(one["drafted"]) for one in requests), default=0)
    drafted = [sum(one["drafted"][place] for one in requests) for place in range(places)]
    accepted = [sum(one["accepted"][place] for one in requests) for place in range(places)]
    return drafted, accepted


def some_accepted(name: str) -> Callable[[Outcomes], Judged]:
    """Drafts are accepted in all places: by its construction the drafter guesses some tokens."""

    def judge(outcomes: Outcomes) -> Judged:
        drafted, accepted = acceptance(outcomes[name])
        rates = ", ".join(f"{yes}/{all_}" for yes, all_ in zip(accepted, drafted, strict=True))
        good = bool(accepted) and all(accepted)
        return Judged(verdict_of(good), f"accepted by place in the draft: {rates}")

    return judge


def right_guesses(name: str) -> Callable[[Outcomes], Judged]:
    """The drafter's guesses are its definition's."""

    def judge(outcomes: Outcomes) -> Judged:
        requests = compared_requests(outcomes[name])
        certain = sum(one["certain_guesses"] for one in requests)
        wrong = sum(one["wrong_guesses"] for one in requests)
        return Judged(
            verdict_of(certain > 0 and not wrong),
            f"{certain - wrong} of {certain} guesses as its definition's",
        )

    return judge


def took_pieces(name: str, phase: str) -> Callable[[Outcomes], Judged]:
    """Prompts came in pieces, and their rows are right."""

    def judge(outcomes: Outcomes) -> Judged:
        steps = sum(len(one["partial_steps"]) for one in compared_requests(outcomes[name], phase))
        if not steps:
            return Judged("fail", "no prompt was taken in pieces: this run proves nothing")
        states = right_states(name, phase)(outcomes)
        return Judged(states.verdict, f"{steps} steps with a part of a prompt; {states.evidence}")

    return judge


def mixed_steps(name: str, phase: str) -> Callable[[Outcomes], Judged]:
    """Prompts and answers shared steps, and their rows are right."""

    def judge(outcomes: Outcomes) -> Judged:
        requests = compared_requests(outcomes[name], phase)
        prompts = {step for one in requests for step in one["prompt_steps"]}
        answers = {step for one in requests for step in one["answer_steps"]}
        if not prompts & answers:
            return Judged("fail", "no step held a prompt and an answer: this run proves nothing")
        states = right_states(name, phase)(outcomes)
        count = len(prompts & answers)
        return Judged(states.verdict, f"{count} steps with both; {states.evidence}")

    return judge


def refused(pattern: str, limit: float) -> Callable[[Outcome], Judged]:
    """The start ends with this message before it reads weights, within so many seconds.

    The target's weights cannot be read in such a start: another message would come.
    """

    def judge(outcome: Outcome) -> Judged:
        if outcome.error is None:
            return Judged("fail", "was not refused")
        said = short(outcome.error)
        if not re.search(pattern, outcome.error, re.DOTALL):
            if "SafetensorError" in outcome.error:
                return Judged("fail", "was not refused: it went on to read the target's weights")
            return Judged("fail", f"was not refused for this: {said}")
        if outcome.ready is None or outcome.ready > limit:
            after = "nobody knows when" if outcome.ready is None else f"after {outcome.ready:.0f} s"
            return Judged("fail", f"was refused {after}, later than {limit:.0f} s: {said}")
        return Judged("pass", f"after {outcome.ready:.1f} s: {said}")

    return judge
