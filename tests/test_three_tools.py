"""The promise of a series folder: git am, quilt and vpatch make the same tree of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from series_lab import TAG, Lab, Step, numbered, plain_git
from vpatch.git import Git
from vpatch.patches.apply import apply_series
from vpatch.patches.series import Series, lint
from vpatch.patches.worktree import write_worktree
from vpatch.upstream.index import Index
from vpatch.upstream.mirror import Mirror

PATCHES = Path(__file__).parent.parent / "patches"

BASE = {
    "vllm/a.py": numbered(60),
    "vllm/gone.py": numbered(5),
    "vllm/old_name.py": numbered(40),
    "vllm/deep/only/file.py": b"alone\n",
    "tools/run.sh": b"#!/bin/sh\n",
    "latin1.txt": b"caf\xe9\n\x0c\n\x85\nend",
    "a name/with blanks": numbered(9),
}
STEPS = [
    Step("0001-change.patch", {"vllm/a.py": numbered(60, changed={5: "five", 50: "fifty"})}),
    Step("0002-change-again.patch", {"vllm/a.py": numbered(60, changed={5: "5", 58: "end"})}),
    Step("0003-add-a-folder.patch", {"vllm/new/x.py": b"x = 1\n", "tests/test_x.py": b"\n\n"}),
    Step("0004-delete.patch", {"vllm/gone.py": None, "vllm/deep/only/file.py": None}),
    Step(
        "0005-rename-and-edit.patch",
        {"vllm/old_name.py": None, "vllm/new_name.py": numbered(40, changed={20: "twenty"})},
    ),
    Step("0006-modes.patch", {"tools/run.sh": ("100755", b"#!/bin/sh\n")}),
    Step("0007-add-a-tool.patch", {"tools/new.sh": ("100755", b"#!/bin/sh\nexit\n")}),
    Step("0008-odd-bytes.patch", {"latin1.txt": b"caf\xe9\n\x0c\n\x85\nEND\n"}),
    Step("0009-no-newline.patch", {"latin1.txt": b"caf\xe9\n\x0c\n\x85\nno end"}),
    Step("0010-blanks.patch", {"a name/with blanks": numbered(9, changed={2: "  \t "})}),
]


def by_git_am(source: Git, commit: str, series: Series, folder: Path) -> str:
    """`git am patches/TAG/*.patch`, as a user types it."""
    folder.mkdir()
    plain_git("init", "--quiet", folder=folder)
    (folder / ".git/objects/info/alternates").write_text(f"{source.git_dir}/objects\n")
    plain_git("reset", "--quiet", "--hard", commit, folder=folder)
    patches = sorted(str(path) for path in series.folder.glob("*.patch"))
    plain_git("am", "--quiet", *patches, folder=folder)
    return plain_git("rev-parse", "HEAD^{tree}", folder=folder).decode().strip()


def by_quilt(source: Git, tree: str, series: Series, folder: Path) -> str:
    """`quilt push -a --fuzz=0`, as a user types it."""
    folder.mkdir()
    checkout = Git(source.git_dir, work_tree=folder)
    with checkout.temporary_index() as index:
        index.run("read-tree", tree)
        index.run("checkout-index", "--all", "--quiet")
    done = subprocess.run(
        [quilt(), "--quiltrc=-", "push", "-a", "--fuzz=0"],
        cwd=folder,
        env={**os.environ, "QUILT_PATCHES": str(series.folder)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode("utf-8", "replace")
    shutil.rmtree(folder / ".pc")
    with checkout.temporary_index() as index:
        index.run("add", "--all", "--force", ".")
        return index.line("write-tree")


def quilt() -> str:
    """The real quilt; a CI run without it fails, because it would prove nothing."""
    path = shutil.which("quilt")
    if path is None:
        message = "quilt is not installed (Debian: apt-get install quilt)"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return path


def test_three_tools_make_one_tree(tmp_path: Path) -> None:
    lab = Lab(tmp_path, BASE)
    series = lab.series(tmp_path / TAG, STEPS)
    applied = apply_series(lab.git, lab.base, series)
    assert {patch.verdict for patch in applied.patches} == {"clean"}
    assert by_git_am(lab.git, lab.commit, series, tmp_path / "am") == applied.tree
    assert by_quilt(lab.git, lab.base, series, tmp_path / "quilt") == applied.tree


def test_ci_fails_without_quilt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="quilt is not installed"):
        quilt()


@pytest.mark.network
@pytest.mark.parametrize("tag", sorted(path.parent.name for path in PATCHES.glob("*/series")))
def test_three_tools_make_one_tree_of_the_real_series(
    tag: str, tmp_path: Path, release_cache: Path
) -> None:
    assert lint(PATCHES / tag) == ()
    series = Series.read(PATCHES / tag)
    mirror = Mirror.open(release_cache)
    release = mirror.fetch(tag, index=Index.from_pip_config())
    applied = apply_series(mirror.git, release.tree, series, kind=release.kind)
    assert {patch.verdict for patch in applied.patches} == {"clean"}
    assert by_git_am(mirror.git, release.commit, series, tmp_path / "am") == applied.tree
    assert by_quilt(mirror.git, release.tree, series, tmp_path / "quilt") == applied.tree
    written = write_worktree(mirror.git, release.commit, applied, series, tmp_path / "work")
    assert plain_git("rev-parse", "HEAD^{tree}", folder=written.folder).decode().strip() == (
        applied.tree
    )
