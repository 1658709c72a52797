"""`vpatch check` says what was looked at, and what helps there."""

from __future__ import annotations

from pathlib import Path

import pytest

from project_lab import vpatch

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
