"""The trainer of ci/collection_drafter.py reads a set as it is, and shuffles whole rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collect_lab import make_set, tokens_of
from engine.children import plain
from vpatch.collect.place import Folder

pytestmark = [pytest.mark.engine, pytest.mark.network]


def test_what_is_trained_on(engine_python: Path, library: Path, tmp_path: Path) -> None:
    make_set(Folder(tmp_path / "set"), tmp_path / "scratch", 7)
    module = "engine.collected_facts"
    found = json.loads(plain(engine_python, library, module, tmp_path / "set"))
    assert found["tokens"] is True
    assert found["layers"] == [True, True]
    assert found["nan"] == [True, False, True, False, True]
    assert found["prompt"] == len(tokens_of(5))
    assert "2 of 2 samples, lengths" in found["refused"]
    assert found["together"] is True
    assert found["same rows"] is True
    assert found["moved"] > 30
    assert found["between samples"] > 20
    assert (found["again"], found["other"]) == (True, False)
