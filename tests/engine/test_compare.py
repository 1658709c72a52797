"""compare.py finds what is wrong with hand-made rows; rows.py records what a drafter got."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import smoke_lab
from engine.children import plain

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

SPEC = {"shape": {}, "targets": [{"name": "kimi", "layers": 2, "dense": 2}], "drafters": []}


@pytest.fixture(scope="module")
def facts(
    engine_python: Path, library: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What engine.compare_facts found out."""
    folder = tmp_path_factory.mktemp("compare")
    spec, job = folder / "spec.json", folder / "job.json"
    spec.write_text(json.dumps({"folder": str(folder / "models"), **SPEC}))
    plain(engine_python, library, "vpatch.smoke.engine.models", spec)
    job.write_text(json.dumps({"folder": str(folder), "target": str(folder / "models/kimi")}))
    found: dict[str, Any] = json.loads(plain(engine_python, library, "engine.compare_facts", job))
    return found


RIGHT = {"rows": 5, "within": 5, "first_position": 0, "missing": [], "layers": [[[1, 3, 7], 5]]}
STATES: dict[str, dict[str, Any]] = {
    "right": {"worst": 0.0},
    "near": {"worst": pytest.approx(0.005, rel=1e-3)},
    "far": {"within": 0, "worst": pytest.approx(0.02, rel=1e-3)},
    "other layers": {"within": 0, "layers": [[[2, 4, 5], 5]]},
    "fewer layers": {"within": 0, "worst": None, "layers": [[[1, 3], 5]]},
    "no whole states": {"within": 0, "worst": None, "layers": [[[], 5]]},
    "not a number": {"within": 4, "worst": None},
    "infinite": {"within": 0, "worst": None},
    "one missing": {"rows": 4, "within": 4, "missing": [1], "layers": [[[1, 3, 7], 4]]},
    "first missing": {"rows": 3, "within": 3, "first_position": 2, "layers": [[[1, 3, 7], 3]]},
    "last missing": {"rows": 4, "within": 4, "missing": [4], "layers": [[[1, 3, 7], 4]]},
    "none": {"rows": 0, "within": 0, "first_position": 5, "layers": []},
    # A guess that was not taken has no row that counts, nor has what was guessed after it.
    "rejected": {},
    "after a rejected one": {"rows": 3, "within": 3, "missing": [3, 4], "layers": [[[1, 3, 7], 3]]},
}


@pytest.mark.parametrize("case", STATES)
def test_states(facts: dict[str, Any], case: str) -> None:
    found = facts["states"][case]
    wanted = {**RIGHT, **STATES[case]}
    if case in {"not a number", "infinite"}:  # nearest to nothing
        del wanted["layers"]
    assert {name: found[name] for name in wanted} == wanted
    assert found["inputs"] == 5
    assert found["layers_apart"] > 0


def test_no_case_is_left_out(facts: dict[str, Any]) -> None:
    assert set(facts["states"]) == set(STATES)


def test_answers(facts: dict[str, Any]) -> None:
    assert facts["answer"] == {"greedy": True, "ties": [[11], [12, 13], [14]]}


def test_steps(facts: dict[str, Any]) -> None:
    assert facts["steps"] == {"partial_steps": [0], "prompt_steps": [0, 1], "answer_steps": [2]}


def test_drafts(facts: dict[str, Any]) -> None:
    tried = [1, 1, 1]
    assert facts["drafts"] == {
        # 12 and 14 came; but an answer's last token may be the target's own.
        "at the end": {"drafted": [1, 0, 0], "accepted": [1, 0, 0]},
        # All guesses were right but the last one: what counts is where the engine went on.
        "both": {"drafted": tried, "accepted": [1, 1, 0]},
        "one": {"drafted": tried, "accepted": [1, 0, 0]},
        "none": {"drafted": tried, "accepted": [0, 0, 0]},
    }


def test_guesses(facts: dict[str, Any]) -> None:
    found = facts["guesses"]
    counts = {case: (one["certain_guesses"], one["wrong_guesses"]) for case, one in found.items()}
    assert counts == {
        "right": (4, 0),
        "wrong": (4, 1),
        "wrong after a part of the prompt": (4, 1),
        "none after a part of the prompt": (3, 0),
        "none after the prompt": (4, 3),
        "near": (2, 0),
        "not near": (4, 2),
        "a missing row": (0, 0),
    }
    # All states so far, each beside the token after it; of a part of the prompt one guess; not the
    # last step.
    assert found["right"]["asked"] == [[2, [6, 7], 1], [3, [6, 7, 11], 3]]


