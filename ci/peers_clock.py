"""Against the clock: real release steps, 300 patches on 5,000 files, and all pinned series."""

from __future__ import annotations

import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import peers_page
from peers_tools import TOOLS, Move, call, cpu_seconds, write_mails
from vpatch.files import cache_dir
from vpatch.git import Git
from vpatch.patches.repo import pinned_tags, series_folder
from vpatch.patches.series import LISTING, Series
from vpatch.patches.worktree import write_worktree
from vpatch.pipeline import Upstream, prepare
from vpatch.progress import SilentProgress
from vpatch.rebase.blame import blame_all
from vpatch.rebase.rebase import Side
from vpatch.upstream.mirror import Mirror

ROOT = Path(__file__).resolve().parent.parent
FILES, PATCHES, RUNS = 5000, 300, 2
STEP_S, VERIFIED_S = 2, 15
STEP_TIMES, VERIFIED_TIMES = 2, 10
_AM = "git worktree add + git am"
_VPATCH = Path(sys.executable).parent / "vpatch"


def _upstream() -> Upstream:
    return Upstream(cache_dir(), None, "sdist", SilentProgress())


def real_steps(names: Sequence[str]) -> Iterator[peers_page.Step]:
    """Each pinned series on the next pinned release, with each tool."""
    for source, target in pairwise(pinned_tags(ROOT)):
        with tempfile.TemporaryDirectory(prefix="vpatch-peers-") as folder:
            move = real_move(source, target, Path(folder))
            for name in names:
                scratch = Path(folder) / re.sub(r"\W+", "-", name)
                scratch.mkdir()
                made = TOOLS[name](move, scratch)
                shutil.rmtree(scratch)
                yield peers_page.Step(
                    f"{source} → {target}",
                    name,
                    _where(move, made.said, made.status),
                    made.seconds,
                    made.cpu,
                )


def real_move(source: str, target: str, folder: Path) -> Move:
    """A pinned series as commits on its release, and the next release on top of that one."""
    ready = prepare(source, ROOT, _upstream())
    mirror = Mirror.open(cache_dir())
    repo = folder / "repo"
    write_worktree(mirror.git, ready.release.commit, ready.applied, ready.series, repo)
    call(repo, "git", "branch", "--force", "series")
    release = prepare(target, ROOT, _upstream(), bare=True).release
    call(repo, "git", "fetch", "--quiet", mirror.git.git_dir, release.commit)
    tree = f"{release.commit}^{{tree}}"
    words = ("git", "commit-tree", tree, "-p", ready.release.commit, "-m", f"release {target}")
    new = call(repo, *words).stdout.strip()
    call(repo, "git", "checkout", "--quiet", "--detach", new)
    mails = folder / "mails"
    mails.mkdir()
    for patch in ready.series.patches:
        (mails / patch.file).write_bytes(patch.raw)
    (mails / LISTING).write_text("".join(f"{one.file}\n" for one in ready.series.patches))
    subjects = tuple(patch.subject for patch in ready.series.patches)
    return Move(repo, ready.release.commit, new, mails, subjects, (source, target))


def _where(move: Move, said: str, status: int) -> str:
    """Where a tool stopped, as far as its words tell; vpatch says everything at once."""
    if said.startswith("{"):
        counts = re.search(r'"counts": \{(.*?)\}', said)
        return (counts[1] if counts else "").replace('"', "").replace(":", "")
    if not status:
        return "goes through"
    flat = re.sub(r"[\W_]+", " ", said.lower())
    seen = [
        number
        for number, subject in enumerate(move.subjects, start=1)
        if re.sub(r"[\W_]+", " ", subject.lower()).strip() in flat
    ]
    return f"stops at patch {max(seen)} of {len(move.subjects)}" if seen else "stops"


def long_series(names: Sequence[str]) -> Iterator[peers_page.Time]:
    """300 patches on 5,000 files, of which a fifth changed: each tool has to make one tree."""
    with tempfile.TemporaryDirectory(prefix="vpatch-peers-") as folder:
        move = _long(Path(folder))
        trees: dict[str, str] = {}
        for name in names:
            best = used = float("inf")
            for turn in range(RUNS if name in ("vpatch rebase", "git rebase") else 1):
                scratch = Path(folder) / f"{re.sub(r'[^a-z0-9]+', '-', name)}-{turn}"
                scratch.mkdir()
                made = TOOLS[name](move, scratch)
                shutil.rmtree(scratch)
                trees[name] = made.tree
                best, used = min(best, made.seconds), min(used, made.cpu)
            peer = "git rebase" if name == peers_page.OURS else ""
            yield peers_page.Time(f"{PATCHES} patches, {FILES} files", name, best, used, peer)
        if len({tree for tree in trees.values() if tree}) != 1:
            raise RuntimeError(f"the tools made other trees of the long series: {trees}")


