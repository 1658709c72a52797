"""Measures vpatch against what it replaces, in one run on one machine.

    python ci/bench.py [splice] [apply] [check] [export] [lint] [import] [verify]
                       [--tag v0.17.1] [--runs 5] [--json FILE] [--markdown docs/bench.md]

splice: making the patched wheel out of upstream's real one, in a process of its own, against
``wheel unpack`` + ``wheel pack`` (which decompress and compress everything), and against the least
that a copy with a verified hash can take: ``cp`` plus one sha256 of the same file. ``vpatch build``
as a whole command, which also applies the series, is shown beside it.
apply: ``vpatch apply`` as a whole command against ``git worktree add`` + ``git am``.
export, import: on a series of 100 patches (bench_series.py), against what git does of it: ``git
format-patch`` and the ``git am`` that proves the result; ``git am`` of the same mails. lint: all
pinned series, against ``git apply --numstat`` reading the same patches.
check: ``vpatch check`` of each pinned release (bench_check.py), in seconds of CPU.
verify: ``vpatch collect --verify`` of a set of hidden states (bench_collect.py), against sums of
its files.

Everything is downloaded before the clock runs. Times are the best of several runs that take turns,
so that a busy machine is busy for both. Exit 1: a bound of BOUNDS is missed.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from bench_check import bench_check
from bench_collect import bench_verify
from bench_lab import Result, at_least, at_most, command, measure, named
from bench_series import bench_export, bench_import, bench_lint, make_long
from vpatch import __version__
from vpatch.errors import VpatchError
from vpatch.files import cache_dir
from vpatch.git import Git
from vpatch.pipeline import Prepared, Upstream, prepare
from vpatch.talk import ConsoleProgress
from vpatch.upstream.index import Index
from vpatch.upstream.mirror import Mirror
from vpatch.wheel.base import BaseWheel, find_base
from vpatch.wheel.edits import edits_between
from vpatch.wheel.provenance import origin_of

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("splice", "apply", "check", "export", "lint", "import", "verify")
_CHUNK = 1 << 20


# What a process that only splices runs: the edits are computed before.
_SPLICE = """\
import pickle, sys
from pathlib import Path
from vpatch.wheel.build import build_wheel
base, edits, origin, out = pickle.loads(Path(sys.argv[1]).read_bytes())
build_wheel(base.path, edits, origin, out=out, expected_sha256=base.sha256)
"""


def sha256(path: Path) -> float:
    """Hashes a file as fast as this Python can."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return 0.0


def bench_splice(ready: Prepared, git: Git, base: BaseWheel, scratch: Path, runs: int) -> Result:
    """The splice against copying the wheel, and against unpacking and packing it."""
    tag, wheel = ready.pin.tag, base.path
    out, copy, work = scratch / "out", scratch / "copy.whl", scratch / "work.pickle"
    vpatch = Path(sys.executable).parent / "vpatch"
    edits = edits_between(git, ready.applied.base_tree, ready.applied.tree)
    origin = origin_of(ready.pin, ready.series, tool=__version__)
    work.write_bytes(pickle.dumps((base, edits, origin, scratch / "spliced")))

    def splice() -> float:
        return command(sys.executable, "-c", _SPLICE, work)

    def build() -> float:
        return command(vpatch, "build", tag, "--arch", "x86_64", "--out", out, "--repo", ROOT)

    def copy_and_hash() -> float:
        peak = command("cp", wheel, copy)
        return max(peak, sha256(wheel))

    def unpack_and_pack() -> float:
        peak = command(sys.executable, "-m", "wheel", "unpack", wheel, "-d", scratch / "tree")
        (tree,) = (scratch / "tree").iterdir()
        (scratch / "packed").mkdir()
        return max(
            peak, command(sys.executable, "-m", "wheel", "pack", tree, "-d", scratch / "packed")
        )

    sha256(wheel)  # read into the page cache: nobody pays for the first time
    found = measure(runs, splice=splice, copy=copy_and_hash, build=build)
    found |= measure(1, repack=unpack_and_pack)
    ours, copied = found["splice"].seconds, found["copy"].seconds
    return Result(
        part="splice",
        measured=(
            named(found["splice"], f"splice of {len(edits)} files into {wheel.name}"),
            named(found["build"], f"vpatch build {tag}"),
            named(found["copy"], "cp + sha256"),
            named(found["repack"], "wheel unpack + wheel pack"),
        ),
        bounds=(
            at_least("times faster than unpack + pack", found["repack"].seconds / ours, 40),
            at_most("times a cp + sha256", ours / copied, 3),
            at_most("peak memory, MB", found["build"].peak_megabytes, 300),
        ),
    )


