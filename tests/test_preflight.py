"""`vpatch preflight` as a user runs it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from preflight_lab import IDS, LLAMA, NUMBERING, TARGET, run, weights_of, write
from vpatch.cli import cli
from vpatch.cli_run import Run


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, ...]:
    target = write(tmp_path / "target", TARGET)
    drafter = write(tmp_path / "drafter", LLAMA, weights_of(LLAMA))
    return ("--target", str(target), "--drafter", str(drafter))


def test_what_works(folders: tuple[str, ...]) -> None:
    code, found = run(*folders, "--tag", "v0.33.0")
    assert (code, found["verdict"], found["error"]) == (0, "works", None)
    assert found["ids"]["taken"] == [2, 20, 50]
    assert found["ids"]["as_outputs"] == [1, 19, 49]
    assert found["release"] == {
        "version": "0.33.0", "patched": True, "runner": "v2", "known": True,
    }  # fmt: skip


def test_a_config_in_the_place_of_its_folder(folders: tuple[str, ...]) -> None:
    folder = folders[1]
    code, found = run("--target", f"{folder}/config.json", *folders[2:], "--tag", "v0.33.0")
    assert (code, found["error"]["hint"]) == (2, f"Name its folder: {folder}")


def test_a_release_without_a_series(folders: tuple[str, ...]) -> None:
    code, found = run(*folders, "--tag", "v0.18.0")
    assert (code, found["error"]["code"]) == (2, "no-pin")
    assert "--unpatched" in found["error"]["hint"]
    assert run(*folders, "--tag", "v0.18.0", "--unpatched")[0] in (0, 1)


def test_what_does_not(folders: tuple[str, ...]) -> None:
    code, found = run(*folders, "--tag", "0.17.1", "--unpatched")
    assert (code, found["verdict"], found["when"]) == (1, "error", "config")
    assert "is only supported for" in found["error"]["message"]
    assert found["error"]["hint"]
    code, found = run(*folders, "--tag", "v0.33.0", "--unpatched")
    assert (code, found["verdict"], found["error"]) == (1, "wrong-result", None)
    assert found["problems"][0]["remedy"]["kind"] == "config"


def test_exit_is_1_where_only_an_option_helps(tmp_path: Path) -> None:
    target = write(tmp_path / "target", TARGET)
    config = {**LLAMA, "eagle_config": {IDS: [1, 29, 57]}}
    drafter = write(tmp_path / "drafter", config, weights_of(LLAMA))
    args = ("--target", str(target), "--drafter", str(drafter), "--tag", "v0.33.0")
    code, found = run(*args)
    assert (code, found["verdict"], found["as_given"]) == (1, "works-with", "wrong-result")
    option = found["options"][0]
    assert option.startswith("--speculative-config '")
    code, found = run(*args, "--speculative-config", option.split("'")[1])
    assert (code, found["verdict"], found["ids"]["taken"]) == (0, "works", [2, 30, 58])


def invoke(*args: str) -> Result:
    return CliRunner().invoke(cli, ["preflight", *args], obj=Run("preflight", as_json=False))


def test_text_says_it_all(folders: tuple[str, ...]) -> None:
    told = invoke(*folders, "--tag", "v0.33.0", "--unpatched", "--runner", "v2").output
    for part in (
        "eagle_config: [2, 20, 50]",
        "[2, 30, 58] (its defaults: inputs of layers); SGLang and SpecForge call them [1, 29, 57]",
        "[64, 192]: 3 of the target's states",
        "drafts from 384, d2t [384]",
        "no embed_tokens, own lm_head",
        "does not look into eagle_config",
        "verdict: wrong result without an error",
    ):
        assert part in told


def test_control_characters_of_a_config_are_not_printed(tmp_path: Path) -> None:
    config = {**LLAMA, "architectures": ["\x1b[2J[red]x[/red]"]}
    target = write(tmp_path / "target", TARGET)
    drafter = write(tmp_path / "drafter", config, weights_of(LLAMA))
    told = invoke(
        "--target", str(target), "--drafter", str(drafter), "--tag", "v0.33.0", "--unpatched"
    )
    assert "\x1b" not in told.output
    assert "[red]x[/red]" in told.output


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--tag", "v0.33.0", "--installed", "python3"),
        ("--tag", "v0.31.0"),
        ("--tag", "v0.14.0", "--unpatched"),
        ("--tag", "v0.33.0", "--tp", "0"),
        ("--tag", "v0.33.0", "--speculative-config", "[]"),
        ("--tag", "v0.33.0", "--speculative-config", "{"),
        ("--tag", "v0.33.0", "--speculative-config", json.dumps({IDS: ["2"]})),
        ("--tag", "v0.33.0", "--speculative-config", json.dumps({NUMBERING: "sglang"})),
        ("--installed", "no-such-python"),
    ],
)
def test_wrong_usage(args: tuple[str, ...], folders: tuple[str, ...]) -> None:
    code, found = run(*folders, *args)
    assert code == 2
    assert found["error"]["hint"]


def _python(tmp_path: Path, body: str) -> str:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    ("version", "patched"),
    [("0.17.1+kimi.2", True), ("0.32.0+cpu.kimi.3", True), ("0.26.0", False)],
)
def test_installed_vllm(
    version: str, patched: bool, tmp_path: Path, folders: tuple[str, ...]
) -> None:
    """By its metadata; a vllm that cannot be imported is none's trouble."""
    site = tmp_path / "site"
    (site / "vllm").mkdir(parents=True)
    (site / "vllm" / "__init__.py").write_text("raise SystemExit('imported')")
    (site / f"vllm-{version}.dist-info").mkdir()
    metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
    (site / f"vllm-{version}.dist-info" / "METADATA").write_text(metadata)
    python = _python(tmp_path, f'PYTHONPATH={site} exec {sys.executable} "$@"')
    _, found = run(*folders, "--installed", python)
    assert found["release"]["patched"] is patched
    assert found["release"]["version"] == version.partition("+")[0]
    if patched:
        assert run(*folders, "--installed", python, "--unpatched")[0] == 2


