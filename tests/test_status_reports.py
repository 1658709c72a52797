"""Stored reports of smoke runs: what is kept, what is not, and what is refused."""

from __future__ import annotations

import json
import os
import re
import string
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from vpatch.cli import cli, main
from vpatch.cli_run import Run
from vpatch.errors import FindingError, UsageError
from vpatch.smoke.origin import origin_of
from vpatch.smoke.stored import (
    check_place,
    identity,
    read_report,
    read_reports,
    store,
    stripped,
    without_folders,
)

REPO = Path(__file__).resolve().parent.parent
REPORT: dict[str, Any] = {
    "schema": "vpatch/smoke/1",
    "ok": False,
    "vllm": "0.17.1+cu129.kimi.2",
    "tag": "v0.17.1",
    "revision": 2,
    "series": {"sha256": "ab" * 32, "topics": ["aux-layers"]},
    "patched": True,
    "wheel": "vllm-0.17.1+cu129.kimi.2-cp38-abi3-manylinux_2_31_x86_64.whl",
    "sha256": "cd" * 32,
    "torch": "2.10.0",
    "device": "cuda",
    "gpu": "NVIDIA H200",
    "tier": "core",
    "when": "2026-11-30T01:02:03Z",
    "notes": ["kernels are kept in /home/me/.cache/vpatch/smoke"],
    "checks": [
        {"check": "starts/target/v1/eager", "verdict": "pass", "evidence": "ready", "seconds": 1.5},
        {
            "check": "ids/llama-nested/v2/eager",
            "verdict": "fail",
            "evidence": "FileNotFoundError: '/tmp/vpatch-smoke-x1/models/a/config.json'",
            "log_tail": "secret of a machine",
        },
        {
            "check": "states/llama-nested/v2/eager",
            "verdict": "not-run",
            "evidence": "llama-nested/v2/eager did not run: see starts/llama-nested/v2/eager",
        },
    ],
}


def test_a_report_comes_back(tmp_path: Path) -> None:
    store(tmp_path / "a.json", REPORT)
    found = read_report(tmp_path / "a.json")
    assert (found.tag, found.revision, found.topics) == ("v0.17.1", 2, ("aux-layers",))
    assert found.series == "ab" * 32
    assert (found.wheel, found.sha256) == (REPORT["wheel"], REPORT["sha256"])
    assert (found.device, found.tier, found.when) == ("cuda", "core", REPORT["when"])
    assert found.runners == ("v1", "v2")
    assert found.counts() == {"pass": 1, "fail": 1, "not-run": 1}
    lines = (tmp_path / "a.json").read_text().splitlines()
    assert sum('"check":' in line for line in lines) == 3  # a line each: diffs can be read


def test_a_part_of_a_tier_says_which(tmp_path: Path) -> None:
    store(tmp_path / "a.json", {**REPORT, "only": ["states", "ids/llama-nested"]})
    assert read_report(tmp_path / "a.json").only == ("states", "ids/llama-nested")
    store(tmp_path / "b.json", REPORT)
    assert read_report(tmp_path / "b.json").only == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tier": "everything"}, "has the tier 'everything', which is none"),
        ({"device": "<script>"}, "has the device '<script>', which is none"),
        ({"only": "states"}, "has no usable only"),
        ({"only": [1]}, "has no usable only"),
        ({"checks": [REPORT["checks"][0], {**REPORT["checks"][0], "verdict": "fail"}]},
         "has the check starts/target/v1/eager twice"),
    ],
)  # fmt: skip
def test_what_no_run_says(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    (tmp_path / "a.json").write_text(json.dumps({**REPORT, **change}))
    with pytest.raises(FindingError, match=re.escape(said)):
        read_report(tmp_path / "a.json")


def dated(path: Path, ahead: timedelta, form: str = "%Y-%m-%dT%H:%M:%SZ") -> str:
    """Writes a report of a moment that is that far ahead; returns its date."""
    when = (datetime.now(timezone.utc) + ahead).strftime(form)
    path.write_text(json.dumps({**REPORT, "when": when}))
    return when


@pytest.mark.parametrize(
    ("ahead", "form"),
    [
        (timedelta(hours=2), "%Y-%m-%dT%H:%M:%SZ"),
        (timedelta(hours=2), "%Y-%m-%dT%H:%M:%S.%f+00:00"),
        (timedelta(days=2), "%Y-%m-%d"),
        (timedelta(days=3000), "%Y-%m-%d"),
    ],
)
def test_a_report_of_the_future_is_no_newest(tmp_path: Path, ahead: timedelta, form: str) -> None:
    when = dated(tmp_path / "a.json", ahead, form)
    with pytest.raises(FindingError, match="is yet to come") as caught:
        read_reports(tmp_path)
    assert caught.value.code == "future-report"
    assert "a.json" in caught.value.message
    assert when in caught.value.message
    assert "vpatch smoke v0.17.1 --report" in caught.value.hint


@pytest.mark.parametrize("form", ["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d"])
def test_clocks_may_differ(tmp_path: Path, form: str) -> None:
    when = dated(tmp_path / "a.json", timedelta(minutes=10), form)
    assert read_report(tmp_path / "a.json").when == when


@pytest.mark.parametrize("when", ["2026-13-01", "2026-02-30", "2026-11-30T25:00:00Z", "2026-11-3"])
def test_no_date(tmp_path: Path, when: str) -> None:
    (tmp_path / "a.json").write_text(json.dumps({**REPORT, "when": when}))
    with pytest.raises(FindingError, match="has no usable when"):
        read_report(tmp_path / "a.json")


def test_status_names_a_report_of_the_future(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    when = dated(tmp_path / "a.json", timedelta(days=400))
    with pytest.raises(SystemExit) as ended:
        main(["status", "--offline", "--json", "--reports", str(tmp_path), "--repo", str(REPO)])
    assert ended.value.code == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "future-report"
    assert when in error["message"]


def test_a_pipe_is_no_report(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(FindingError, match="is no file"):
        read_reports(tmp_path)


def test_what_is_of_a_machine_is_not_kept(tmp_path: Path) -> None:
    store(tmp_path / "a.json", REPORT)
    text = (tmp_path / "a.json").read_text()
    for word in ("secret", "log_tail", "/models", "/home", "vpatch-smoke-x1"):
        assert word not in text
    checks = json.loads(text)["checks"]
    assert checks[1]["evidence"] == "FileNotFoundError: 'config.json'"
    assert checks[2]["evidence"] == REPORT["checks"][2]["evidence"]  # names of checks stay


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("/usr/bin/python3 ended", "python3 ended"),
        ("file:///tmp/a b/c.log", "file:a b/c.log"),
        ("see ~/.cache/vpatch/smoke", "see smoke"),
        ("('/a/b', \"/c/d\")", "('b', \"d\")"),
        ("12 of 12/13 rows, 1/2", "12 of 12/13 rows, 1/2"),
        ("vllm/config/speculative.py:12", "vllm/config/speculative.py:12"),
        ("a / b", "a / b"),
    ],
)
def test_folders(text: str, kept: str) -> None:
    assert without_folders(text) == kept


_NAMES = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=8)


