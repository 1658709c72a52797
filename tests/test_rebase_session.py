"""`vpatch rebase` in session: a conflict becomes a worktree, and nothing of anybody's is lost."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from indexserver import IndexServer, running
from kill_lab import killed_at, moments, spread
from project_lab import BASE, git, vpatch
from rebase_lab import NEXT
from series_lab import TAG, Content, Step, numbered
from session_lab import (
    AFTER,
    FIFTH,
    MARKED,
    ONE,
    TEN,
    THIRD,
    Sessions,
    closed_index,
    everything,
    said,
    standing,
    write,
)
from vpatch.files import cache_dir
from vpatch.patches.swap import read_folder
from vpatch.rebase.session import holding, session_file


@pytest.fixture(autouse=True)
def index(monkeypatch: pytest.MonkeyPatch, hermetic: None) -> Iterator[None]:
    """An index with a wheel of the next releases."""
    with running(IndexServer()) as server:
        for number in ("9.9.10", "9.9.11"):
            server.files[f"vllm-{number}-cp38-abi3-linux_x86_64.whl"] = b"wheel"
        closed_index(monkeypatch, server.url)
        yield


@pytest.fixture
def project(tmp_path: Path) -> Sessions:
    return Sessions(tmp_path)


def test_a_conflict_is_a_worktree_at_the_commits_so_far(
    project: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_folder(project.repo / "patches")
    assert project.begin("--json") == 3
    answer = said(capsys)
    work = project.work
    session = answer["session"]
    assert (session["worktree"], session["patch"]) == (str(work), THIRD)
    assert session["conflicts"] == [{"file": "vllm/b.py", "reason": "content", "lines": [10, 16]}]
    assert answer["error"]["code"] == "conflict"
    assert f"vpatch rebase --continue {NEXT}" in answer["error"]["hint"]
    assert (work / "vllm/b.py").read_bytes() == MARKED
    assert git(work, "log", "--format=%s", f"vpatch/base/{NEXT}..").split("\n") == [
        "tests five is said",
        "a say five",
    ]
    assert git(work, "status", "--porcelain") == "UU vllm/b.py"
    sides = [git(work, "show", f":{number}:vllm/b.py") for number in (1, 2, 3)]
    assert [side.split("\n")[9] for side in sides] == ["line 10", "dix", "ten"]
    assert git(work, "fsck", "--strict") == ""
    after = read_folder(project.repo / "patches")
    assert {**after, **before} == after
    assert {path.rpartition("/")[2] for path in set(after) - set(before)} <= {
        session_file(project.repo, NEXT).name
    }


def test_continue_takes_the_files_and_writes_the_series_at_the_end(
    project: Sessions, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project.begin()
    work = project.work
    write(work, {"vllm/b.py": TEN})
    capsys.readouterr()
    monkeypatch.chdir(work / "vllm")
    # In the worktree nobody has to say which repository is meant.
    assert vpatch("rebase", "--continue", "--json") == 3
    answer = said(capsys)
    assert (answer["session"]["patch"], answer["session"]["resolved"]) == (FIFTH, [THIRD])
    assert git(work, "status", "--porcelain") == "UU vllm/c.py"
    assert git(work, "log", "-2", "--format=%s") == "a say fifty\nb say ten"
    assert (work / "vllm/new.py").read_bytes() == b"new\n"
    write(work, {"vllm/c.py": ONE})
    assert vpatch("rebase", "--continue", "--json") == 0
    answer = said(capsys)
    assert answer["counts"] == {"clean": 1, "offset": 2, "resolved": 2}
    assert answer["written"] is True
    assert not work.exists()
    assert not session_file(project.repo, NEXT).exists()
    made = project.contents()
    assert (made["vllm/b.py"], made["vllm/c.py"]) == (TEN, ONE)
    _, series = project.check_next()
    old = {patch.subject: patch for patch in project.series.patches}
    for patch in series.patches:
        was = old[patch.subject]
        assert (patch.mail.message, patch.author, patch.mail.date) == (
            was.mail.message,
            was.author,
            was.mail.date,
        )


def staged(work: Path) -> None:
    write(work, {"vllm/b.py": MARKED})
    git(work, "add", "vllm/b.py")


def half_done(work: Path) -> None:
    write(work, {"vllm/b.py": MARKED.replace(b"<<<<<<< v9.9.10\n", b"")})


def dirty(work: Path) -> None:
    write(work, {"vllm/b.py": TEN, "vllm/a.py": b"mine\n"})


def foreign(work: Path) -> None:
    write(work, {"vllm/b.py": TEN, "vllm/notes.txt": b"mine\n"})


def in_the_way(work: Path) -> None:
    """Ignored by git, and of the name of a file that a later patch makes."""
    (work / ".git/info/exclude").write_text("new.py\n")
    write(work, {"vllm/b.py": TEN, "vllm/new.py": b"mine\n"})


def linked(work: Path) -> None:
    write(work, {"vllm/b.py": TEN})
    (work / "vllm").rename(work / "elsewhere")
    (work / "vllm").symlink_to("elsewhere")


def by_hand(work: Path) -> None:
    write(work, {"vllm/b.py": TEN})
    git(work, "commit", "--quiet", "-a", "-m", "Mine")


def on_another_branch(work: Path) -> None:
    write(work, {"vllm/b.py": TEN})
    git(work, "add", "vllm/b.py")
    git(work, "checkout", "--quiet", "-b", "mine")


def cherry_picking(work: Path) -> None:
    write(work, {"vllm/b.py": TEN})
    (work / ".git/CHERRY_PICK_HEAD").write_text(git(work, "rev-parse", "HEAD"))


def locked_index(work: Path) -> None:
    write(work, {"vllm/b.py": TEN})
    (work / ".git/index.lock").touch()


REFUSALS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "untouched": (lambda _: None, "unresolved", "vllm/b.py:10: the conflict is as it was"),
    "staged": (staged, "marker", "vllm/b.py:10: the marker '<<<<<<< v9.9.10' is left (and 3 more)"),
    "half done": (half_done, "marker", "vllm/b.py:11: the marker '|||||||"),
    "dirty": (dirty, "foreign-file", "vllm/a.py: the file is no part of 0003"),
    "foreign": (foreign, "foreign-file", "vllm/notes.txt: the file is no part of 0003"),
    "in the way": (in_the_way, "in-the-way", "vllm/new.py: the file is in the way"),
    "linked": (linked, "in-the-way", "vllm is in the way"),
    "by hand": (by_hand, "hand-made-commit", "('Mine')"),
    "another branch": (on_another_branch, "other-branch", "is on mine, not on"),
    "cherry-picking": (cherry_picking, "unfinished", "in the midst of a cherry-pick"),
    "locked": (locked_index, "unfinished", "its index is locked"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_is_not_whole_is_refused_and_stays(
    what: str, project: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    do, code, text = REFUSALS[what]
    project.begin()
    do(project.work)
    before = (standing(project.work), session_file(project.repo, NEXT).read_bytes())
    capsys.readouterr()
    assert project.run("--status", "--json") == 0
    (waits,) = [one["waits"] for one in said(capsys)["sessions"]]
    assert project.run("--continue", "--json") == 1
    error = said(capsys)["error"]
    assert error["code"] == code
    assert text in error["message"]
    assert error["hint"]
    assert (standing(project.work), session_file(project.repo, NEXT).read_bytes()) == before
    assert ("ready" in waits[0]) == (what == "in the way")
    assert not project.next.exists()


def test_the_next_step_of_a_refusal_works(
    project: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    project.begin()
    by_hand(project.work)
    capsys.readouterr()
    assert project.run("--continue", "--json") == 1
    command = said(capsys)["error"]["hint"].partition(" takes the commit back")[0]
    subprocess.run(command.split(), check=True)
    foreign(project.work)
    assert project.run("--continue") == 1
    git(project.work, "add", "vllm/notes.txt")
    assert project.run("--continue") == 3
    assert git(project.work, "log", "-1", "--format=%s", "vllm/notes.txt") == "b say ten"
    write(project.work, {"vllm/c.py": ONE})
    assert project.run("--continue") == 0
    assert project.contents()["vllm/notes.txt"] == b"mine\n"


def test_gits_own_tools_work(project: Sessions, tmp_path: Path) -> None:
    project.begin()
    tool = tmp_path / "tool"
    tool.write_text('#!/bin/sh\nsed s/ten/TEN/ "$1" > "$2"\n')
    tool.chmod(0o755)
    git(project.work, "config", "mergetool.mine.cmd", f'{tool} "$REMOTE" "$MERGED"')
    git(project.work, "config", "mergetool.mine.trustExitCode", "true")
    git(project.work, "mergetool", "--tool=mine", "--no-prompt")
    assert (project.work / "vllm/b.py.orig").read_bytes() == MARKED
    assert project.run("--continue") == 3
    assert not (project.work / "vllm/b.py.orig").exists()
    git(project.work, "checkout", "--ours", "vllm/c.py")
    write(project.work, {"vllm/__pycache__/c.pyc": b"cache"})
    # The next release's lines are the result: nothing of the patch is left, and that is asked.
    assert project.run("--continue") == 1
    git(project.work, "checkout", "--theirs", "vllm/c.py")
    assert project.run("--continue") == 0
    made = project.contents()
    assert made["vllm/b.py"] == numbered(40, changed={10: "TEN"})
    assert made["vllm/c.py"] == numbered(40, changed={1: "one"})


def test_skip_leaves_a_patch_out_and_says_so(
    project: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    project.begin()
    write(project.work, {"vllm/b.py": TEN})
    before = standing(project.work)
    capsys.readouterr()
    for args, code in (((FIFTH,), 2), ((THIRD,), 1)):
        assert project.run("--skip", *args, "--json") == code
        assert standing(project.work) == before
    assert "edits that would be lost: vllm/b.py" in capsys.readouterr().out
    assert project.run("--skip", "3", "--discard") == 3
    assert git(project.work, "log", "-1", "--format=%s") == "a say fifty"
    assert (project.work / "vllm/b.py").read_bytes() == numbered(40, changed={10: "dix"})
    write(project.work, {"vllm/c.py": ONE})
    assert project.run("--continue") == 0
    pin, series = project.check_next()
    assert [patch.subject for patch in series.patches][2:] == ["a say fifty", "c say one"]
    assert pin.origin is not None
    assert [(left.patch, left.verdict) for left in pin.origin.left] == [(THIRD, "skipped")]


@pytest.mark.parametrize("empty", [False, True])
def test_abort_restores_exactly(project: Sessions, tmp_path: Path, *, empty: bool) -> None:
    if empty:
        project.work.mkdir()
    before = everything(tmp_path)
    project.begin()
    write(project.work, {"vllm/b.py": TEN})
    assert project.run("--continue") == 3
    assert project.run("--abort") == 0
    assert everything(tmp_path) == before


def noted(work: Path) -> None:
    write(work, {"notes.txt": b"mine\n"})


def stashed(work: Path) -> None:
    git(work, "checkout", "--ours", "vllm/b.py")
    git(work, "add", "vllm/b.py")
    write(work, {"vllm/a.py": b"mine\n"})
    git(work, "stash")


def orphaned(work: Path) -> None:
    by_hand(work)
    git(work, "branch", "kept")
    git(work, "reset", "--quiet", "--hard", "HEAD~1")


@pytest.mark.parametrize("do", [noted, stashed, orphaned, by_hand, cherry_picking, foreign])
def test_abort_takes_nothing_of_anybodys(
    do: Callable[[Path], None], project: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    project.begin()
    do(project.work)
    before = standing(project.work)
    for more in ((), ("--discard",)):
        capsys.readouterr()
        assert project.run("--abort", "--json", *more) == 1
        assert said(capsys)["error"]["code"] == "unknown-work"
    assert standing(project.work) == before
    assert session_file(project.repo, NEXT).exists()


def test_abort_lets_edits_go_only_on_request(
    project: Sessions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(tmp_path)
    project.begin()
    write(project.work, {"vllm/b.py": TEN})
    capsys.readouterr()
    assert project.run("--abort", "--json") == 1
    assert said(capsys)["error"]["code"] == "unsaved-work"
    assert (project.work / "vllm/b.py").read_bytes() == TEN
    assert project.run("--abort", "--discard") == 0
    assert everything(tmp_path) == before


def test_a_worktree_that_is_gone_is_written_again_with_what_was_resolved(
    project: Sessions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(tmp_path)
    project.begin()
    write(project.work, {"vllm/b.py": TEN})
    project.run("--continue")
    there = standing(project.work)
    shutil.rmtree(project.work)
    capsys.readouterr()
    assert project.run("--continue", "--json") == 1
    assert said(capsys)["error"]["code"] == "no-worktree"
    assert project.run("--status") == 0
    assert "is gone: vpatch rebase v9.9.9 v9.9.10 writes it again" in capsys.readouterr().out
    assert project.begin() == 3
    assert standing(project.work) == there
    shutil.rmtree(project.work)
    assert project.run("--abort") == 0
    assert everything(tmp_path) == before


def other_series(project: Sessions) -> None:
    patch = project.folder / "0001-a-say-five.patch"
    patch.write_bytes(patch.read_bytes().replace(b"Because", b"Since"))
    project.pin_now(project.pin)


def other_release(project: Sessions) -> None:
    project.tree_of(NEXT, {**AFTER, "vllm/more.py": b"more\n"})


def other_schema(project: Sessions) -> None:
    path = session_file(project.repo, NEXT)
    path.write_text(path.read_text().replace("rebase-session/1", "rebase-session/0"))


def damaged(project: Sessions) -> None:
    path = session_file(project.repo, NEXT)
    path.write_bytes(path.read_bytes()[:-20])


def misshapen(project: Sessions) -> None:
    path = session_file(project.repo, NEXT)
    path.write_text(json.dumps({**json.loads(path.read_text()), "stand": []}))


@pytest.mark.parametrize(
    ("do", "status", "code"),
    [
        (other_series, 1, "series-changed"),
        (other_release, 1, "release-changed"),
        (other_schema, 2, "other-session"),
        (damaged, 1, "session-damaged"),
        (misshapen, 1, "session-damaged"),
    ],
)
def test_a_session_that_fits_no_more_is_refused(
    do: Callable[[Sessions], None],
    status: int,
    code: str,
    project: Sessions,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project.begin()
    write(project.work, {"vllm/b.py": TEN})
    do(project)
    before = standing(project.work)
    capsys.readouterr()
    assert project.run("--continue", "--json") == status
    error = said(capsys)["error"]
    assert error["code"] == code
    assert error["hint"]
    assert standing(project.work) == before


def test_two_sessions(
    project: Sessions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project.tree_of("v9.9.11", AFTER)
    project.begin()
    before = standing(project.work)
    capsys.readouterr()
    for args, code in (
        ((TAG, NEXT), "in-session"),
        ((TAG, NEXT, "--worktree", str(tmp_path / "other")), "in-session"),
        ((TAG, "v9.9.11", "--worktree", str(project.work)), "not-vacant"),
        ((TAG, "v9.9.11", "--worktree", str(tmp_path / "no/where")), "no-folder"),
        (("--continue", "v9.9.11"), "no-session"),
        (("--continue", "--worktree", str(tmp_path)), "no-session"),
    ):
        assert project.run(*args, "--json") == 2
        assert said(capsys)["error"]["code"] == code
    assert project.run(TAG, "v9.9.11") == 3
    capsys.readouterr()
    assert project.run("--abort", "--json") == 2
    assert said(capsys)["error"]["code"] == "which-session"
    assert project.run("--abort", "v9.9.11") == 0
    assert standing(project.work) == before
    with holding(project.repo):
        capsys.readouterr()
        assert project.run("--continue", "--json") == 2
        assert said(capsys)["error"]["code"] == "session-busy"
    assert project.run("--abort", "--worktree", str(project.work)) == 0


def test_the_guard_looks_at_what_was_resolved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def code(value: str) -> bytes:
        return f"def one():\n    return {value}\n".encode()

    base: dict[str, Content] = {**BASE, "vllm/c.py": code("1")}
    steps = [Step(FIFTH.replace("0005", "0001"), {"vllm/c.py": code("2")})]
    project = Sessions(tmp_path, {**base, "vllm/c.py": code("3")}, steps, base)
    assert project.begin() == 3
    write(project.work, {"vllm/c.py": b"def one(:\n    return 2\n"})
    before = standing(project.work)
    capsys.readouterr()
    assert project.run("--continue", "--json") == 1
    answer = said(capsys)
    (question,) = answer["questions"]
    assert question["kind"] == "does-not-parse"
    assert standing(project.work) == before
    assert project.run("--continue", "--json", "--accept", question["name"]) == 0
    assert said(capsys)["accepted"] == [question["name"]]
    assert project.contents()["vllm/c.py"] == b"def one(:\n    return 2\n"


def test_the_guard_looks_at_what_merged_beside_a_conflict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def code(value: str, *places: int) -> bytes:
        body = [f"    step({number})" for number in range(9)]
        for place in sorted(places, reverse=True):
            body.insert(place, "    flush(items)")
        lines = "\n".join(body)
        return f"def one():\n    return {value}\n\n\ndef f(items):\n{lines}\n".encode()

    # Upstream flushes at another place of f: without a word the merge makes it flush twice.
    base: dict[str, Content] = {**BASE, "vllm/c.py": code("1")}
    steps = [Step("0001-say-more.patch", {"vllm/c.py": code("2", 7)})]
    project = Sessions(tmp_path, {**base, "vllm/c.py": code("3", 1)}, steps, base)
    assert project.begin() == 3
    marked = (project.work / "vllm/c.py").read_bytes()
    assert (marked.count(b"<<<<<<<"), marked.count(b"flush")) == (1, 2)
    write(project.work, {"vllm/c.py": code("4", 1, 7)})
    capsys.readouterr()
    assert project.run("--continue", "--json") == 1
    questions = said(capsys)["questions"]
    assert [each["kind"] for each in questions] == ["already-nearby"], questions
    (question,) = questions
    assert project.run("--continue", "--accept", question["name"], "--store") == 0
    shutil.rmtree(project.next)
    capsys.readouterr()
    assert project.begin("--json") == 1
    assert [each["name"] for each in said(capsys)["questions"]] == [question["name"]]


def test_a_file_that_is_gone_waits_for_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    after = {path: data for path, data in AFTER.items() if path != "vllm/c.py"}
    project = Sessions(tmp_path, {**after, "vllm/new.py": b"theirs\n"})
    project.begin("--keep", "5")
    write(project.work, {"vllm/b.py": TEN})
    capsys.readouterr()
    # 0004 makes a file that is there by now: both sides stand in it, with markers.
    assert project.run("--continue", "--json") == 3
    (place,) = said(capsys)["session"]["conflicts"]
    assert (place["file"], place["reason"]) == ("vllm/new.py", "exists")
    assert git(project.work, "status", "--porcelain", "vllm/new.py") == "AA vllm/new.py"
    assert b"<<<<<<< " in (project.work / "vllm/new.py").read_bytes()
    write(project.work, {"vllm/new.py": b"theirs\nnew\n"})
    assert project.run("--continue") == 3
    assert git(project.work, "status", "--porcelain", "vllm/c.py") == "DU vllm/c.py"
    capsys.readouterr()
    assert project.run("--continue", "--json") == 1
    assert said(capsys)["error"]["code"] == "unresolved"
    git(project.work, "add", "vllm/c.py")
    assert project.run("--continue") == 0
    made = project.contents()
    assert made["vllm/c.py"] == numbered(40, changed={1: "one"})
    assert made["vllm/new.py"] == b"theirs\nnew\n"


def test_what_stands_in_the_way_at_the_end_keeps_what_was_resolved(
    project: Sessions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project.next.mkdir()
    (project.next / "series").write_text("")
    project.begin()
    write(project.work, {"vllm/b.py": TEN})
    project.run("--continue")
    write(project.work, {"vllm/c.py": ONE})
    capsys.readouterr()
    assert project.run("--continue", "--json") == 2
    assert said(capsys)["error"]["code"] == "series-exists"
    assert git(project.work, "log", "-1", "--format=%s") == "c say one"
    assert git(project.work, "status", "--porcelain") == ""
    write(project.work, {"notes.txt": b"mine\n"})
    assert project.run("--continue", "--replace") == 0
    assert "stays: it holds the file notes.txt" in capsys.readouterr().out
    assert (project.work / "notes.txt").read_bytes() == b"mine\n"
    assert not session_file(project.repo, NEXT).exists()
    assert project.contents()["vllm/c.py"] == ONE


@pytest.mark.parametrize(
    "args",
    [
        ("--continue", "--abort"),
        ("--status", "--skip", THIRD),
        (TAG,),
        (TAG, NEXT, "--store"),
        (TAG, NEXT, "--discard"),
        ("--continue", "--dry-run"),
    ],
)
def test_options_that_do_not_go_together(args: tuple[str, ...], tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    (repo / "patches").mkdir(parents=True)
    assert vpatch("rebase", *args, "--repo", str(repo)) == 2


def test_nothing_in_session(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repo = tmp_path / "repo"
    (repo / "patches").mkdir(parents=True)
    for word, code in (("--status", 0), ("--continue", 2), ("--abort", 2)):
        assert vpatch("rebase", word, "--repo", str(repo)) == code
    assert "no rebase is in session" in capsys.readouterr().out


class Killed:
    """A project, and copies of it at each stage of a session."""

    def __init__(self, folder: Path) -> None:
        self.project = Sessions(folder)
        self.folder = folder
        self.stages: dict[str, Path] = {}

    def keep(self, name: str) -> None:
        self.stages[name] = self.folder.parent / f"{self.folder.name}-{name}"
        self.stages[name].mkdir()
        for part in ("repo", self.project.work.name):
            if (self.folder / part).exists():
                shutil.copytree(self.folder / part, self.stages[name] / part, symlinks=True)

    def put(self, name: str) -> None:
        for path in list(self.folder.iterdir()):
            if path.name not in ("home", "cache"):
                shutil.rmtree(path)
        for part in self.stages[name].iterdir():
            shutil.copytree(part, self.folder / part.name, symlinks=True)


def is_moving(project: Sessions) -> bool:
    path = session_file(project.repo, NEXT)
    return path.exists() and json.loads(path.read_bytes())["leaving"] is not None


@pytest.mark.parametrize("arrived", [True, False])
def test_edits_behind_a_killed_run(
    project: Sessions, capsys: pytest.CaptureFixture[str], *, arrived: bool
) -> None:
    """The worktree moved on, and the run was killed before or after its last step there."""
    project.begin()
    path = session_file(project.repo, NEXT)
    first = json.loads(path.read_bytes())["stand"]
    write(project.work, {"vllm/b.py": TEN})
    project.run("--continue")
    first["files"] = {"vllm/b.py": ["100644", TEN.decode()]}
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "leaving": first}))
    if not arrived:
        (project.work / ".git/vpatch-stand").unlink()
    write(project.work, {"vllm/c.py": ONE})
    capsys.readouterr()
    assert project.run("--status") == 0
    assert "a run was killed while the worktree moved on" in capsys.readouterr().out
    if not arrived:
        assert project.run("--continue", "--json") == 1
        assert "vllm/c.py: the file was changed while" in said(capsys)["error"]["message"]
        (project.work / "vllm/c.py").rename(project.work.parent / "mine")
    assert project.run("--continue") == 3
    if not arrived:
        (project.work.parent / "mine").rename(project.work / "vllm/c.py")
    assert project.run("--continue") == 0
    assert project.contents()["vllm/c.py"] == ONE


def finishes(project: Sessions) -> None:
    """From wherever a killed run left it, the way to the end is open."""
    for _ in range(9):
        if project.next.exists() and not session_file(project.repo, NEXT).exists():
            break
        if not session_file(project.repo, NEXT).exists() or not project.work.exists():
            project.begin()
        if is_moving(project):
            assert project.run("--continue") in (0, 3)
            continue
        for path, marked, text in (("b", b"dix\n", TEN), ("c", b"un\n", ONE)):
            file = project.work / f"vllm/{path}.py"
            if file.exists() and b"<<<<<<<" in file.read_bytes() and marked in file.read_bytes():
                file.write_bytes(text)
        assert project.run("--continue") in (0, 3)
    else:
        raise AssertionError("it comes to no end")
    made = project.contents()
    assert (made["vllm/b.py"], made["vllm/c.py"]) == (TEN, ONE)
    left = {path.name for path in project.repo.parent.iterdir()}
    assert left == {"repo"}
    beside = {path.name for path in (project.repo / "patches").iterdir()}
    assert beside == {TAG, NEXT}


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("what", ["begin", "continue", "end", "abort"])
def test_kill_9_at_any_moment(what: str, tmp_path: Path) -> None:
    folder = tmp_path / "place"
    folder.mkdir()
    lab = Killed(folder)
    project = lab.project
    lab.keep("begin")
    untouched = everything(folder)
    project.begin()
    lab.keep("abort")
    write(project.work, {"vllm/b.py": TEN})
    lab.keep("continue")
    project.run("--continue")
    write(project.work, {"vllm/c.py": ONE})
    lab.keep("end")
    args = {"begin": (TAG, NEXT), "abort": ("--abort",)}.get(what, ("--continue",))

    def work_on() -> None:
        status = project.run(*args)
        if status not in (0, 3):
            raise SystemExit(9)

    died = 0
    for moment in spread(moments(work_on, lambda: lab.put(what)), 16):
        lab.put(what)
        died += killed_at(moment, work_on)
        path = session_file(project.repo, NEXT)
        if path.exists():
            json.loads(path.read_bytes())
        if what == "abort":
            if path.exists():
                assert project.run("--abort") == 0
            assert everything(folder) == untouched
        else:
            finishes(project)
    assert died >= 8


def _resolved_at_its_new_place(project: Sessions) -> None:
    """It is resolved and stored, and the next time it is as it was resolved by itself."""
    write(project.work, {"vllm/deep/b.py": TEN})
    assert project.run("--continue", "--store") == 0
    made = project.contents()
    assert made["vllm/deep/b.py"] == TEN
    assert "vllm/b.py" not in made
    shutil.rmtree(project.next)
    assert project.begin() == 0
    assert project.contents() == made


def test_a_file_that_upstream_moved_conflicts_at_its_new_place(tmp_path: Path) -> None:
    after = {path: data for path, data in AFTER.items() if path != "vllm/b.py"}
    moved = {**after, "vllm/c.py": BASE["vllm/c.py"], "vllm/deep/b.py": AFTER["vllm/b.py"]}
    project = Sessions(tmp_path, moved)
    assert project.begin() == 3
    assert git(project.work, "status", "--porcelain") == "UU vllm/deep/b.py"
    assert (project.work / "vllm/deep/b.py").read_bytes() == MARKED
    _resolved_at_its_new_place(project)


def test_a_file_that_the_patch_moves_conflicts_at_its_new_place(tmp_path: Path) -> None:
    ten = numbered(40, changed={10: "ten"})
    steps = [Step("0001-b-moves.patch", {"vllm/b.py": None, "vllm/deep/b.py": ten})]
    project = Sessions(tmp_path, AFTER, steps)
    assert project.begin() == 3
    assert "UU vllm/deep/b.py" in git(project.work, "status", "--porcelain").split("\n")
    assert not (project.work / "vllm/b.py").exists()
    _resolved_at_its_new_place(project)


@pytest.mark.parametrize("way", ["keep", "remove"])
def test_a_file_that_the_patch_deletes_and_upstream_changed(way: str, tmp_path: Path) -> None:
    steps = [Step("0001-b-goes.patch", {"vllm/b.py": None, "vllm/new.py": b"new\n"})]
    project = Sessions(tmp_path, AFTER, steps)
    assert project.begin() == 3
    status = git(project.work, "status", "--porcelain").split("\n")
    assert "UD vllm/b.py" in status
    assert project.run("--continue") == 1
    if way == "keep":
        git(project.work, "add", "vllm/b.py")
    else:
        git(project.work, "rm", "--quiet", "vllm/b.py")
    assert project.run("--continue", "--store") == 0
    made = project.contents()
    assert ("vllm/b.py" in made) == (way == "keep")
    assert made["vllm/new.py"] == b"new\n"
    shutil.rmtree(project.next)
    assert project.begin() == 0
    assert project.contents() == made


def test_stored_has_its_place_where_nobody_asked_for_what_is_stored(tmp_path: Path) -> None:
    steps = [Step("0001-b-goes.patch", {"vllm/b.py": None, "vllm/new.py": b"new\n"})]
    project = Sessions(tmp_path, AFTER, steps)
    assert project.begin("--no-resolutions") == 3
    git(project.work, "rm", "--quiet", "vllm/b.py")
    assert project.run("--continue", "--store") == 0
    assert len(list((project.repo / "patches/resolutions").iterdir())) == 1
    assert not list(project.repo.glob("*.resolution"))
    made = project.contents()
    shutil.rmtree(project.next)
    assert project.begin() == 0
    assert project.contents() == made


def test_settings_of_the_user_change_nothing(hostile_git_config: Path, project: Sessions) -> None:
    assert project.begin() == 3
    assert (project.work / "vllm/b.py").read_bytes() == MARKED
    assert git(project.work, "status", "--porcelain") == "UU vllm/b.py"
    git(project.work, "checkout", "--theirs", "vllm/b.py")
    git(project.work, "add", "vllm/b.py")
    assert project.run("--continue") == 3
    write(project.work, {"vllm/c.py": ONE})
    assert project.run("--continue") == 0
    made = project.contents()
    assert made["vllm/b.py"] == numbered(40, changed={10: "ten"})
    assert made["vllm/c.py"] == ONE


def test_the_cache_may_lie_anywhere(project: Sessions, tmp_path: Path) -> None:
    """The worktree needs nothing of the mirror: it outlives the cache."""
    project.begin()
    moved = tmp_path / "moved"
    shutil.move(cache_dir(), moved)
    assert git(project.work, "fsck", "--strict") == ""
    shutil.move(moved, cache_dir())
    project.settle()
