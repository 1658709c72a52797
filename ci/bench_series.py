"""Benchmarks of what changes and checks a series: export, import, lint."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench_lab import Result, at_most, command, measure, named
from vpatch.git import Git
from vpatch.patches.pin import PIN
from vpatch.patches.pinning import make_pin
from vpatch.patches.series import Series
from vpatch.pipeline import Prepared

PATCHES, MAILS = 100, 10
_FILE = "vllm/envs.py"
_OTHER = "vllm/logger.py"
_TRAILERS = "Topic: bench\nUpstream-Status: Pending\nSigned-off-by: A Bench <bench@example.com>\n"
_MAIL = (
    "format-patch", "--quiet", "--zero-commit", "--no-signature", "--no-stat", "--full-index",
    "--binary",
)  # fmt: skip
_VPATCH = Path(sys.executable).parent / "vpatch"


@dataclass(frozen=True)
class Long:
    """A pinned series of 100 patches on a release, its commits, and ten mails more.

    Attributes:
        work: A clone with the commits: ``base``, ``series`` (HEAD) and ``more``.
        repo: The folder with ``patches/``.
        box: The ten mails.
    """

    tag: str
    work: Path
    repo: Path
    box: Path
    scratch: Path


def make_long(ready: Prepared, mirror: Git, scratch: Path, cache: Path) -> Long:
    """Makes the series with git, as a person would, and pins it to the release's sdist."""
    tag, work, repo = ready.pin.tag, scratch / "long", scratch / "repo"
    command("git", "init", "--quiet", work)
    _git(work, "fetch", "--quiet", str(mirror.git_dir), ready.release.commit)
    _git(work, "checkout", "--quiet", "-b", "series", ready.release.commit)
    _git(work, "repack", "-a", "-d", "-f", "-q")
    _git(work, "tag", "base")
    _commits(work, _FILE, PATCHES)
    folder = repo / "patches" / tag
    _git(work, *_MAIL, f"-o{folder}", "base..series")
    names = [f"{n:04d}-step-{n}-of-{Path(_FILE).stem}.patch" for n in range(1, PATCHES + 1)]
    for name, made in zip(names, sorted(folder.iterdir()), strict=True):
        made.rename(folder / name)
    (folder / "series").write_text("".join(f"{name}\n" for name in names))
    (repo / "pyproject.toml").touch()
    pin = make_pin(mirror, series=Series.read(folder, tag), releases=[ready.release], wheels=())
    (folder / PIN).write_bytes(pin.to_toml())
    _git(work, "checkout", "--quiet", "-b", "more")
    _commits(work, _OTHER, MAILS)
    box = scratch / "box"
    box.write_bytes(_git(work, *_MAIL, "--stdout", "series..more"))
    _git(work, "checkout", "--quiet", "series")
    os.environ["VPATCH_CACHE"] = str(cache)
    return Long(tag, work, repo, box, scratch)


def _commits(work: Path, path: str, count: int) -> None:
    lines = (work / path).read_text().splitlines(keepends=True)
    for number in range(1, count + 1):
        lines.insert(number * (len(lines) // (count + 1)), f"# step {number}\n")
        (work / path).write_text("".join(lines))
        message = (
            f"step {number} of {Path(path).stem}\n\nBecause the figures ask for it.\n\n{_TRAILERS}"
        )
        _git(work, "commit", "--quiet", "--no-gpg-sign", "-am", message)


def _git(folder: Path, *args: str) -> bytes:
    author = {"GIT_AUTHOR_NAME": "A Bench", "GIT_AUTHOR_EMAIL": "bench@example.com"}
    command = [shutil.which("git") or "git", "-C", str(folder), *args]
    done = subprocess.run(command, check=True, capture_output=True, env={**os.environ, **author})
    return done.stdout


def _am(long: Long, start: str, name: str, *mails: Path) -> float:
    tree = long.scratch / name
    peak = command("git", "-C", long.work, "worktree", "add", "--quiet", "--detach", tree, start)
    git: tuple[str | Path, ...] = ("git", "-C", tree, "-c", "commit.gpgSign=false")
    return max(peak, command(*git, "am", "--quiet", *mails))


def bench_export(long: Long, runs: int) -> Result:
    """``vpatch export --check`` against format-patch, and against format-patch and am."""
    turns = iter(range(runs))
    words: tuple[str | Path, ...] = (long.tag, "--from", long.work, "--repo", long.repo, "--check")

    def export() -> float:
        return command(_VPATCH, "export", *words)

    def format_patch(folder: Path = long.scratch / "formatted") -> float:
        return command("git", "-C", long.work, *_MAIL, f"-o{folder}", "base..series")

    def by_hand() -> float:
        turn = next(turns)
        folder = long.scratch / f"mails-{turn}"
        peak = format_patch(folder)
        return max(peak, _am(long, "base", f"proof-{turn}", *sorted(folder.iterdir())))

    found = measure(runs, export=export, format=format_patch, hand=by_hand)
    ours = found["export"].seconds
    return Result(
        part="export",
        measured=(
            named(found["export"], f"vpatch export --check, {PATCHES} patches"),
            named(found["format"], "git format-patch"),
            named(found["hand"], "git format-patch + git worktree add + git am"),
        ),
        bounds=(at_most("times format-patch + am", ours / found["hand"].seconds, 5),),
    )


def bench_import(long: Long, runs: int) -> Result:
    """``vpatch import`` of ten mails into the long series against ``git am`` of them."""
    repos = [long.scratch / f"repo-{turn}" for turn in range(runs)]
    for place in repos:
        shutil.copytree(long.repo, place)
    places, turns = iter(repos), iter(range(runs))

    def import_() -> float:
        place = next(places)
        return command(_VPATCH, "import", long.tag, long.box, "--topic", "bench", "--repo", place)

    def am() -> float:
        return _am(long, "series", f"imported-{next(turns)}", long.box)

    found = measure(runs, ours=import_, am=am)
    return Result(
        part="import",
        measured=(
            named(found["ours"], f"vpatch import, {MAILS} mails behind {PATCHES} patches"),
            named(found["am"], "git worktree add + git am of the mails"),
        ),
        bounds=(at_most("times worktree + am", found["ours"].seconds / found["am"].seconds, 15),),
    )


def bench_lint(root: Path, runs: int) -> Result:
    """``vpatch lint`` of all series against git reading the same patches."""
    patches = sorted((root / "patches").glob("*/*.patch"))

    def lint() -> float:
        return command(_VPATCH, "lint", "--repo", root)

    def numstat() -> float:
        return command("git", "apply", "--numstat", *patches)

    found = measure(runs, lint=lint, numstat=numstat)
    ratio = found["lint"].seconds / found["numstat"].seconds
    return Result(
        part="lint",
        measured=(
            named(found["lint"], f"vpatch lint, {len(patches)} patches of all series"),
            named(found["numstat"], "git apply --numstat of the same files"),
        ),
        bounds=(at_most("times git's reading alone", ratio, 200),),
    )
