"""Verdicts on what engine starts answered: right ones pass, each wrong one fails and says why."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import smoke_lab as lab
from smoke_lab import answered, broken, judged, outcome, request
from vpatch.smoke import judge, judge_full
from vpatch.smoke.judge import Check, Judged, judge_all
from vpatch.smoke.judge_inputs import right_inputs
from vpatch.smoke.run import Outcome


def fails(check: Any, *outcomes: Outcome, why: str) -> None:
    said = judged(check, *outcomes)
    assert said.verdict == "fail"
    assert why in said.evidence


def passes(check: Any, *outcomes: Outcome, why: str = "") -> None:
    said = judged(check, *outcomes)
    assert said == Judged("pass", said.evidence)
    assert why in said.evidence


# a start


def test_an_engine_that_answered_did_start() -> None:
    said = judge.did_start(outcome("a", request(), request()))
    assert said.verdict == "pass"
    assert said.evidence == (
        "KimiK25ForConditionalGeneration + Eagle3LlamaForCausalLM: ready after 12 s, "
        "6 tokens in 3.0 s"
    )
    alone = outcome(outputs={"drafter": None})
    assert " + " not in judge.did_start(alone).evidence


def test_an_engine_that_did_not_says_why_on_one_line() -> None:
    said = judge.did_start(broken(error="ValueError: no\n\n  and " + "x" * 400))
    assert said.verdict == "fail"
    assert said.evidence.startswith("ValueError: no and xxx")
    assert len(said.evidence) == 300


# ids


took_ids = judge.took_ids("a", lab.IDS)


def test_the_ids_asked_for_are_taken() -> None:
    passes(took_ids, outcome("a", request(), request()), why="(1, 3, 7), got them in 10 rows")


@pytest.mark.parametrize("layers", [(2, 4, 5), (1, 3), (1, 3, 8), (7, 3, 1), ()])
def test_other_ids_are_named(layers: Sequence[int]) -> None:
    wrong = request(layers=[[list(lab.IDS), 4], [list(layers), 1]])
    named = ", ".join(map(str, layers))
    fails(took_ids, outcome("a", request(), wrong), why=f"1 of 10 rows hold ({named})")


def test_the_most_frequent_wrong_ids_are_named() -> None:
    wrong = request(layers=[[[0, 0, 0], 1], [[2, 4, 5], 4]])
    fails(took_ids, outcome("a", wrong), why="asked (1, 3, 7), but 4 of 5 rows hold (2, 4, 5)")


def test_no_rows_are_no_ids() -> None:
    fails(took_ids, outcome("a", request(layers=[])), why="no row")
    fails(took_ids, outcome("a", phases={"empty": []}), why="no row")


# states


states = judge.right_states("a")


def test_right_states() -> None:
    said = outcome("a", request(), request(worst=0.02, layers_apart=0.15))
    passes(states, said, why="10 rows, worst 2 % (bound 2.5 %, neighbouring layers 15 % apart)")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"within": 4, "worst": 0.03}, "4 of 5 rows within the bound; worst 3 %"),
        ({"within": 0, "worst": 0.9}, "0 of 5 rows within the bound"),
        # NaN, infinite, or other states than asked for: compare.py says null.
        ({"within": 4, "worst": None}, "not finite, or of another shape"),
        ({"within": 5, "worst": None}, "not finite, or of another shape"),
        ({"rows": 4, "within": 4, "missing": [2]}, "1 input tokens have no row"),
        ({"rows": 3, "within": 3, "first_position": 2}, "2 input tokens have no row"),
        (
            {"rows": 0, "within": 0, "worst": 0.0, "first_position": 5, "layers": []},
            "5 input tokens have no row",
        ),
    ],
)
def test_wrong_states(changes: dict[str, Any], why: str) -> None:
    for requests in itertools.permutations([request(), request(**changes)]):
        said = judged(states, outcome("a", *requests))
        assert said.verdict == "fail"
    fails(states, outcome("a", request(**changes)), why=why)


def test_no_states_at_all() -> None:
    fails(states, outcome("a", phases={"empty": []}), why="the drafter got no row")
    fails(states, replace(outcome("a"), compared=None), why="the drafter got no row")
    fails(judge.right_states("a", "other"), outcome("a"), why="the drafter got no row")


def test_states_of_one_phase() -> None:
    said = outcome("a", phases={"one": [request()], "two": [request(within=0, worst=1.0)]})
    passes(judge.right_states("a", "one"), said)
    fails(judge.right_states("a", "two"), said, why="0 of 5")
    fails(states, said, why="5 of 10")


# greedy


same = judge.same_tokens("a", "b")


def test_the_same_tokens() -> None:
    with_drafter, alone = (
        answered("a", batch=[[11, 12, 14]] * 2),
        answered("b", batch=[[11, 12, 14]] * 2),
    )
    passes(same, with_drafter, alone, why="2 of 2 answers equal; 2 of 10 drafts accepted")


@pytest.mark.parametrize(
    ("mine", "place"),
    [
        ([11, 12, 15], 2),
        ([10, 12, 14], 0),
        ([11, 12], 2),
        ([11, 12, 14, 14], 3),
        ([], 0),
        ([11, 99, 14], 1),  # the other one is in a tie, this one is not
    ],
)
def test_another_token_is_found(mine: list[int], place: int) -> None:
    with_drafter = answered("a", batch=[lab.ANSWER], mixed=[lab.ANSWER, mine])
    alone = answered("b", batch=[lab.ANSWER], mixed=[lab.ANSWER] * 2)
    why = f"2 of 3 answers equal; not mixed request 1 from token {place}"
    fails(same, with_drafter, alone, why=why)


def test_two_tokens_of_a_tie_are_no_error() -> None:
    with_drafter = answered("a", batch=[[11, 13, 14], lab.ANSWER])
    alone = answered("b", batch=[[11, 12, 99], lab.ANSWER])
    passes(same, with_drafter, alone, why="1 of 2 answers equal, 1 part at a tie")
    wrong_alone = answered("b", batch=[[11, 99, 14], lab.ANSWER])
    fails(same, with_drafter, wrong_alone, why="not batch request 0 from token 1")
    # What follows is another text; but a tie is no excuse for what came before it.
    earlier = answered("a", batch=[[10, 13, 14], lab.ANSWER])
    fails(same, earlier, alone, why="not batch request 0 from token 0")


def test_equal_answers_that_the_reference_would_not_give_are_wrong() -> None:
    """An engine that chooses badly with and without a drafter."""
    stray = [11, 12, 99]
    with_drafter = answered("a", batch=[lab.ANSWER, stray])
    alone = answered("b", batch=[lab.ANSWER, stray])
    fails(same, with_drafter, alone, why="not the float32 reference's choice: batch request 1")


def test_sampled_answers_are_not_compared() -> None:
    with_drafter = answered("a", batch=[lab.ANSWER], sampled=[[1]])
    passes(same, with_drafter, answered("b", batch=[lab.ANSWER]), why="1 of 1")


def test_no_answers_are_not_the_same() -> None:
    fails(same, answered("a"), answered("b"), why="no answers")


# drafts


def test_accepted_drafts_by_place() -> None:
    said = outcome("a", request(), request(drafted=[3, 1, 0], accepted=[2, 1, 0]))
    assert judge.acceptance(said) == ([5, 3, 1], [3, 1, 0])
    every = outcome("a", request(), request(drafted=[3, 1, 1], accepted=[2, 1, 1]))
    passes(judge.some_accepted("a"), every, why="3/5, 1/3, 1/2")
    assert judge.acceptance(outcome("a", phases={"empty": []})) == ([], [])


def test_no_draft_accepted() -> None:
    said = outcome("a", request(accepted=[0, 0, 0]))
    fails(judge.some_accepted("a"), said, why="0/2, 0/2, 0/1")
    fails(judge.some_accepted("a"), outcome("a", phases={"empty": []}), why="accepted")
    # Each place has to have one: the token after a whole draft comes another way than others.
    last = request(drafted=[2, 2, 1], accepted=[2, 1, 0])
    fails(judge.some_accepted("a"), outcome("a", last, last), why="4/4, 2/4, 0/2")


def test_guesses() -> None:
    guesses = judge.right_guesses("a")
    passes(guesses, outcome("a", request(), request()), why="8 of 8")
    wrong = request(wrong_guesses=1)
    fails(guesses, outcome("a", request(), wrong), why="7 of 8 guesses as its definition's")
    fails(guesses, outcome("a", request(certain_guesses=0)), why="0 of 0")


def test_what_drafters_embed() -> None:
    inputs = right_inputs("a")
    said = "10 rows embed the token after theirs, 2 at the end of a part of a prompt, 0 at a pic"
    passes(inputs, outcome("a", request(), request()), why=said)
    wrong = request(embeds_wrong=[6, 13])
    why = "2 of 10 rows embed something else, the first at position 6 (2 at the end of a part"
    fails(inputs, outcome("a", request(), wrong), why=why)
    fails(inputs, outcome("a", request(embeds=0)), why="0 rows, 1 at the end")
    fails(inputs, outcome("a", phases={"empty": []}), why="proves nothing")


def test_inputs_that_have_to_be_there() -> None:
    ends = right_inputs("a", at_ends=True)
    passes(ends, outcome("a", request(embeds_at_ends=0), request()))
    fails(ends, outcome("a", request(embeds_at_ends=0)), why="proves nothing")
    picture = right_inputs("a", of_picture=True)
    passes(picture, outcome("a", request(embeds_of_picture=4)), why="4 at a picture")
    fails(picture, outcome("a", request()), why="proves nothing")


def test_weights_that_a_drafter_lacks() -> None:
    lacking = judge_full.refused_weights(r"lacks \[[^]]*fc\.weight")
    said = lacking(broken(error="ValueError: The checkpoint lacks ['model.fc.weight'], which"))
    assert said.verdict == "pass"
    assert "model.fc.weight" in said.evidence
    other = lacking(broken(error="ValueError: The checkpoint lacks ['norm.weight'], fc.weight"))
    assert other.verdict == "fail"
    assert "not refused for this: ValueError" in other.evidence
    assert lacking(outcome()) == Judged("fail", "was not refused")


# steps


def test_prompts_in_pieces() -> None:
    pieces = judge.took_pieces("a", "batch")
    passes(pieces, outcome("a", request(), request()), why="2 steps with a part of a prompt; 10")
    whole = request(partial_steps=[])
    fails(pieces, outcome("a", whole), why="proves nothing")
    elsewhere = outcome("a", phases={"batch": [whole], "mixed": [request()]})
    fails(pieces, elsewhere, why="proves nothing")
    fails(pieces, outcome("a", request(within=4)), why="4 of 5 rows within")


def test_mixed_steps() -> None:
    mixed = judge.mixed_steps("a", "mixed")
    one = request(prompt_steps=[0], answer_steps=[1, 2])
    other = request(prompt_steps=[2, 3], answer_steps=[4])
    passes(mixed, outcome("a", one, other, phase="mixed"), why="1 steps with both; 10 rows")
    apart = request(prompt_steps=[3], answer_steps=[4])
    fails(mixed, outcome("a", one, apart, phase="mixed"), why="proves nothing")
    fails(mixed, outcome("a", phases={"batch": [one, other], "mixed": [one]}), why="proves nothing")
    fails(mixed, outcome("a", one, other | {"within": 0}, phase="mixed"), why="5 of 10 rows within")


# refusals


refused = judge.refused(r"\[99\].*8 layers", 60)


def test_refused_in_time_for_its_reason() -> None:
    said = refused(broken(error="ValueError: ids [99] are\nnot of 8 layers", ready=3.0))
    assert said == Judged("pass", "after 3.0 s: ValueError: ids [99] are not of 8 layers")


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        (outcome(), "was not refused"),
        (broken(error="SafetensorError: [98] of 8 layers"), "went on to read the target's weights"),
        (broken(error="8 layers, not [99]"), "not refused for this"),
        (broken(error="[99] of 8 layers", ready=61.0), "after 61 s, later than 60 s"),
        (broken(error="[99] of 8 layers", ready=None), "nobody knows when"),
        (broken(error="the engine's process was killed by signal SIGKILL"), "SIGKILL"),
    ],
)
def test_not_refused(ended: Outcome, why: str) -> None:
    said = refused(ended)
    assert said.verdict == "fail"
    assert why in said.evidence


# all checks


def test_a_broken_start_fails_its_own_check_and_runs_no_other(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    start = Check("starts/a", ("a",), lambda found: judge.did_start(found["a"]), judge.did_start)
    checks = [start, lab.check("states/a", "a"), lab.check("greedy/b", "b", "a")]
    outcomes = {"a": replace(broken("a"), log=log), "b": outcome("b")}
    own, states_, greedy = judge_all(checks, outcomes)
    assert (own.verdict, own.evidence) == ("fail", "ValueError: no")
    assert own.tail.splitlines() == [f"line {number}" for number in range(60, 100)]
    assert own.as_dict()["log_tail"] == own.tail
    for one in (states_, greedy):
        assert (one.verdict, one.evidence) == ("not-run", "a did not run: see starts/a")
        assert "log_tail" not in one.as_dict()


def test_a_broken_start_is_told_where_nobody_asks_whether_it_started() -> None:
    (result,) = judge_all([lab.check("states/a", "a")], {"a": broken("a", "ValueError: no\nway")})
    assert (result.verdict, result.evidence) == ("not-run", "a did not run: ValueError: no way")


def test_results_are_in_the_checks_order_with_their_seconds() -> None:
    checks = [lab.check("two/a", "a", verdict="fail"), lab.check("one/b", "b", "a")]
    outcomes = {"a": replace(outcome("a"), seconds=1.26), "b": replace(outcome("b"), seconds=2)}
    told = [one.as_dict() for one in judge_all(checks, outcomes)]
    assert told[0] == {
        "check": "two/a",
        "verdict": "fail",
        "seconds": 1.3,
        "evidence": "said",
        "log_tail": "",
    }
    assert told[1]["check"] == "one/b"
    assert told[1]["seconds"] == 2


def test_a_refusal_that_did_not_come_fails() -> None:
    check = Check("refused/a", ("a",), lambda _found: pytest.fail("never"), refused)
    (result,) = judge_all([check], {"a": outcome("a")})
    assert result.verdict == "fail"


# the full tier


reused = judge_full.reused_blocks("a")


def twice(first: dict[str, Any], again: dict[str, Any], tokens: list[int]) -> Outcome:
    phases = {"first": {"tokens": [lab.ANSWER]}, "again": {"tokens": [tokens]}}
    return outcome("a", phases={"first": [first], "again": [again]}, outputs={"phases": phases})


SHORTER = {"first_position": 2, "rows": 3, "within": 3}


def test_blocks_are_reused() -> None:
    said = twice(request(), request(**SHORTER), lab.ANSWER)
    passes(reused, said, why="2 tokens from the cache; 8 rows")


@pytest.mark.parametrize(
    ("first", "again", "tokens", "why"),
    [
        ({}, {}, lab.ANSWER, "proves nothing"),
        ({}, SHORTER, [1], "answers differ"),
        ({}, SHORTER | {"within": 2}, lab.ANSWER, "7 of 8 rows"),
        ({}, SHORTER | {"missing": [3]}, lab.ANSWER, "1 input tokens have no row"),
        # Nothing is in the cache the first time.
        (SHORTER, SHORTER, lab.ANSWER, "2 input tokens have no row"),
    ],
)
def test_blocks_that_are_not_reused(
    first: dict[str, Any], again: dict[str, Any], tokens: list[int], why: str
) -> None:
    fails(reused, twice(request(**first), request(**again), tokens), why=why)


def picture(length: int, **changes: Any) -> Outcome:
    phases = {"picture": {"prompts": [[1] * length], "tokens": [lab.ANSWER]}}
    return outcome("a", request(**changes), phase="picture", outputs={"phases": phases})


def test_pictures() -> None:
    saw = judge_full.saw_picture("a", 19)
    passes(saw, picture(19), why="prompt of 19 tokens with a picture; 5 rows")
    fails(saw, picture(16), why="16 tokens, not 19")
    fails(saw, picture(19, within=1), why="1 of 5 rows")


DRAFTING = {"drafts": 9, "drafted": 9, "accepted": 4, "by_place": [4]}


def sampled(sequences: list[list[int]], after: list[dict[str, Any]]) -> Outcome:
    phases = {"sampled": {"tokens": sequences}}
    said = outcome("a", outputs={"phases": phases, "drafting": DRAFTING})
    return replace(said, compared={"after": after})


def test_distributions() -> None:
    keeps = judge_full.keeps_distribution("a")
    after = [{"prefix": [7], "probabilities": [0.5, 0.5]}]
    fair = [[7, number % 2] for number in range(400)]
    passes(keeps, sampled(fair, after), why="400 tokens")
    passes(keeps, sampled(fair, after), why="; 4 of 9 drafts accepted")
    fails(keeps, sampled([[7, 0]] * 400, after), why="p = ")
    fails(keeps, sampled(fair[:4], after), why="proves nothing")
    fails(keeps, sampled(fair, []), why="proves nothing")
    fails(keeps, undrafted(sampled(fair, after)), why="no draft was accepted")


def undrafted(said: Outcome) -> Outcome:
    return replace(said, outputs={**(said.outputs or {}), "drafting": {"drafted": 9}})


WORDS = [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 100, 399]


def structured(name: str, *answers: list[int]) -> Outcome:
    phases = {"structured": {"tokens": list(answers)}}
    return outcome(name, outputs={"phases": phases, "drafting": DRAFTING})


def test_grammars() -> None:
    obeyed = judge_full.obeyed("a", "b")
    right, other = [*WORDS, 2], [*WORDS[::-1], 2]
    alone = structured("b", right, other)
    passes(obeyed, structured("a", right, other), alone, why="2 answers of the grammar")
    fails(obeyed, structured("a", right, right), alone, why="not those of the target alone")
    fails(obeyed, structured("a", right), alone, why="not those of the target alone")
    drafted = structured("a", right, other)
    fails(obeyed, undrafted(drafted), alone, why="0 of 9 drafts accepted")
    fails(obeyed, structured("a"), structured("b"), why="0 answers")


@pytest.mark.parametrize(
    "answer",
    [[], [2], WORDS, [*WORDS[:-1], 2], [*WORDS, 10, 2], [20, *WORDS[1:], 2], [*WORDS, 3]],
)
def test_what_is_not_of_the_grammar(answer: list[int]) -> None:
    ended = [structured(name, answer) for name in "ab"]
    fails(judge_full.obeyed("a", "b"), *ended, why="is not of the grammar")


def rated(name: str, accepted: int) -> Outcome:
    return outcome(name, request(drafted=[100, 9, 9], accepted=[accepted, 0, 0]))


def trained(right: Sequence[int], wrong: Sequence[int]) -> Judged:
    starts = [f"{kind}{seed}" for kind in "rw" for seed in range(5)]
    check = judge_full.trained_for_ids(starts[:5], starts[5:])
    return judged(check, *map(rated, starts, [*right, *wrong]))


def test_ids_are_worth_something() -> None:
    said = trained([60, 61, 62, 61, 60], [40, 41, 42, 41, 40])
    assert said.verdict == "pass"
    assert "right ids 0.608 [" in said.evidence
    assert "5 seeds" in said.evidence
    assert trained([40, 41, 42, 41, 40], [60, 61, 62, 61, 60]).verdict == "fail"
    assert trained([60, 20, 62, 90, 60], [40, 41, 42, 41, 40]).verdict == "fail"
    assert trained([50] * 5, [50] * 5).verdict == "fail"


def test_a_start_without_drafts_has_the_rate_0() -> None:
    check = judge_full.trained_for_ids(["a", "b"], ["c", "d"])
    found = [outcome(name, phases={"empty": []}) for name in "abcd"]
    assert judged(check, *found).verdict == "fail"


SERVED = {
    "tokens": [lab.ANSWER],
    "streamed": [lab.ANSWER],
    "metrics": {"drafts": 4, "drafted": 12, "accepted_by_position": [3, 1, 0]},
}


def test_http() -> None:
    check = judge_full.served_the_same("s", "b")
    base = answered("b", batch=[lab.ANSWER])

    def server(**changes: Any) -> Outcome:
        return replace(outcome("s"), outputs={**SERVED, **changes}, compared=None)

    passes(check, server(), base, why="1 answers equal, streamed too; accepted by place in")
    for kind in ("tokens", "streamed"):
        fails(check, server(**{kind: [[1]]}), base, why=f"({kind}) are not the engine's own")
        fails(check, server(**{kind: []}), base, why=f"({kind}) are not the engine's own")
    silent = {**SERVED["metrics"], "drafted": 0}  # type: ignore[dict-item]
    fails(check, server(metrics=silent), base, why="drafted nothing")


def test_a_server_that_answers_did_serve() -> None:
    assert judge_full.did_serve(broken(error="it\nended")) == Judged("fail", "it ended")
    said = outcome(outputs={"seconds": {"start": 20.4}})
    assert judge_full.did_serve(said).evidence == "answered over HTTP, ready after 20 s"


def test_nan_is_not_small() -> None:
    fails(states, outcome("a", request(within=4, worst=math.nan)), why="4 of 5")