@given(st.lists(_NAMES, min_size=2, max_size=6), st.sampled_from(["", "'", "(", " ", "="]))
def test_no_absolute_path_survives(parts: list[str], before: str) -> None:
    path = "/" + "/".join(parts)
    kept = without_folders(f"cannot open {before}{path} now")
    assert not re.search(r"(?<![\w.])/\w", kept)
    assert parts[-1] in kept


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
def test_stripping_twice_is_stripping_once(value: Any) -> None:
    once = stripped({"a": value})
    assert stripped(once) == once


@pytest.mark.parametrize(
    ("vllm", "said"),
    [
        ("0.17.1", ("v0.17.1", None)),
        ("0.17.1+cpu", ("v0.17.1", None)),
        ("0.17.1+kimi.3", ("v0.17.1", 3)),
        ("0.17.1+cu129.kimi.12", ("v0.17.1", 12)),
        ("0.17.1+kimi.x", ("v0.17.1", None)),
    ],
)
def test_what_a_version_says(vllm: str, said: tuple[str, int | None]) -> None:
    assert identity(vllm) == said


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"vllm": "0.17.1+kimi.3"}, "contradicts itself"),
        ({"vllm": "0.17.1"}, "contradicts itself"),
        ({"patched": False}, "contradicts itself"),
        ({"vllm": "x"}, "no version"),
        ({"vllm": 3}, "no usable vllm"),
        ({"tier": None}, "no usable tier"),
        ({"device": ""}, "no usable device"),
        ({"gpu": "x" * 401}, "no usable gpu"),
        ({"when": "yesterday"}, "no usable when"),
        ({"series": {"topics": [1]}}, "no usable series"),
        ({"checks": []}, "no checks"),
        ({"checks": [{"check": "a/b", "verdict": "good", "evidence": ""}]}, "a check that is none"),
        ({"checks": [{"check": "<b>", "verdict": "pass", "evidence": ""}]}, "a check that is none"),
        ({"checks": ["a"]}, "a check that is none"),
        ({"schema": "vpatch/check/1"}, "the schema"),
    ],
)
def test_a_report_that_is_none(changes: dict[str, Any], why: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({**REPORT, **changes}))
    with pytest.raises(FindingError, match=why) as caught:
        read_report(tmp_path / "a.json")
    assert str(tmp_path / "a.json") in caught.value.message
    assert "--report FILE" in caught.value.hint


def test_a_report_that_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b" " * (8 << 20) + b"{}")
    with pytest.raises(FindingError, match="larger"):
        read_report(tmp_path / "a.json")


def test_the_stored_ones_are_reports_and_name_what_they_have_to() -> None:
    for report in read_reports(REPO / "docs/reports"):
        assert report.revision is None or report.topics, report.file
        text = (REPO / "docs/reports" / report.file).read_text()
        assert json.loads(text) == stripped(json.loads(text)), f"{report.file} is not stripped"


def test_a_place_for_a_report(tmp_path: Path) -> None:
    check_place(tmp_path / "a.json")
    for place in (tmp_path, tmp_path / "none" / "a.json"):
        with pytest.raises(UsageError):
            check_place(place)


def test_a_place_that_is_none_is_told_before_anything_runs(tmp_path: Path) -> None:
    run = Run("smoke", as_json=False)
    ran = CliRunner().invoke(
        cli,
        ["smoke", "v0.17.1", "--unpatched", "--device", "cpu", "--report", str(tmp_path)],
        obj=run,
    )
    assert isinstance(ran.exception, UsageError)
    assert "is a folder" in ran.exception.message


def test_pip_says_which_wheel_was_installed() -> None:
    wheel = "vllm-0.17.1+kimi.2-cp38-abi3-manylinux_2_31_x86_64.whl"
    told = {"url": f"file:///dist/{wheel}", "archive_info": {"hashes": {"sha256": "ab" * 32}}}
    found = origin_of("", json.dumps(told))
    assert (found.wheel, found.sha256, found.series) == (wheel, "ab" * 32, None)
    for other in ("", "{", "[]", '{"url": "a"}', json.dumps({**told, "archive_info": {}})):
        assert origin_of("", other).sha256 is None


def test_a_vpatch_json_that_cannot_be_read_is_told() -> None:
    found = origin_of("{}", "")
    assert found.series is None
    assert "vpatch.json" in found.problem
