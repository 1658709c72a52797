"""The last stage of every verb that rewrites a series: what is wrong is never written."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kill_lab import contents
from project_lab import Project, committed, fixup, git, vpatch
from series_lab import TAG, TRAILERS, numbered
from vpatch.errors import FindingError
from vpatch.patches.export import Entry, NewSeries
from vpatch.patches.repo import pinned
from vpatch.patches.repository import scratch_repository
from vpatch.patches.rewrite import Rewritten, Wanted, verified, write
from vpatch.patches.swap import exchange, read_folder, replacing

REAL = Path(__file__).parent.parent / "patches"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def same(project: Project) -> NewSeries:
    patches = project.series.patches
    return NewSeries(tuple(Entry(each.file, each.raw, each.file, each.raw) for each in patches))


def verify(project: Project, new: NewSeries, wanted: Wanted) -> Rewritten:
    with scratch_repository(project.lab.git.git_dir) as scratch:
        return verified(
            scratch,
            folder=project.folder,
            before=read_folder(project.folder),
            pin=project.pin,
            new=new,
            releases=project.releases,
            wanted=wanted,
        )


def test_another_tree_than_the_wanted_one_is_refused(project: Project) -> None:
    right = Wanted(project.lab.base, project.tree())
    assert not verify(project, same(project), right).changed
    for wrong in (
        replace(right, tree=project.lab.base),
        # A base with other files: every file that the series touches is compared.
        Wanted(project.lab.tree(None, {"x": b"x\n"}), project.lab.base),
    ):
        with pytest.raises(FindingError, match="differs") as caught:
            verify(project, same(project), wrong)
        assert caught.value.code == "trees-differ"
    elsewhere = Wanted(project.lab.tree(None, {"x": b"x\n"}), project.tree())
    assert not verify(project, same(project), elsewhere).changed


def test_an_unchanged_series_is_not_written(project: Project) -> None:
    inode = project.folder.stat().st_ino
    rewritten = verify(project, same(project), Wanted(project.lab.base, project.tree()))
    with replacing(project.folder) as replacement:
        write(replacement, rewritten)
    assert project.folder.stat().st_ino == inode


def run(project: Project, *args: str, limit: int = 0) -> subprocess.Popen[bytes]:
    start = f"ulimit -f {limit}; " if limit else ""
    command = [sys.executable, "-m", "vpatch", *args, "--repo", str(project.repo), "--json"]
    return subprocess.Popen(
        ["/bin/sh", "-c", f'{start}exec "$@"', "sh", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def ended(process: subprocess.Popen[bytes]) -> Mapping[str, object]:
    stdout, stderr = process.communicate(timeout=120)
    assert b"Traceback" not in stderr
    value = json.loads(stdout)
    assert isinstance(value, dict)
    return {**value, "status": process.returncode}


def test_two_exports_at_once(project: Project, tmp_path: Path) -> None:
    works = [project.worktree(tmp_path / name) for name in ("one", "two")]
    fixup(works[0], 3, {"vllm/b.py": numbered(40, changed={10: "ONE"})})
    fixup(works[1], 3, {"vllm/b.py": numbered(40, changed={10: "TWO"})})
    runs = [run(project, "export", TAG, "--from", str(work)) for work in works]
    answers = [ended(process) for process in runs]
    assert [answer["status"] for answer in answers] == [0, 0]
    assert sorted(int(str(answer["revision"])) for answer in answers) == [2, 3]
    last = works[0] if answers[0]["revision"] == 3 else works[1]
    assert project.tree() == git(last, "rev-parse", "HEAD^{tree}")
    project.check()


@pytest.mark.parametrize("blocks", [1, 40])
def test_a_full_disk_leaves_the_old_series(blocks: int, project: Project) -> None:
    """Files that may not grow: the nearest thing to a full disk that needs no disk."""
    work = project.worktree()
    committed(work, {"vllm/x.py": b"x\n" * 30_000}, f"x: say x\n\n{TRAILERS}")
    before = contents(project.folder)
    answer = ended(run(project, "export", TAG, "--from", str(work), limit=blocks))
    assert answer["status"] == 4
    assert isinstance(answer["error"], dict)
    assert contents(project.folder) == before
    project.check()


def test_a_folder_that_may_not_be_written(project: Project) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    work = project.worktree()
    committed(work, {"vllm/x.py": b"x\n"}, f"x: say x\n\n{TRAILERS}")
    project.folder.parent.chmod(0o555)
    try:
        answer = ended(run(project, "export", TAG, "--from", str(work)))
        check = ended(run(project, "export", TAG, "--from", str(work), "--check"))
    finally:
        project.folder.parent.chmod(0o755)
    assert answer["status"] == 4
    assert check["status"] == 1
    assert len(project.names) == 5


PARTS = 4  # for as many workers
QUICK = ("v0.33.0", 0)


# A hundred runs of the command a release: but for a quarter of one, every night.
@pytest.mark.network
@pytest.mark.parametrize(
    ("tag", "part"),
    [
        pytest.param(tag, part, marks=() if (tag, part) == QUICK else pytest.mark.nightly)
        for tag in sorted(path.name for path in REAL.glob("v*"))
        for part in range(PARTS)
    ],
)
def test_every_real_patch_refreshed_is_the_same_bytes(
    tag: str, part: int, release_cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for path in sorted((REAL / tag).glob("*.patch"))[part::PARTS]:
        assert vpatch("refresh", tag, path.name, "--check") == 0, capfd.readouterr()


@pytest.mark.slow
def test_a_reader_sees_the_old_or_the_new_series(project: Project, tmp_path: Path) -> None:
    old = project.series.sha256
    work = project.worktree()
    copies = [tmp_path / "a", tmp_path / "b"]
    shutil.copytree(project.folder, copies[0])
    committed(work, {"vllm/x.py": b"x\n"}, f"x: say x\n\n{TRAILERS}")
    assert ended(run(project, "export", TAG, "--from", str(work)))["status"] == 0
    new = project.series.sha256
    child = os.fork()
    if not child:
        place = copies[1]
        while True:  # as if one export followed the other all the time
            shutil.copytree(copies[0], place)
            exchange(place, project.folder)
            shutil.rmtree(copies[0])
            place.rename(copies[0])
    try:
        seen = [pinned(project.repo, TAG)[1].sha256 for _ in range(100)]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert set(seen) == {old, new}