def bench_apply(ready: Prepared, git: Git, scratch: Path, runs: int) -> Result:
    """``vpatch apply`` against a worktree and ``git am``."""
    tag, clone = ready.pin.tag, scratch / "clone.git"
    command("git", "init", "--quiet", "--bare", clone)
    command("git", "-C", clone, "fetch", "--quiet", git.git_dir, ready.release.commit)
    # Packed as a clone from upstream is; vpatch's own mirror is packed for fast imports.
    command("git", "-C", clone, "update-ref", "refs/heads/base", ready.release.commit)
    command("git", "-C", clone, "repack", "-a", "-d", "-f", "-q")
    patches = [ready.series.folder / patch.file for patch in ready.series.patches]
    vpatch = Path(sys.executable).parent / "vpatch"
    trees = iter(range(runs))

    def apply() -> float:
        return command(vpatch, "apply", tag, "--repo", ROOT)

    def worktree_and_am() -> float:
        tree = scratch / f"tree{next(trees)}"
        add = ["worktree", "add", "--quiet", "--detach", str(tree), ready.release.commit]
        peak = command("git", "-C", clone, *add)
        am = ("git", "-C", tree, "-c", "commit.gpgSign=false", "am", "--quiet")
        return max(peak, command(*am, *patches))

    found = measure(runs, apply=apply, am=worktree_and_am)
    ours = found["apply"].seconds
    return Result(
        part="apply",
        measured=(
            named(found["apply"], f"vpatch apply {tag}"),
            named(found["am"], f"git worktree add + git am, {len(patches)} patches"),
        ),
        bounds=(
            at_most("seconds", ours, 1),
            at_least("times faster than worktree + am", found["am"].seconds / ours, 3),
        ),
    )


def results(parts: Sequence[str], tag: str, scratch: Path, runs: int) -> Iterator[Result]:
    """Fetches what is needed, then measures part by part."""
    if "verify" in parts:
        yield bench_verify(scratch, runs)
    if set(parts) <= {"verify"}:
        return
    cache = cache_dir()
    progress = ConsoleProgress(Console(stderr=True))
    ready = prepare(tag, ROOT, Upstream(cache, git_url=None, kind=None, progress=progress))
    index = Index.from_pip_config()
    base = find_base(None, ready.pin, arch="x86_64", index=index, cache=cache, progress=progress)
    git = Mirror.open(cache).git
    if "splice" in parts:
        yield bench_splice(ready, git, base, scratch, runs)
    if "apply" in parts:
        yield bench_apply(ready, git, scratch, runs)
    if "check" in parts:
        yield bench_check(ROOT, cache, scratch, runs)
    if "lint" in parts:
        yield bench_lint(ROOT, runs)
    if {"export", "import"} & set(parts):
        long = make_long(ready, git, scratch, cache)
        if "export" in parts:
            yield bench_export(long, runs)
        if "import" in parts:
            yield bench_import(long, runs)


def as_markdown(found: Sequence[Result], runs: int) -> str:
    """The page docs/bench.md."""
    asked = [shutil.which("git") or "git", "--version"]
    git = subprocess.run(asked, capture_output=True, text=True, check=True)
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    lines = [
        "# Benchmarks",
        "",
        "`python ci/bench.py --markdown docs/bench.md` (in the environment that `ci/test.sh` "
        f"makes) wrote this, {datetime.now(timezone.utc):%Y-%m-%d}, on {os.cpu_count()} cores "
        f"({cpu[1] if cpu else platform.machine()}), {git.stdout.strip()}, Python "
        f"{platform.python_version()}. Best of {runs} runs that take turns, warm page cache; "
        "ratios are to the peer in the same run.",
    ]
    for result in found:
        lines += ["", f"## {result.part}", "", "| what | best of | seconds | peak MB |"]
        lines += ["|---|---|---|---|"]
        for one in result.measured:
            peak = f"{one.peak_megabytes:.0f}"
            lines.append(f"| {one.name} | {one.runs} | {one.seconds:.2f} | {peak} |")
        lines += ["", "| measured | | bound | kept |", "|---|---|---|---|"]
        for bound in result.bounds:
            kept = "yes" if bound.kept else "**no**"
            lines.append(f"| {bound.value:.2f} | {bound.promise} | {bound.limit:g} | {kept} |")
    return "\n".join(lines) + "\n"


def show(result: Result, console: Console) -> None:
    """Prints one part's figures."""
    table = Table("what", "best of", "seconds", "peak MB", title=result.part, title_justify="left")
    for one in result.measured:
        peak = f"{one.peak_megabytes:.0f}"
        table.add_row(one.name, str(one.runs), f"{one.seconds:.2f}", peak)
    console.print(table)
    for bound in result.bounds:
        verdict = "ok" if bound.kept else "MISSED"
        console.print(f"  {bound.value:.2f} {bound.promise} (bound {bound.limit:g}): {verdict}")


@click.command(help=__doc__)
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
@click.option("--tag", default="v0.17.1", help="A pinned release.")
@click.option("--runs", default=5, type=click.IntRange(1, 100), help="Runs of the short things.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write figures here.")
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the page of figures here.")
def main(
    parts: tuple[str, ...], tag: str, runs: int, json_file: Path | None, markdown: Path | None
) -> None:
    """Measures, prints, and exits 1 where a bound is missed."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed vpatch is compiled
    os.environ.update(
        GIT_COMMITTER_NAME="bench", GIT_COMMITTER_EMAIL="bench@localhost", NO_COLOR="1"
    )
    console = Console()
    found = []
    try:
        with tempfile.TemporaryDirectory(prefix="vpatch-bench-") as scratch:
            for result in results(parts or PARTS, tag, Path(scratch), runs):
                show(result, console)
                found.append(result)
    except VpatchError as error:
        click.echo(f"error: {error.message}\n{error.hint}", err=True)
        sys.exit(error.exit_code)
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(result) for result in found], indent=2) + "\n")
    if markdown is not None:
        markdown.write_text(as_markdown(found, runs))
    sys.exit(0 if all(bound.kept for result in found for bound in result.bounds) else 1)


if __name__ == "__main__":
    main()
