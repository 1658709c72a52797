"""The tools that move a series to another release, each as its users run it, settings away."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from vpatch.git import Git

CI = Path(__file__).resolve().parent
_PERSON = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "A Person",
    "GIT_AUTHOR_EMAIL": "person@example.com",
    "GIT_COMMITTER_NAME": "A Person",
    "GIT_COMMITTER_EMAIL": "person@example.com",
    "GIT_EDITOR": "true",
    "EDITOR": "true",
    "LC_ALL": "C",
    "QUILT_PATCHES": "debian/patches",
    "DEBFULLNAME": "A Person",
    "DEBEMAIL": "person@example.com",
}
_SLOW_S = 900


@dataclass(frozen=True)
class Move:
    """A series on a release, and the next one.

    Attributes:
        repo: A repository with branch ``series``, its HEAD detached.
        base, next: Both releases' commits; ``next`` stands on ``base``.
        mails: The series as mails, with a ``series`` file.
        subjects: The patches' titles, in order.
        names: What both releases are called.
    """

    repo: Path
    base: str
    next: str
    mails: Path
    subjects: tuple[str, ...]
    names: tuple[str, str] = ("v0.0.1", "v0.0.2")


@dataclass(frozen=True)
class Outcome:
    """What a tool left.

    Attributes:
        status: Its exit code.
        tree: The tree that it made; empty where it stopped.
        said: All that it printed.
        kept: How many patches it has in the end.
        seconds: How long it took; laying out its input does not count.
        cpu: The processor's seconds of that, of all its processes.
    """

    status: int
    tree: str
    said: str
    kept: int
    seconds: float
    cpu: float = 0.0


@dataclass(frozen=True)
class Ran:
    """A command that was timed."""

    status: int
    said: str
    seconds: float
    cpu: float


def cpu_seconds() -> float:
    """What all processes took that have ended and that this one waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def call(folder: Path, *words: str | Path, ok: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs a command; with ``ok``, it has to succeed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={**env, **_PERSON},
        capture_output=True,
        text=True,
        errors="replace",
        check=ok,
        timeout=_SLOW_S,
    )


def _timed(folder: Path, *words: str | Path) -> Ran:
    start, used = time.perf_counter(), cpu_seconds()
    done = call(folder, *words, ok=False)
    took = time.perf_counter() - start
    return Ran(done.returncode, done.stdout + done.stderr, took, cpu_seconds() - used)


def _clone(move: Move, scratch: Path, branch: str, start: str) -> Path:
    folder = scratch / "clone"
    call(scratch, "git", "clone", "--quiet", "--shared", "--no-checkout", move.repo, folder)
    call(folder, "git", "checkout", "--quiet", "-b", branch, start)
    return folder


def _tree(folder: Path, *without: str) -> str:
    """The working tree as git sees it, without some folders."""
    call(folder, "git", "add", "--all", "--force", ".")
    for name in without:
        call(folder, "git", "rm", "-r", "--quiet", "--cached", "--ignore-unmatch", name)
    return call(folder, "git", "write-tree").stdout.strip()


def _committed(folder: Path, move: Move, ran: Ran) -> Outcome:
    if ran.status:
        return Outcome(ran.status, "", ran.said, 0, ran.seconds, ran.cpu)
    count = call(folder, "git", "rev-list", "--count", f"{move.next}..HEAD").stdout
    tree = call(folder, "git", "rev-parse", "HEAD^{tree}").stdout.strip()
    return Outcome(0, tree, ran.said, int(count), ran.seconds, ran.cpu)


def git_rebase(move: Move, scratch: Path) -> Outcome:
    """``git rebase``."""
    folder = _clone(move, scratch, "work", "origin/series")
    return _committed(folder, move, _timed(folder, "git", "rebase", move.next))


def git_am(move: Move, scratch: Path) -> Outcome:
    """``git am -3`` of the mails."""
    folder = _clone(move, scratch, "work", move.next)
    mails = sorted(move.mails.glob("*.patch"))
    return _committed(folder, move, _timed(folder, "git", "am", "-3", *mails))


