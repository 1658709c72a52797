"""Where tests of a release run: trees of links to a CPU build, and pytest in them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console

from overlay import borrow_lower, make_lower, make_tree
from vpatch.errors import VpatchError
from vpatch.files import cache_dir
from vpatch.git import Git
from vpatch.patches.apply import apply_series
from vpatch.patches.series import Series
from vpatch.talk import ConsoleProgress
from vpatch.upstream.index import Index
from vpatch.upstream.mirror import Mirror
from vpatch.wheel.edits import edits_between

ROOT = Path(__file__).resolve().parent.parent
EXISTING = click.Path(exists=True, path_type=Path)
SHOWN_LINES = 60


@contextmanager
def told_errors() -> Iterator[None]:
    """Ends the process with an error's sentence, its next step and its exit code."""
    try:
        yield
    except VpatchError as error:
        click.echo(f"{error.message}\n{error.hint}".rstrip(), err=True)
        sys.exit(error.exit_code)


@dataclass(frozen=True)
class Bench:
    """Where tests run.

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


@dataclass(frozen=True)
class Ran:
    """One pytest process; its status is None where it took too long."""

    status: int | None
    seconds: float
    output: str


@contextmanager
def open_bench(
    tag: str,
    wheel: Path,
    python: Path,
    repository: tuple[Path, str] | None,
    timeout_s: float,
    *,
    borrowed: bool,
) -> Iterator[Bench]:
    """Unpacks a wheel beside the tests of a release.

    Args:
        tag: The release.
        wheel: Its unpatched CPU build.
        python: Runs the tests.
        repository: GIT_DIR and base commit; the mirror in the user's cache when None.
        timeout_s: For one run.
        borrowed: The wheel is of another release, of which only compiled modules are taken.
    """
    talk = ConsoleProgress(Console(stderr=True))
    if repository is None:
        mirror = Mirror.open(cache_dir())
        release = mirror.fetch(tag, index=Index.from_pip_config(), progress=talk)
        git, tree = mirror.git, release.tree
    else:
        git = Git(repository[0])
        tree = git.line("rev-parse", "--verify", "--end-of-options", f"{repository[1]}^{{tree}}")
    with tempfile.TemporaryDirectory(prefix="testbed-") as folder:
        lower = Path(folder) / "lower"
        talk.say(f"Unpacking {wheel.name} and the tests of {tag} ...")
        if borrowed:
            names = borrow_lower(lower, wheel, git, tree, tag)
            talk.say(
                f"BORROWED: the Python of {tag} runs on {len(names)} compiled modules of "
                f"{wheel.name}: {', '.join(names)}. What calls into them shows nothing about {tag}."
            )
        else:
            make_lower(lower, wheel, git, tree)
        # Not resolved: a virtual environment's python is a link, by which it knows itself.
        yield Bench(git, tree, lower, Path(folder), python.absolute(), timeout_s)


@contextmanager
def tree_of(bench: Bench, series: Series) -> Iterator[Path]:
    """The release with a series applied, as a folder to run tests in."""
    tree = apply_series(bench.git, bench.base_tree, series).tree
    edits = edits_between(bench.git, bench.base_tree, tree)
    with tempfile.TemporaryDirectory(dir=bench.scratch, prefix="tree-") as folder:
        upper = Path(folder) / "site"
        make_tree(bench.lower, upper, edits)
        yield upper


def run_pytest(bench: Bench, site: Path, report: Path, arguments: Sequence[str]) -> Ran:
    """Runs tests of a tree on the CPU, without network; writes a JUnit report."""
    command = [
        str(bench.python), "-m", "pytest", "-p", "no:cacheprovider", "-q", "--tb=short",
        f"--rootdir={site}", f"--junitxml={report}", *arguments,
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
        output = (error.stdout or b"").decode(errors="replace")
        return Ran(None, time.monotonic() - started, output)
    return Ran(done.returncode, time.monotonic() - started, done.stdout.decode(errors="replace"))


def tail(output: str) -> str:
    """The end of what a run said."""
    return "\n".join(output.splitlines()[-SHOWN_LINES:])


def _environment(site: Path, scratch: Path) -> dict[str, str]:
    # The links lead to one copy of most modules, which is compiled once for all runs.
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return inherited | {
        "PYTHONPATH": str(site),
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HOME": str(scratch / "hf"),
        "HF_HUB_OFFLINE": "1",
        "VLLM_CACHE_ROOT": str(scratch / "vllm"),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
