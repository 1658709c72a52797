"""A set in a training loop: the lines of docs/collect.md, under a Python that has torch."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from collect_lab import ABOUT, HIDDEN, LAYERS, SHARDED, answer_of, make_set, tokens_of
from engine.environment import REPO
from vpatch.collect.manifest import About
from vpatch.collect.place import Folder

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

COUNT = 9
_SAYS = """
    print(tokens.tolist(), prompt, list(inputs.shape), states.dtype, targets.tolist(),
          answered.tolist(), bool(states.isfinite().all()), sep="|")
"""


@pytest.mark.parametrize("about", [ABOUT, SHARDED], ids=["files", "shards"])
def test_the_training_loop_of_the_docs(engine_python: Path, tmp_path: Path, about: About) -> None:
    make_set(Folder(tmp_path / "states"), tmp_path / "scratch", COUNT, about)
    found = re.search(r"```python\n(.*?)```", (REPO / "docs/collect.md").read_text(), re.DOTALL)
    assert found is not None
    done = subprocess.run(
        [engine_python, "-c", found[1].rstrip() + _SAYS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    expected = set()
    for number in range(COUNT):
        prompt = len(tokens_of(number))
        tokens = (tokens_of(number) + answer_of(number))[:-1]
        shape = [len(tokens) - 1, len(LAYERS) * HIDDEN]
        answered = [place >= prompt for place in range(1, len(tokens))]
        dtype = "torch.bfloat16"
        expected.add(f"{tokens}|{prompt}|{shape}|{dtype}|{tokens[1:]}|{answered}|True")
    assert set(done.stdout.splitlines()) == expected
