"""A user's own checkpoints: what may be asked, and what counts as the same answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from vpatch.errors import UsageError
from vpatch.smoke import judge_own
from vpatch.smoke.plan import Wish
from vpatch.smoke.plan_own import Own, check_folder, length_of, own_plan, read_options
from vpatch.smoke.releases import facts_of
from vpatch.smoke.run import Outcome

WISH = Wish("cuda", "core", ("v1", "v2"))
FACTS = facts_of(Version("0.17.1"))
LONG = 16


@pytest.fixture(autouse=True)
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A target's folder, the working folder's."""
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "config.json").write_text('{"text_config": {"max_position_embeddings": 262144}}')
    monkeypatch.chdir(tmp_path)
    return folder


def own(**options: Any) -> Own:
    return Own(Path("target"), Path("drafter"), options)


def answered(name: str, tokens: list[list[int]], *, margin: float = 3.0) -> Outcome:
    best = [[{"tokens": [token, 500], "margin": margin} for token in one] for one in tokens]
    phases = {"batch": {"tokens": tokens, "best": best}}
    return Outcome(name, {"phases": phases}, None, None, 1.0, 1.0, Path("no-log"))


def verdict(mine: list[list[int]], theirs: list[list[int]], margin: float = 3.0) -> str:
    outcomes = {"a": answered("a", mine), "b": answered("b", theirs, margin=margin)}
    return judge_own.same_answers("a", "b")(outcomes).verdict


def test_options_are_json_or_text() -> None:
    read = read_options(["tensor_parallel_size=8", "dtype=bfloat16", 'x={"y": [1]}', "z=a=b"])
    assert read == {"tensor_parallel_size": 8, "dtype": "bfloat16", "x": {"y": [1]}, "z": "a=b"}


@pytest.mark.parametrize(
    "word", ["no-value", "=8", "a-b=1", "model=/other", "speculative_config={}", "seed=1"]
)
def test_options_that_void_the_comparison_are_refused(word: str) -> None:
    with pytest.raises(UsageError, match="--option"):
        read_options([word])


def test_a_folder_without_a_config_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no config\.json"):
        check_folder("target", tmp_path)


def test_the_plan_starts_both_on_each_runner() -> None:
    plan = own_plan(WISH, own(tensor_parallel_size=8), FACTS)
    names = [start.name for start in plan.starts]
    assert names == ["target/v1", "drafter/v1", "target/v2", "drafter/v2"]
    for start in plan.starts:
        assert start.job["options"]["tensor_parallel_size"] == 8
        assert ("drafter" in start.job) == start.name.startswith("drafter")


def test_a_short_target_is_not_asked_for_more_than_it_takes(target: Path) -> None:
    assert length_of(target) == 4096
    (target / "config.json").write_text('{"max_position_embeddings": 256}')
    assert length_of(target) == 256


@pytest.mark.parametrize("config", ["", "[]", '{"text_config": 1}', "\xff"])
def test_a_config_that_is_none_is_refused(target: Path, config: str) -> None:
    (target / "config.json").write_text(config)
    with pytest.raises(UsageError, match="config"):
        check_folder("target", target)


def test_a_checkpoints_code_runs_only_where_its_user_says_so() -> None:
    (start, *_) = own_plan(WISH, own(), FACTS).starts
    assert "trust_remote_code" not in start.job["options"]
    (start, *_) = own_plan(WISH, own(trust_remote_code=True), FACTS).starts
    assert start.job["options"]["trust_remote_code"] is True


def test_each_name_of_a_check_has_to_be_one() -> None:
    with pytest.raises(UsageError, match="'typo'"):
        own_plan(Wish("cuda", "core", ("v1",), ("starts", "typo")), own(), FACTS)


def test_answers_are_the_same_up_to_ties() -> None:
    same = [[1] * LONG, [2] * LONG]
    assert verdict(same, same) == "pass"
    tied = [[1] * LONG, [2, 2, 500, *[7] * (LONG - 3)]]
    assert verdict(tied, same, margin=0.1) == "pass"
    assert verdict(tied, same, margin=0.3) == "fail"


def test_a_tie_excuses_only_its_two_tokens() -> None:
    same = [[1] * LONG, [2] * LONG]
    other = [[1] * LONG, [2, 2, 9, *[7] * (LONG - 3)]]
    assert verdict(other, same, margin=0.1) == "fail"


def test_a_run_of_ties_proves_nothing() -> None:
    theirs = [[1] * LONG for _ in range(8)]
    mine = [[500] * LONG for _ in range(8)]
    assert verdict(mine, theirs, margin=0.1) == "fail"


def test_an_answer_cut_short_is_another_one() -> None:
    assert verdict([[1] * 5], [[1] * LONG], margin=0.1) == "fail"
