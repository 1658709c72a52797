"""The reference that everything here is held against is itself held against transformers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.children import plain

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]


_UNLIKE = {"rope_scaling": None, "n_group": 4, "topk_group": 2, "norm_topk_prob": False}
JOBS: dict[str, dict[str, object]] = {
    "as-kimi": {"preset": "cpu", "changes": {}},
    "as-little-as-possible-as-kimi": {"preset": "cpu", "changes": _UNLIKE},
    "with-the-heads-of-gpus": {"preset": "cuda", "changes": {}},
}


@pytest.mark.parametrize("name", JOBS)
def test_the_reference_equals_transformers(engine_python: Path, library: Path, name: str) -> None:
    job = json.dumps(JOBS[name])
    found = json.loads(plain(engine_python, library, "engine.against_transformers", job))
    assert found["states"] == 9  # the input of each of the 8 layers, the output of the last
    assert found["logits"] < 1e-4
    assert found["worst"] < 1e-4
    assert found["smallest_step"] > 0.2  # neighbouring states are not mistaken for each other
