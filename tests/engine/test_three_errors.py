"""The release fails in three ways: the fix of one shows the next.

The first, of the release as it is, is what `vpatch smoke --expect-unpatched` expects.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.environment import Say, Site, patched_up_to
from engine.smokes import core, smoke, told

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

CHECK = "starts/llama-default/v1/eager"
# What it says with the series as far as this patch.
ERRORS = {
    "accept-deepseek-v3-and-kimi": r"image_token_index",
    "placeholder-token-for-the-drafter": (
        r"Model does not support EAGLE3 interface but aux_hidden_state_outputs was requested"
    ),
}


@pytest.mark.parametrize("last", ERRORS)
def test_behind_a_fixed_error_waits_the_next(
    unpatched: Site, release_cache: Path, tmp_path: Path, say: Say, last: str
) -> None:
    site = patched_up_to(unpatched, last, tmp_path)
    results = smoke(site, core(site, CHECK), tmp_path / "smoke", release_cache, say)
    result = results[CHECK]
    assert result.verdict == "fail", told(results)
    found = [key for key, error in ERRORS.items() if re.search(error, result.evidence)]
    assert found == [last], told(results)
