"""What people read when many findings stop a run: each once, with its mend; not hundreds."""

from __future__ import annotations

import pytest

from vpatch.cli_run import Run
from vpatch.findings import Finding, FindingsError


def told(capfd: pytest.CaptureFixture[str], count: int) -> str:
    findings = [
        Finding("a.patch", n, "a-rule", f"no {n}.", f"do {n}.") for n in range(1, count + 1)
    ]
    run = Run("export", as_json=True)
    run.fail(FindingsError(findings))
    said = capfd.readouterr()
    assert said.out.count('"a-rule"') == count + 1
    return said.err


@pytest.mark.parametrize("count", [1, 2, 21])
def test_each_finding_is_told_once_with_its_mend(
    count: int, capfd: pytest.CaptureFixture[str]
) -> None:
    said = told(capfd, count)
    for n in range(1, count + 1):
        assert said.count(f"a.patch:{n}: ") == 1
        assert said.count(f"  -> do {n}.\n") == 1
    assert " more: " not in said


def test_hundreds_are_counted(capfd: pytest.CaptureFixture[str]) -> None:
    lines = told(capfd, 300).splitlines()
    assert len(lines) == 2 + 2 * 20 + 1
    assert lines[-1] == "... and 279 more: --json names them all"