EMBEDS: dict[str, tuple[list[int], int, int]] = {
    "right": ([], 1, 0),
    # The prompt's last token after each part of it, as V1 of v0.26.0 to v0.33.0 has it.
    "the last token after a part": ([1], 1, 0),
    "not heard": ([0, 1, 2, 3, 4], 1, 0),
    "one further": ([0, 1, 2, 3, 4], 1, 0),
    "a picture": ([], 1, 2),
    "a placeholder in its place": ([0, 1], 1, 2),
    "a placeholder as it is": ([], 1, 2),
}


@pytest.mark.parametrize("case", EMBEDS)
def test_what_is_embedded(facts: dict[str, Any], case: str) -> None:
    found = facts["embeds"][case]
    wrong, ends, picture = EMBEDS[case]
    # The guess that was not taken does not count.
    assert found == {
        "embeds": 5,
        "embeds_wrong": wrong,
        "embeds_at_ends": ends,
        "embeds_of_picture": picture,
    }


def test_no_case_of_embeds_is_left_out(facts: dict[str, Any]) -> None:
    assert set(facts["embeds"]) == set(EMBEDS)


def test_a_whole_comparison(facts: dict[str, Any]) -> None:
    found = facts["whole"]
    (request,) = found["first"]["phases"].pop("batch")
    assert found["first"]["phases"] == {}
    assert request["within"] == request["rows"] == request["inputs"] == 6
    assert request["greedy"]
    assert [len(tied) for tied in request["ties"]] == [1] * 4
    assert request["layers"] == [[[0, 2], 6]]
    assert (request["drafted"], request["accepted"]) == ([1, 1, 0], [1, 1, 0])
    # What judge.py's tests are built of.
    beside = {name for name in smoke_lab.REQUEST if "guesses" in name or "embeds" in name}
    assert set(request) == set(smoke_lab.REQUEST) - beside


def test_the_references_runs_are_kept(facts: dict[str, Any]) -> None:
    assert facts["whole"]["kept"] == 1
    assert facts["whole"]["same"]


def test_a_placeholder_that_is_answered_is_no_picture(facts: dict[str, Any]) -> None:
    assert facts["whole"]["placeholder is as any"]


def test_an_answer_that_is_not_greedy(facts: dict[str, Any]) -> None:
    (request,) = facts["whole"]["other"]["phases"]["batch"]
    assert not request["greedy"]
    assert request["rows"] == 6


V1: dict[str, list[Any]] = {
    "request": [4, 2, 2, 2],
    "position": [9, 0, 1, 2],
    "token": [50, 51, 52, 53],
    "step": [0, 0, 0, 0],
    "states": [[float(6 * row + value) for value in range(6)] for row in range(4)],
    "guesses": [[7, 7, 7], [7, 7, 7]],
    "guesses_request": [4, 2],
    "guesses_step": [0, 0],
}


def test_v1_is_recorded_without_padding(facts: dict[str, Any]) -> None:
    assert facts["recorded"]["v1"] == V1
    assert facts["recorded"]["junk in padding"] == V1
    assert "not what the target handed over" in facts["recorded"]["junk in a row"]["refused"]


def test_mrv2_is_recorded_without_dummy_runs(facts: dict[str, Any]) -> None:
    found = facts["recorded"]["mrv2"]
    assert found.pop("media") == [[1.0] * 3, [1.0] * 3, [0.0] * 3]
    assert found.pop("step") == [0] * 4 + [1] * 4
    assert found.pop("guesses_step") == [0, 0, 1, 1]
    states = found.pop("states")
    assert states[:4] == V1["states"]
    assert states[4][0] == 1.0
    assert found == {name: 2 * V1[name] for name in found}


def test_what_is_embedded_is_recorded_of_a_steps_first_call(facts: dict[str, Any]) -> None:
    found = facts["recorded"]
    for case, embeds in {
        "ids": [[51.0, -51.0], [52.0, -52.0], [53.0, -53.0], [54.0, -54.0]],
        "embeddings": [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]],
    }.items():
        assert found[case] == {**V1, "embeds": embeds}
    # A graph that is replayed calls no model; what is embedded in it is unknown, not right.
    assert found["nothing heard"].pop("embeds") == ["nan"] * 4
    assert found["nothing heard"] == V1


def test_what_fc_does_not_get_is_not_recorded(facts: dict[str, Any]) -> None:
    found = facts["recorded"]
    assert found["fc of another size"] == {"refused": "fc takes 4 values, got 6"}
    assert "not what the target handed over" in found["other values"]["refused"]
