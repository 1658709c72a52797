"""`vpatch check` says what was looked at, and what helps there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

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
