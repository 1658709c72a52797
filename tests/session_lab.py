"""A rebase that stops at conflicts: a small series, and a next release that is in its way."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from indexserver import IndexServer, running
from project_lab import BASE, STEPS, Project, git, vpatch
from rebase_lab import NEXT
from series_lab import TAG, Content, Step, numbered
from vpatch.patches.pin import PIN, Pin
from vpatch.patches.pinning import check_pin
from vpatch.patches.series import Series, lint
from vpatch.upstream.importer import Provenance
from vpatch.upstream.mirror import Mirror

# 0001 fits, 0003 and 0005 conflict, 0002 and 0004 fit behind them.
AFTER: Mapping[str, Content] = {
    **BASE,
    "vllm/a.py": b"zero\n" + numbered(60),
    "vllm/b.py": numbered(40, changed={10: "dix"}),
    "vllm/c.py": numbered(40, changed={1: "un"}),
}
THIRD, FIFTH = "0003-b-say-ten.patch", "0005-c-say-one.patch"
MARKED = numbered(40).replace(
    b"line 10\n",
    b"<<<<<<< v9.9.10\ndix\n||||||| before 0003-b-say-ten.patch\nline 10\n=======\nten\n"
    b">>>>>>> 0003-b-say-ten.patch\n",
)
TEN = numbered(40, changed={10: "dix is ten"})
ONE = numbered(40, changed={1: "un is one"})
SHA = "d" * 64


class Sessions(Project):
    """A pinned series on one release, and next releases in the mirror."""

    def __init__(
        self,
        folder: Path,
        after: Mapping[str, Content] = AFTER,
        steps: list[Step] | None = None,
        base: Mapping[str, Content] = BASE,
    ) -> None:
        super().__init__(folder, steps or STEPS, base)
        self.tree_of(NEXT, after)
        self.work = self.repo.parent / f"vllm-{NEXT}-rebase"
        self.next = self.repo / "patches" / NEXT

    def tree_of(self, tag: str, files: Mapping[str, Content]) -> None:
        """A release in the mirror, in both kinds."""
        package = {path: data for path, data in files.items() if path.startswith("vllm/")}
        names = {"sdist": ".tar.gz", "wheel": "-cp38-abi3-linux_x86_64.whl"}
        for kind in self.kinds:
            tree = self.lab.tree(None, files if kind == "sdist" else package)
            message = Provenance(tag, kind, f"vllm-{tag[1:]}{names[kind]}", SHA, "fedcba9")
            commit = self.lab.commit_tree(tree, None, message.message())
            self.lab.git.run("update-ref", f"refs/vpatch/{kind}/{tag}", commit)

    def run(self, *args: str) -> int:
        return vpatch("rebase", *args, "--repo", str(self.repo))

    def begin(self, *args: str) -> int:
        return self.run(TAG, NEXT, *args)

    def settle(self) -> None:
        """Resolves both conflicts and goes to the end."""
        write(self.work, {"vllm/b.py": TEN})
        assert self.run("--continue") == 3
        write(self.work, {"vllm/c.py": ONE})
        assert self.run("--continue") == 0

    def check_next(self) -> tuple[Pin, Series]:
        """The new series holds together."""
        assert lint(self.next) == ()
        pin, series = Pin.read(self.next / PIN), Series.read(self.next, NEXT)
        found = [Mirror.open(self.cache).find(NEXT, kind) for kind in self.kinds]
        releases = [release for release in found if release is not None]
        assert check_pin(self.lab.git, pin=pin, series=series, releases=releases) == ()
        return pin, series

    def contents(self) -> dict[str, bytes]:
        """What the new series makes of the next release."""
        pin, _ = self.check_next()
        listed = self.lab.files(pin.sources["sdist"].patched_tree)
        blobs = self.lab.git.read_blobs(entry.split()[1] for entry in listed.values())
        return {path: blobs[entry.split()[1]] for path, entry in listed.items()}


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


def standing(folder: Path) -> dict[str, bytes | str]:
    """Every file of a worktree, with where git stands there."""
    found: dict[str, bytes | str] = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(folder).parts
    }
    found["HEAD"] = git(folder, "rev-parse", "HEAD")
    found["refs"] = git(folder, "for-each-ref")
    found["index"] = git(folder, "ls-files", "--stage")
    return found


def everything(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder, but for the cache and for locks."""
    found: dict[str, bytes | None] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name.partition("/")[0] not in ("cache", "home") and not name.endswith(".lock"):
            found[name] = path.read_bytes() if path.is_file() else None
    return found


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The one object on stdout."""
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    answer: dict[str, Any] = json.loads(out)
    assert answer["schema"] == "vpatch/rebase/1"
    return answer


@contextmanager
def listing(monkeypatch: pytest.MonkeyPatch, *versions: str) -> Iterator[IndexServer]:
    """pip asks an index that lists wheels of these versions, and no other index."""
    with running(IndexServer()) as server:
        for version in versions:
            server.files[f"vllm-{version}-cp38-abi3-linux_x86_64.whl"] = b"wheel"
        closed_index(monkeypatch, server.url)
        yield server


def closed_index(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """pip asks this index and no other."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", url)
