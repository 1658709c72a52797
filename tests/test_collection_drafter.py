"""What ci/collection_drafter.py asks and how it judges: it has to be able to say no."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "ci"))

import collection_accept as accept  # noqa: E402
from collection_accept import Served  # noqa: E402
from vpatch.collect.prompts import read_prompts  # noqa: E402

ACCEPTED = {"right": 140, "shuffled": 9, "up": 110, "down": 40}
ANSWERS = ((7, 8), (9, 10))


def served(variant: str, seed: int, accepted: int, drafted: int = 1000) -> Served:
    first = accepted * 2 // 3
    places = (first, accepted - first, 0)
    return Served(variant, seed, drafted // 3, drafted, accepted, places, ANSWERS)


def five_seeds(spread: int = 2, **accepted: int) -> list[Served]:
    """Right ones above all others, where nothing else is said; seeds differ by `spread`."""
    counts = {**ACCEPTED, **accepted}
    return [
        served(variant, seed, counts[variant] + spread * (seed - 2))
        for seed in range(5)
        for variant in accept.VARIANTS
    ]


def test_right_states_above_all_others() -> None:
    verdict = accept.judge(five_seeds())
    assert verdict.wrong == ()
    assert verdict.json()["ok"] is True
    assert verdict.rates["right"].mean == pytest.approx(0.140)
    # Student's t of four degrees of freedom, 2.776, times the deviation sqrt(10) over sqrt(5).
    assert verdict.rates["right"].high == pytest.approx(0.140 + 2.776 * 2**0.5 / 1000, abs=1e-5)


@pytest.mark.parametrize("variant", accept.VARIANTS[1:])
def test_swapped_labels_are_found(variant: str) -> None:
    swap = {"right": variant, variant: "right"}
    found = [replace(one, variant=swap.get(one.variant, one.variant)) for one in five_seeds()]
    wrong = accept.judge(found).wrong
    assert [one for one in wrong if f"is not above {variant}" in one]


@pytest.mark.parametrize("variant", accept.VARIANTS[1:])
def test_the_same_drafters_are_not_better(variant: str) -> None:
    found = five_seeds(**{variant: ACCEPTED["right"]})
    (wrong,) = accept.judge(found).wrong
    assert f"is not above {variant}" in wrong


def test_overlapping_intervals_are_not_enough() -> None:
    assert accept.judge(five_seeds(spread=2, up=130)).wrong == ()
    (wrong,) = accept.judge(five_seeds(spread=9, up=130)).wrong
    assert "is not above up: " in wrong


def test_a_better_wrong_one_is_not_enough_for_right() -> None:
    assert len(accept.judge(five_seeds(right=1)).wrong) == 3


def test_who_drafts_nothing_is_named() -> None:
    found = five_seeds()
    found[1] = served("shuffled", 0, 0, drafted=0)
    assert "shuffled/0 drafted nothing" in accept.judge(found).wrong


def test_other_answers_are_named() -> None:
    found = five_seeds()
    found[6] = replace(found[6], answers=((7, 8), (9, 11)))
    (wrong,) = accept.judge(found).wrong
    assert wrong == "1 answers beside up/1 are not those beside right/1"
    assert accept.judge(found, exact=False).wrong == ()


def test_one_answer_of_many_may_differ() -> None:
    many = tuple((number,) for number in range(200))
    found = [replace(one, answers=many) for one in five_seeds()]
    found[6] = replace(found[6], answers=((500,), *many[1:]))
    assert accept.judge(found).wrong == ()


def test_what_an_engine_wrote() -> None:
    counted = {"drafts": 4, "drafted": 12, "accepted": 3, "by_place": [2, 1, 0]}
    outputs = {"drafting": counted, "phases": {"accept": {"tokens": [[5, 6], [7, 8]]}}}
    one = Served.of("up", 3, outputs)
    assert (one.rate, one.first, one.answers) == (0.25, 0.5, ((5, 6), (7, 8)))


def test_table_has_a_line_a_variant() -> None:
    found = five_seeds()
    lines = accept.table(found, accept.judge(found)).splitlines()
    assert len(lines) == 2 + len(accept.VARIANTS)
    assert lines[2].startswith("| right (1, 3, 7) | 0.140 [0.136, 0.144] | ")
    assert len({line.count("|") for line in lines}) == 1


def test_variants_differ_in_what_they_take_alone() -> None:
    jobs = {variant: accept.training(variant, 3) for variant in accept.VARIANTS}
    assert {variant: (job.pop("takes"), job.pop("shuffled")) for variant, job in jobs.items()} == {
        "right": ([1, 3, 7], False),
        "shuffled": ([1, 3, 7], True),
        "up": ([2, 4, 8], False),
        "down": ([0, 2, 6], False),
    }
    assert all(job == jobs["right"] for job in jobs.values())


@pytest.mark.parametrize("variant", accept.VARIANTS[1:])
def test_spoilt_right_ones_are_trained_as_wrong_ones(variant: str) -> None:
    assert accept.training("right", 1, variant) == accept.training(variant, 1)
    assert accept.training("up", 1, variant) == accept.training("up", 1)


@given(st.integers(0, 50), st.integers(0, 50))
def test_seeds_share_no_sample(one: int, other: int) -> None:
    parts = [accept.training("right", seed) for seed in (one, other)]
    rows = [set(range(part["first"], part["first"] + part["count"])) for part in parts]
    assert (one == other) == bool(rows[0] & rows[1])


def test_prompts_are_those_of_a_set(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    accept.write_prompts(path, 2)
    with path.open("rb") as stream:
        assert len(list(read_prompts(stream, "prompts", None))) == 2 * accept.PART
    lines = [json.loads(line)["prompt_token_ids"] for line in path.read_text().splitlines()]
    assert len(set(map(tuple, lines))) == len(lines)
    assert {len(line) for line in lines} == {accept.PROMPT}


def test_a_held_out_prompt_in_the_set_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, *_) = accept.texts(1, "collected", accept.PART, accept.PROMPT)
    monkeypatch.setattr(accept, "held_out", lambda _: [first[7 : 7 + accept.HELD_PROMPT]])
    with pytest.raises(ValueError, match="a held-out prompt is in the set"):
        accept.write_prompts(tmp_path / "prompts.jsonl", 2)
    assert not (tmp_path / "prompts.jsonl").exists()
