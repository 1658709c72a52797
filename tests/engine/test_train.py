"""Drafters trained on a listening target: they need the layers that they were trained for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.children import plain

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

Train = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def listener(
    engine_python: Path, library: Path, models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("listener")
    job = {"target": str(models / "target"), "out": str(folder / "listener")}
    (folder / "job.json").write_text(json.dumps(job))
    plain(engine_python, library, "vpatch.smoke.engine.listener", folder / "job.json")
    return folder / "listener"


@pytest.fixture
def train(engine_python: Path, library: Path, tmp_path: Path) -> Train:
    def run(target: Path, name: str, **more: object) -> dict[str, Any]:
        job = {"target": str(target), "out": str(tmp_path / name), "ids": [1, 3, 7], "seed": 0}
        job |= {"seconds": 300, "device": "cpu", **more}
        (tmp_path / f"{name}.json").write_text(json.dumps(job))
        module = "vpatch.smoke.engine.train"
        found: dict[str, Any] = json.loads(
            plain(engine_python, library, module, tmp_path / f"{name}.json")
        )
        return found

    return run


def test_a_trained_drafter_needs_its_own_layers(
    listener: Path, train: Train, tmp_path: Path
) -> None:
    found = train(listener, "once")
    assert found["accepted"] > 0.3
    assert found["shifted"] < 0.15
    config = json.loads((tmp_path / "once" / "config.json").read_text())
    assert config["eagle_config"] == {"eagle_aux_hidden_state_layer_ids": [1, 3, 7]}
    train(listener, "again")
    once, again = (
        hashlib.sha256((tmp_path / name / "model.safetensors").read_bytes()).hexdigest()
        for name in ("once", "again")
    )
    assert once == again


def test_without_a_listener_layers_hardly_matter(models: Path, train: Train) -> None:
    found = train(models / "target", "plain")
    assert found["shifted"] > 0.8 * found["accepted"]


def test_there_is_no_layer_behind_the_last(listener: Path, train: Train) -> None:
    assert train(listener, "last", ids=[2, 4, 8])["shifted"] is None


def test_training_keeps_its_limit(listener: Path, train: Train, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"of 120 training steps took over 0\.01 s"):
        train(listener, "late", seconds=0.01)
    assert not (tmp_path / "late").exists()


def test_a_listener_is_made_from_plain_experts(
    engine_python: Path, library: Path, models: Path, tmp_path: Path
) -> None:
    target = tmp_path / "int4"
    target.mkdir()
    config = json.loads((models / "target" / "config.json").read_text())
    config["text_config"]["quantization_config"] = {}
    (target / "config.json").write_text(json.dumps(config))
    (tmp_path / "job.json").write_text(json.dumps({"target": str(target), "out": str(tmp_path)}))
    with pytest.raises(AssertionError, match="quantized experts"):
        plain(engine_python, library, "vpatch.smoke.engine.listener", tmp_path / "job.json")


def test_the_batched_reference_is_the_reference(
    engine_python: Path, library: Path, listener: Path
) -> None:
    found = json.loads(plain(engine_python, library, "engine.train_facts", listener))
    assert found["states"] < 1e-3
    assert found["logits"] < 1e-3
    assert found["margin"] > 0.01
