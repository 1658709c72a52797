"""Repositories of a hub: headers by range requests, never a weight."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from hubserver import HubServer, serving
from preflight_lab import LLAMA, TARGET, header_of, weights_of
from vpatch.errors import VpatchError
from vpatch.preflight import hub as hub_module
from vpatch.preflight.case import Parallel
from vpatch.preflight.headers import LENGTH_BYTES
from vpatch.verbs import preflight as verb

pytest.importorskip("huggingface_hub")

DRAFTER, BESIDE = "someone/kimi-eagle3", "someone/kimi"
BEARER = "Bearer hf_a-secret"
RAW, LENGTH = header_of(weights_of(LLAMA))


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with serving() as found:
        found.files = {
            (BESIDE, "config.json"): json.dumps(TARGET).encode(),
            (DRAFTER, "config.json"): json.dumps(LLAMA).encode(),
            (DRAFTER, "model.safetensors"): RAW + b"\xff" * (LENGTH - len(RAW)),
        }
        yield found


Asked = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def preflight(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What the verb ends with; huggingface_hub's own part is in the two tests with a process."""
    monkeypatch.setenv("PIP_RETRIES", "0")

    def url_of(repository: str, name: str) -> str:
        return f"{hub.base}/{repository}/resolve/main/{name}"

    monkeypatch.setattr(hub_module, "_hub", lambda: (url_of, {"Authorization": BEARER}))

    def asked(drafter: str = DRAFTER) -> tuple[int, dict[str, Any]]:
        wish = verb.Wish(BESIDE, drafter, "v0.33.0", None, True, "v1", Parallel(), None)
        try:
            report = verb.run(wish, None)
        except VpatchError as error:
            told = {"code": error.code, "message": error.message, "hint": error.hint}
            return error.exit_code, {"error": told}
        return report.exit_code, dict(report.data)

    return asked


def process(tmp_path: Path, variables: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
    """The command, with huggingface_hub as it is."""
    command = ["preflight", "--target", BESIDE, "--drafter", DRAFTER, "--tag", "v0.33.0"]
    ran = subprocess.run(
        [sys.executable, "-m", "vpatch", *command, "--unpatched", "--runner", "v1", "--json"],
        cwd=tmp_path,
        env={**os.environ, "HF_HOME": str(tmp_path / "hf"), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "a-secret" not in ran.stdout + ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return ran.returncode, found


def test_config_and_header_are_all_that_is_read(hub: HubServer, tmp_path: Path) -> None:
    code, found = process(tmp_path, {"HF_ENDPOINT": hub.base, "HF_TOKEN": "hf_a-secret"})
    assert set(hub.tokens) == {BEARER}
    assert (code, found["verdict"]) == (0, "works")
    assert found["ids"]["taken"] == [2, 20, 50]
    weights = [sent for sent in hub.sent if sent[0] == "model.safetensors"]
    assert weights == [
        ("model.safetensors", 0, LENGTH_BYTES),
        ("model.safetensors", LENGTH_BYTES, len(RAW) - LENGTH_BYTES),
    ]
    assert found["read_bytes"] < len(RAW) + 4096 < LENGTH
    assert not list((tmp_path / "hf").rglob("*.safetensors"))


def test_verdict_is_that_of_the_same_folder(hub: HubServer, preflight: Asked) -> None:
    hub.files[DRAFTER, "config.json"] = json.dumps({**LLAMA, "eagle_config": {}}).encode()
    hub.files[DRAFTER, "model.safetensors"] = header_of(weights_of(LLAMA, states=5))[0]
    # Cut off behind its header, whose offsets lie behind the end: that is seen without a weight.
    code, found = preflight()
    assert code == 1
    assert "lies behind the file's end" in found["error"]["message"]


def test_files_of_an_index(hub: HubServer, preflight: Asked) -> None:
    name = "model-00001-of-00001.safetensors"
    hub.files[DRAFTER, name] = hub.files.pop((DRAFTER, "model.safetensors"))
    index = {"weight_map": dict.fromkeys(weights_of(LLAMA), name), "padding": "x" * 200_000}
    hub.files[DRAFTER, "model.safetensors.index.json"] = json.dumps(index).encode()
    assert preflight()[0] == 0


def test_token_stays_with_its_hub(hub: HubServer, preflight: Asked) -> None:
    with serving() as elsewhere:
        elsewhere.files = hub.files
        # Another host by name, though the same machine.
        hub.redirect = elsewhere.base.replace("127.0.0.1", "localhost")
        assert preflight()[0] == 0
        assert set(hub.tokens) == {BEARER}
        assert set(elsewhere.tokens) == {None}


@pytest.mark.parametrize(
    ("drafter", "status", "code", "error"),
    [
        ("someone/else", None, 2, "no-checkpoint"),
        (DRAFTER, 401, 4, "login"),
        (DRAFTER, 403, 4, "login"),
        (DRAFTER, 500, 4, "network"),
        ("someone/../else", None, 2, "no-checkpoint"),
    ],
)
def test_what_a_hub_refuses(
    drafter: str, status: int | None, code: int, error: str, hub: HubServer, preflight: Asked
) -> None:
    hub.status = status
    exit_code, found = preflight(drafter)
    assert (exit_code, found["error"]["code"]) == (code, error)
    assert found["error"]["hint"]
    assert "a-secret" not in str(found)


def test_no_weights_file(hub: HubServer, preflight: Asked) -> None:
    del hub.files[DRAFTER, "model.safetensors"]
    code, found = preflight()
    assert (code, found["verdict"], found["error"]) == (1, "unknown", None)
    assert "the shape of its fc" in found["unknown"]


def test_server_without_ranges_sends_no_weights(hub: HubServer, preflight: Asked) -> None:
    hub.ranges = False
    code, found = preflight()
    assert (code, found["error"]["code"]) == (4, "no-ranges")


def test_answer_that_breaks_off(hub: HubServer, preflight: Asked) -> None:
    hub.cut = 20
    code, found = preflight()
    assert (code, found["error"]["code"]) == (4, "network")


def test_pointer_in_the_place_of_weights(hub: HubServer, preflight: Asked) -> None:
    hub.files[DRAFTER, "model.safetensors"] = b"version https://git-lfs.github.com/spec/v1\n"
    code, found = preflight()
    assert (code, found["error"]["code"]) == (1, "bad-checkpoint")


def test_nobody_listens(hub: HubServer, preflight: Asked) -> None:
    with serving() as gone:
        hub.base = gone.base
    code, found = preflight()
    assert (code, found["error"]["code"]) == (4, "network")
    assert "HF_ENDPOINT" in found["error"]["hint"]


def test_without_the_extra(tmp_path: Path) -> None:
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / "huggingface_hub.py").write_text("raise ImportError('none here')\n")
    code, found = process(tmp_path, {"PYTHONPATH": str(shadow)})
    assert (code, found["error"]["code"]) == (2, "no-hub")
    # This Python's pip: another one would leave vpatch as it is.
    assert f"{sys.executable} -m pip install huggingface_hub" in found["error"]["hint"]
