"""Long series on many files make the tree of `git rebase`; ci/rebase_peers.py has the times."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from series_lab import TAG, TRAILERS, plain_git
from vpatch.patches.repository import scratch_repository
from vpatch.patches.series import Series
from vpatch.rebase.rebase import Side, rebase


def body(number: int) -> bytes:
    parts = (f"def f{number}_{k}(x):\n    y = x + {k}\n    return y\n\n\n" for k in range(20))
    return "".join(parts).encode()


class Many:
    """A repository with a series of commits, and a release that changed every file of it."""

    def __init__(self, folder: Path, files: int, patches: int) -> None:
        self.repo, self.series = folder / "repo", folder / TAG
        self.repo.mkdir()
        self.rng = random.Random(7)  # noqa: S311 - the same repository each time
        self.git("init", "--quiet")
        paths = [f"vllm/d{n % 50}/m{n}.py" for n in range(files)]
        for number, path in enumerate(paths):
            (self.repo / path).parent.mkdir(parents=True, exist_ok=True)
            (self.repo / path).write_bytes(body(number))
        self.git("add", ".")
        self.base = self.commit("The base")
        touched = self.rng.sample(paths, patches // 3)
        for number in range(patches):
            self.insert(touched[number % len(touched)], number)
            self.head = self.commit(f"say {number}\n\nBecause.\n\n{TRAILERS}")
        self.write_series()
        self.git("checkout", "--quiet", self.base)
        for path in {*touched, *self.rng.sample(paths, files // 5)}:
            (self.repo / path).write_bytes(b"import sys\n\n\n" + (self.repo / path).read_bytes())
        self.next = self.commit("The next release")
        self.git("gc", "--quiet")

    def git(self, *args: str) -> str:
        return plain_git(*args, folder=self.repo).decode().strip()

    def commit(self, message: str) -> str:
        self.git("commit", "--quiet", "--all", "-m", message)
        return self.git("rev-parse", "HEAD")

    def insert(self, path: str, number: int) -> None:
        lines = (self.repo / path).read_bytes().split(b"\n")
        lines.insert(5 * self.rng.randrange(20) + 2, b"    y += %d" % number)
        (self.repo / path).write_bytes(b"\n".join(lines))

    def write_series(self) -> None:
        options = ("--zero-commit", "--no-signature", "--full-index", "--no-stat", "--quiet")
        self.git("format-patch", *options, "-o", str(self.series), self.base)
        names = sorted(path.name for path in self.series.iterdir())
        (self.series / "series").write_text("".join(f"{name}\n" for name in names))


@pytest.mark.slow
@pytest.mark.parametrize(("files", "patches"), [(1000, 100), (5000, 300)])
def test_a_long_series_is_carried_as_git_rebase_does(
    tmp_path: Path, files: int, patches: int
) -> None:
    many = Many(tmp_path, files, patches)
    with scratch_repository(many.repo / ".git") as git:
        series = Series.read(many.series, TAG)
        rebased = rebase(git, series, Side(TAG, many.base), Side("v9.9.10", many.next))
    assert sum(rebased.counts.values()) == patches
    assert rebased.exit_code == 0
    many.git("checkout", "--quiet", many.head)
    many.git("rebase", "--quiet", "--onto", many.next, many.base)
    assert many.git("rev-parse", "HEAD^{tree}") == rebased.tree
