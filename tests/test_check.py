"""`vpatch check` says what was looked at, and what helps there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import gates_lab
from project_lab import vpatch
from vpatch.patches.pin import PIN

REPO = Path(__file__).resolve().parent.parent


@pytest.mark.network
def test_a_release_with_and_without_its_series(
    release_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vpatch("check", "v0.33.0", "--repo", str(REPO)) == 0
    assert "v0.33.0 with its series (runner" in capsys.readouterr().out
    assert vpatch("check", "v0.33.0", "--unpatched", "--repo", str(REPO)) == 1
    told = capsys.readouterr().out
    # On v0.17.1 another topic mends it.
    assert "\ndrafter-fc: " in told
    assert "mended by topic eagle3-interface\n" not in told
    assert told.endswith(
        "-> with its series: vpatch check v0.33.0; as a wheel: vpatch build v0.33.0\n"
    )


@pytest.mark.network
def test_a_release_without_a_series_gets_no_command_that_fails(
    release_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vpatch("check", "v0.18.0", "--unpatched", "--repo", str(REPO)) == 1
    assert "vpatch build" not in capsys.readouterr().out


@pytest.mark.network
def test_a_series_that_lies_anywhere(
    release_cache: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a rebase writes it with --out, and outside of any repository."""
    made = tmp_path / "made"
    shutil.copytree(REPO / "patches/v0.33.0", made)
    monkeypatch.chdir(tmp_path)
    assert vpatch("check", "--series", "made") == 0
    out = capsys.readouterr().out
    assert f"v0.33.0 in {made} with its series (runner" in out
    assert "FAIL" not in out
    # It is this folder's series that is applied.
    last = (made / "series").read_text().split()[-1]
    (made / last).write_text((made / last).read_text().replace("[PATCH]", "[PATCH 1/9]", 1))
    assert vpatch("check", "--series", "made", "--json") == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "series-changed"
    assert "--out DIR" in error["hint"]
    (made / PIN).unlink()
    assert vpatch("check", "--series", "made", "--json") == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "no-pin"
    for more in (["v0.33.0"], ["--tree", "made"], ["--unpatched"], ["--repo", str(REPO)]):
        assert vpatch("check", "--series", "made", *more) == 2
        assert "--series" in capsys.readouterr().err


def _said(told: str, runner: str, gate: str) -> dict[str, Any]:
    """What ``--json`` says of a gate beside a runner."""
    (tree,) = (each for each in json.loads(told)["trees"] if each["runner"] == runner)
    (found,) = (each for each in tree["gates"] if each["gate"] == gate)
    return dict(found)


@pytest.mark.network
def test_the_runner_that_nobody_took_by_default_is_asked_too(
    release_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("check", "v0.26.0", "--unpatched", "--json", "--repo", str(REPO))
    assert vpatch(*asked) == 1
    assert _said(capsys.readouterr().out, "v1", "ids-nested")["verdict"] == "pass"
    assert vpatch(*asked, "--runner", "v2") == 1
    found = _said(capsys.readouterr().out, "v2", "ids-nested")
    assert found["verdict"] == "fail"
    assert found["note"].endswith("ignored by the V2 runner: (2, 4, 5) are taken")
    assert "eagle3_utils.py" in found["evidence"][0]["file"]
    assert vpatch("check", "v0.26.0", "--runner", "all", "--json", "--repo", str(REPO)) == 0
    told = capsys.readouterr().out
    assert [each["default_runner"] for each in json.loads(told)["trees"]] == [True, False]
    assert _said(told, "v2", "ids-nested")["verdict"] == "pass"


@pytest.mark.network
@pytest.mark.parametrize(
    ("tag", "said"),
    [("v0.16.0", "does not hand the target's aux hidden states"), ("v0.17.1", "one KV-cache")],
)
def test_a_runner_that_a_series_refuses_is_no_runner_to_take(
    tag: str, said: str, release_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vpatch("check", tag, "--runner", "all", "--json", "--repo", str(REPO)) == 1
    told = capsys.readouterr().out
    assert {each["runner"]: each["failed"][:1] for each in json.loads(told)["trees"]} == {
        "v1": [],
        "v2": ["drafter"],
    }
    found = _said(told, "v2", "drafter")
    assert said in found["error"]
    assert "VLLM_USE_V2_MODEL_RUNNER=0" in found["note"]


def test_all_runners_are_those_that_a_tree_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gates_lab.write(tmp_path)
    assert vpatch("check", "--tree", str(tmp_path), "--runner", "all", "--json") == 1
    assert [each["runner"] for each in json.loads(capsys.readouterr().out)["trees"]] == ["v1"]
    assert vpatch("check", "--tree", str(tmp_path), "--runner", "v2", "--json") == 1
    error = "ModuleNotFoundError: No module named 'vllm.v1.worker.gpu.model_runner'"
    assert _said(capsys.readouterr().out, "v2", "parts")["error"] == error


@pytest.mark.network
def test_the_topic_in_the_table_is_the_one_below_it(
    release_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for tag, topic in (("v0.17.1", "eagle3-interface"), ("v0.26.0", "aux-layers")):
        assert vpatch("check", tag, "--unpatched", "--repo", str(REPO)) == 1
        told = capsys.readouterr().out
        table, _, _ = told.partition("\n\n")
        for gate in ("drafter-fc", "pipeline-parallel"):
            (row,) = (line for line in table.splitlines() if line.startswith(f"{gate} "))
            assert f" {topic} " in row
            mended = told.partition(f"\n{gate}: ")[2].partition("\n\n")[0].splitlines()[-1]
            assert mended.endswith(f"mended by topic {topic}")
        assert vpatch("check", tag, "--unpatched", "--json", "--repo", str(REPO)) == 1
        assert _said(capsys.readouterr().out, "v1", "drafter-fc")["topic"] == topic