def _long(folder: Path) -> Move:
    rng = random.Random(7)  # noqa: S311 - the same repository each time
    repo = folder / "repo"
    repo.mkdir()
    call(repo, "git", "init", "--quiet")
    texts = {f"a/d{n % 50}/m{n}.py": _text(n) for n in range(FILES)}
    touched = rng.sample(sorted(texts), PATCHES // 3)
    now = dict(texts)
    parts = [_commit("base", 1, "", "The base", texts)]
    for number in range(PATCHES):
        path = touched[number % len(touched)]
        lines = now[path].split("\n")
        lines.insert(5 * rng.randrange(20) + 2, f"    y += {number}")
        now[path] = "\n".join(lines)
        start = f":{number + 1}"
        parts.append(_commit("series", number + 2, start, f"say {number}", {path: now[path]}))
    changed = {*touched, *rng.sample(sorted(texts), FILES // 5)}
    top = {path: "import sys\n\n\n" + texts[path] for path in sorted(changed)}
    parts.append(_commit("next", PATCHES + 2, ":1", "The next release", top))
    git = Git(repo / ".git")
    git.run("fast-import", "--quiet", stdin="".join(parts).encode())
    base, new = (git.line("rev-parse", f"refs/heads/{name}") for name in ("base", "next"))
    call(repo, "git", "checkout", "--quiet", "--detach", new)
    mails = folder / "mails"
    write_mails(git, base, git.line("rev-parse", "refs/heads/series"), mails)
    return Move(repo, base, new, mails, tuple(f"say {n}" for n in range(PATCHES)))


def _text(number: int) -> str:
    return "".join(f"def f{number}_{k}(x):\n    y = x + {k}\n    return y\n\n\n" for k in range(20))


def _commit(branch: str, mark: int, start: str, title: str, files: Mapping[str, str]) -> str:
    who = "A Bench <bench@example.com> 1700000000 +0000"
    head = f"commit refs/heads/{branch}\nmark :{mark}\nauthor {who}\ncommitter {who}\n"
    head += f"data {len(title)}\n{title}\n" + (f"from {start}\n" if start else "")
    bodies = (f"M 100644 inline {p}\ndata {len(text)}\n{text}\n" for p, text in files.items())
    return head + "".join(bodies) + "\n"


def verified() -> Iterator[peers_page.Time]:
    """One release step as a command; every pinned series on every pinned release, and by am."""
    tags = pinned_tags(ROOT)
    step = f"{tags[-2]} → {tags[-1]}"
    words = ("rebase", tags[-2], tags[-1], "--dry-run", "--repo", ROOT)
    best = used = float("inf")
    for _ in range(RUNS):
        start, before = time.perf_counter(), cpu_seconds()
        call(ROOT, _VPATCH, *words, ok=False)
        best = min(best, time.perf_counter() - start)
        used = min(used, cpu_seconds() - before)
    tool = f"vpatch rebase {step} --dry-run"
    yield peers_page.Time("a release step", tool, best, used, _AM, STEP_S, times=STEP_TIMES)
    mirror = Mirror.open(cache_dir())
    found = {tag: prepare(tag, ROOT, _upstream(), bare=True).release for tag in tags}
    sides = tuple(Side(tag, release.commit) for tag, release in found.items())
    series = [Series.read(series_folder(ROOT, tag)) for tag in tags]
    what = f"{len(tags)} pinned series on {len(tags)} releases"
    start, before = time.perf_counter(), cpu_seconds()
    blame_all(
        [mirror.git.git_dir], [(one, side, sides) for one, side in zip(series, sides, strict=True)]
    )
    took, used = time.perf_counter() - start, cpu_seconds() - before
    cores = min(os.cpu_count() or 1, 2)
    yield peers_page.Time(
        what, "vpatch blame", took, used, _AM, VERIFIED_S, cores, times=VERIFIED_TIMES
    )
    yield peers_page.Time(what, _AM, *_by_am(mirror, series, sides))
    # On its own release am goes through all of a series.
    own = _by_am(mirror, [series[-2]], [sides[-2]])
    yield peers_page.Time("a release step", _AM, *own)


def _by_am(mirror: Mirror, series: Sequence[Series], sides: Sequence[Side]) -> tuple[float, float]:
    """What a script would do: a worktree for each pair, and am until it stops."""
    took = used = 0.0
    with tempfile.TemporaryDirectory(prefix="vpatch-peers-") as folder:
        repo = Path(folder) / "repo"
        call(
            Path(folder), "git", "clone", "--quiet", "--shared", "--bare", mirror.git.git_dir, repo
        )
        for one in series:
            for side in sides:
                tree = Path(folder) / f"{one.tag}-{side.name}"
                start, before = time.perf_counter(), cpu_seconds()
                call(repo, "git", "worktree", "add", "--quiet", "--detach", tree, side.commit)
                mails = [one.folder / patch.file for patch in one.patches]
                call(tree, "git", "am", "--quiet", "-3", *mails, ok=False)
                took += time.perf_counter() - start
                used += cpu_seconds() - before
                shutil.rmtree(tree)
    return took, used