@pytest.mark.parametrize("body", ["exit 3", "echo no JSON", "echo '[\"x.y\"]'"])
def test_python_that_does_not_answer(body: str, tmp_path: Path, folders: tuple[str, ...]) -> None:
    assert run(*folders, "--installed", _python(tmp_path, body))[0] == 4


def test_nothing_of_vllm_or_torch_is_imported() -> None:
    code = (
        "import sys, vpatch.verbs.preflight, vpatch.preflight.hub; "
        "sys.exit(bool({'vllm', 'torch', 'transformers', 'huggingface_hub'} & sys.modules.keys()))"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=False, env=dict(os.environ))
    assert ran.returncode == 0


def test_a_config_alone_tells_what_it_tells(tmp_path: Path) -> None:
    target = write(tmp_path / "target", TARGET)
    drafter = write(tmp_path / "drafter", LLAMA)
    asked = ("--target", str(target), "--drafter", str(drafter))
    code, found = run(*asked, "--tag", "v0.33.0")
    assert (code, found["verdict"], found["as_given"], found["error"]) == (
        1, "unknown", "unknown", None,
    )  # fmt: skip
    assert [one.partition(" for ")[0] for one in found["unknown"]] == [
        "the shape of its fc",
        "whether it has a d2t",
        "whether it has embeddings and an lm_head of its own",
        "whether every weight has a place, and every place a weight",
    ]
    assert found["ids"]["taken"] == [2, 20, 50]
    assert found["facts"]["aux states"].endswith("its checkpoint's is not known")
    assert found["memory"]["weights"] is None
    told = CliRunner().invoke(
        cli, ["preflight", *asked, "--tag", "v0.33.0"], obj=Run("preflight", as_json=False)
    )
    assert "put the drafter's safetensors files" in told.output
    assert "verdict: works" not in told.output


def test_what_a_config_alone_gets_wrong_is_told(tmp_path: Path) -> None:
    target = write(tmp_path / "target", TARGET)
    drafter = write(tmp_path / "drafter", {**LLAMA, "eagle_config": {IDS: [2, 20, 99]}})
    asked = ("--target", str(target), "--drafter", str(drafter))
    code, found = run(*asked, "--tag", "v0.33.0")
    assert (code, found["verdict"], found["when"]) == (1, "error", "config")
    assert found["unknown"]


@pytest.mark.parametrize(
    ("tag", "release"), [("v0.33.0", "v0.33.0"), ("v0.28.0", "v0.26.0"), ("v0.31.0", "v0.32.0")]
)
def test_where_the_patched_release_is_to_be_had(
    tmp_path: Path, folders: tuple[str, ...], tag: str, release: str
) -> None:
    ids = {**LLAMA, "eagle_config": {IDS: [2, 20, 50], NUMBERING: "layer-input"}}
    write(tmp_path / "drafter", ids, weights_of(LLAMA))
    code, found = run(*folders, "--tag", tag, "--unpatched", "--runner", "v2")
    assert (code, found["verdict"]) == (1, "wrong-result")
    assert found["patched_release"] == {
        "release": release, "command": f"./build.sh {release}", "verdict": "works", "options": [],
    }  # fmt: skip
    code, found = run(*folders, "--tag", release, "--runner", "v2")
    assert (code, found["verdict"], found["patched_release"]) == (0, "works", None)


def test_where_no_patched_release_helps(tmp_path: Path, folders: tuple[str, ...]) -> None:
    write(tmp_path / "drafter", {**LLAMA, "eagle_config": {IDS: [2, 20, 99]}}, weights_of(LLAMA))
    code, found = run(*folders, "--tag", "v0.28.0", "--unpatched")
    assert code == 1
    assert found["patched_release"] is None
