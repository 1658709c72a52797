"""A small project on disk: a mirror in the cache, a pinned series, and its worktree to work in."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from series_lab import TAG, Content, Lab, Step, numbered, plain_git
from vpatch.cli import main
from vpatch.git import Git
from vpatch.patches.apply import apply_series
from vpatch.patches.pin import PIN, Pin
from vpatch.patches.pinning import check_pin, make_pin
from vpatch.patches.series import Series, lint
from vpatch.patches.worktree import write_worktree
from vpatch.pipeline import Upstream
from vpatch.progress import SilentProgress
from vpatch.upstream.importer import Provenance
from vpatch.upstream.mirror import ArchiveKind, Mirror, Release

BASE: Mapping[str, Content] = {
    "vllm/a.py": numbered(60),
    "vllm/b.py": numbered(40),
    "vllm/c.py": numbered(40),
    "tests/test_a.py": numbered(20),
    "setup.py": b"setup()\n",
}
STEPS = [
    Step("0001-a-say-five.patch", {"vllm/a.py": numbered(60, changed={5: "five"})}),
    Step("0002-tests-five-is-said.patch", {"tests/test_a.py": numbered(20, changed={9: "nine"})}),
    Step("0003-b-say-ten.patch", {"vllm/b.py": numbered(40, changed={10: "ten"})}),
    Step(
        "0004-a-say-fifty.patch",
        {"vllm/a.py": numbered(60, changed={5: "five", 50: "fifty"}), "vllm/new.py": b"new\n"},
    ),
    Step("0005-c-say-one.patch", {"vllm/c.py": numbered(40, changed={1: "one"})}),
]
SHA = "d" * 64


class Project:
    """A repository with ``patches/TAG``, and the cache that ``VPATCH_CACHE`` names."""

    def __init__(
        self,
        folder: Path,
        steps: Sequence[Step] = STEPS,
        base: Mapping[str, Content] = BASE,
        kinds: Sequence[ArchiveKind] = ("sdist", "wheel"),
    ) -> None:
        self.cache = Path(os.environ["VPATCH_CACHE"])
        self.lab = Lab(self.cache, base)
        self.repo = folder / "repo"
        self.folder = self.repo / "patches" / TAG
        self.work = folder / "work"
        self.kinds = kinds
        package = {path: data for path, data in base.items() if path.startswith("vllm/")}
        for kind in kinds:
            tree = self.lab.base if kind == "sdist" else self.lab.tree(None, package)
            self._import(kind, tree)
        self.lab.commit = self.release(kinds[0]).commit
        self.lab.series(self.folder, steps)
        (self.repo / "pyproject.toml").touch()
        (self.folder / "README.md").write_text("A person's notes.\n")
        self.pin_now()

    def _import(self, kind: ArchiveKind, tree: str) -> None:
        name = {"sdist": "vllm-9.9.9.tar.gz", "wheel": "vllm-9.9.9-cp38-abi3-linux_x86_64.whl"}
        message = Provenance(TAG, kind, name[kind], SHA, "0123456").message()
        commit = self.lab.commit_tree(tree, None, message)
        self.lab.git.run("update-ref", f"refs/vpatch/{kind}/{TAG}", commit)

    @property
    def upstream(self) -> Upstream:
        return Upstream(self.cache, None, None, SilentProgress())

    @property
    def series(self) -> Series:
        return Series.read(self.folder, TAG)

    @property
    def pin(self) -> Pin:
        return Pin.read(self.folder / PIN)

    @property
    def names(self) -> list[str]:
        return [patch.file for patch in self.series.patches]

    def release(self, kind: ArchiveKind) -> Release:
        found = Mirror.open(self.cache).find(TAG, kind)
        assert found is not None
        return found

    @property
    def releases(self) -> list[Release]:
        return [self.release(kind) for kind in self.kinds]

    def pin_now(self, previous: Pin | None = None) -> None:
        made = make_pin(
            self.lab.git, series=self.series, releases=self.releases, wheels=(), previous=previous
        )
        (self.folder / PIN).write_bytes(made.to_toml())

    def worktree(self, folder: Path | None = None, kind: ArchiveKind | None = None) -> Path:
        """What ``vpatch apply --worktree`` writes."""
        release = self.release(kind or self.kinds[0])
        applied = apply_series(self.lab.git, release.tree, self.series, kind=release.kind)
        place = folder or self.work
        write_worktree(self.lab.git, release.commit, applied, self.series, place)
        return place

    def check(self) -> None:
        """Everything about the series on disk holds together."""
        assert lint(self.folder) == ()
        assert (
            check_pin(self.lab.git, pin=self.pin, series=self.series, releases=self.releases) == ()
        )
        beside = {path.name for path in self.folder.parent.iterdir()}
        assert beside == {TAG}
        assert (self.folder / "README.md").read_text() == "A person's notes.\n"

    def tree(self) -> str:
        """What the series makes of the first kind of source."""
        return apply_series(self.lab.git, self.releases[0].tree, self.series).tree

    def raws(self) -> dict[str, bytes]:
        return {patch.subject: patch.raw for patch in self.series.patches}


def git(folder: Path, *args: str) -> str:
    return plain_git(*args, folder=folder).decode("utf-8", "surrogateescape").strip()


def write(folder: Path, changes: Mapping[str, bytes]) -> None:
    for name, data in changes.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def fixup(work: Path, number: int, changes: Mapping[str, bytes], message: str = "") -> None:
    """Changes the Nth commit of the series, and replays the ones behind it."""
    commits = git(work, "rev-list", "--reverse", f"vpatch/base/{TAG}..").split()
    branch = git(work, "symbolic-ref", "--short", "HEAD")
    git(work, "checkout", "--quiet", "--detach", commits[number - 1])
    write(work, changes)
    git(work, "add", "--all", ".")
    reword = ("-m", message) if message else ("--no-edit",)
    git(work, "commit", "--quiet", "--amend", *reword)
    for later in commits[number:]:
        git(work, "cherry-pick", "--allow-empty", later)
    git(work, "branch", "--force", branch, "HEAD")
    git(work, "checkout", "--quiet", branch)


def rearranged(work: Path, order: Sequence[int]) -> None:
    """The series' commits in another order, some left out."""
    commits = git(work, "rev-list", "--reverse", f"vpatch/base/{TAG}..").split()
    git(work, "reset", "--quiet", "--hard", f"vpatch/base/{TAG}")
    for number in order:
        git(work, "cherry-pick", commits[number - 1])


def committed(work: Path, changes: Mapping[str, bytes], message: str) -> str:
    write(work, changes)
    git(work, "add", "--all", "--force", ".")
    git(work, "commit", "--quiet", "-m", message)
    return git(work, "rev-parse", "HEAD")


def vpatch(*args: str) -> int:
    """The command, in this process; returns its exit code."""
    try:
        main(args)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    raise AssertionError("main() ends the process")


def objects(git_dir: Path) -> set[str]:
    """Every object of a repository, to see that a run left none."""
    listed = Git(git_dir).output("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    return set(listed.decode().split())