def stg(move: Move, scratch: Path) -> Outcome:
    """StGit: the commits as a stack, then ``stg rebase --merged``."""
    folder = _clone(move, scratch, "work", "origin/series")
    call(folder, "stg", "init")
    call(folder, "stg", "uncommit", "-n", str(len(move.subjects)))
    ran = _timed(folder, "stg", "rebase", "--merged", move.next)
    outcome = _committed(folder, move, ran)
    if outcome.status:
        return outcome
    # It keeps patches that have become empty, and says so.
    listed = call(folder, "stg", "series", "--empty").stdout.splitlines()
    kept = sum(line[:1] != "0" for line in listed)
    return replace(outcome, kept=kept)


def quilt(move: Move, scratch: Path) -> Outcome:
    """``quilt push -a``."""
    folder = _clone(move, scratch, "work", move.next)
    _quilt_folder(move, folder)
    ran = _timed(folder, "quilt", "push", "-a")
    kept = len(call(folder, "quilt", "applied", ok=False).stdout.splitlines())
    tree = "" if ran.status else _tree(folder, "debian", ".pc")
    return Outcome(ran.status, tree, ran.said, kept, ran.seconds, ran.cpu)


def _quilt_folder(move: Move, folder: Path) -> None:
    patches = folder / "debian" / "patches"
    shutil.copytree(move.mails, patches)


def gbp_pq(move: Move, scratch: Path) -> Outcome:
    """git-buildpackage: ``gbp pq import``, the new release, ``gbp pq rebase``."""
    folder = _clone(move, scratch, "master", move.base)
    _quilt_folder(move, folder)
    (folder / "debian" / "changelog").write_text(
        "it (1-1) unstable; urgency=low\n\n  * It.\n\n"
        " -- A Person <person@example.com>  Fri, 02 Jan 2026 03:04:05 +0000\n"
    )
    (folder / "debian" / "control").write_text("Source: it\nMaintainer: A Person <p@example.com>\n")
    call(folder, "git", "add", "--force", "debian")
    call(folder, "git", "commit", "--quiet", "-m", "the series")
    first = _timed(folder, "gbp", "pq", "import")
    call(folder, "git", "checkout", "--quiet", "master")
    call(folder, "git", "merge", "--quiet", "--no-edit", move.next)
    ran = _timed(folder, "gbp", "pq", "rebase")
    took, used = first.seconds + ran.seconds, first.cpu + ran.cpu
    if first.status or ran.status:
        return Outcome(first.status or ran.status, "", first.said + ran.said, 0, took, used)
    count = call(folder, "git", "rev-list", "--count", "master..HEAD").stdout
    return Outcome(0, _tree(folder, "debian"), ran.said, int(count), took, used)


def vpatch(move: Move, scratch: Path) -> Outcome:
    """vpatch's core, in a process of its own: the series carried, judged and guarded."""
    script = CI / "peers_vpatch.py"
    words = (
        sys.executable,
        script,
        move.repo / ".git",
        move.base,
        move.next,
        move.mails,
        *move.names,
    )
    ran = _timed(scratch, *words)
    if not ran.said.startswith("{"):
        raise RuntimeError(ran.said)
    told = json.loads(ran.said)
    return Outcome(ran.status, told["tree"], ran.said, told["kept"], ran.seconds, ran.cpu)


TOOLS: Mapping[str, Callable[[Move, Path], Outcome]] = {
    "vpatch rebase": vpatch,
    "git rebase": git_rebase,
    "git am -3": git_am,
    "gbp pq": gbp_pq,
    "quilt": quilt,
    "stg": stg,
}
COMMANDS = {"gbp pq": "gbp", "quilt": "quilt", "stg": "stg"}


def write_mails(git: Git, base: str, head: str, folder: Path) -> None:
    """The commits of a series as mails, with a ``series`` file."""
    options = ("--zero-commit", "--no-signature", "--full-index", "--no-stat", "--binary")
    git.run("format-patch", "--quiet", *options, f"-o{folder}", f"{base}..{head}")
    names = sorted(path.name for path in folder.glob("*.patch"))
    (folder / "series").write_text("".join(f"{name}\n" for name in names))
