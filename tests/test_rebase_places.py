"""Paths that are taken: a folder where a patch makes a file, a file where it needs a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from project_lab import BASE, git
from rebase_lab import Move, words
from series_lab import Content, Step, numbered
from session_lab import Sessions, listing, said, write

NAME = "0001-say-new.patch"
AWAY = {"vllm/a.py": None, "vllm/b.py": None}


@pytest.fixture(autouse=True)
def index(monkeypatch: pytest.MonkeyPatch, hermetic: None) -> Iterator[None]:
    """An index with a wheel of the next release."""
    with listing(monkeypatch, "9.9.10"):
        yield


CASES: list[tuple[dict[str, Content], dict[str, Content], str]] = [
    ({"vllm/new/x.py": b"x\n"}, {"vllm/new": b"n\n"}, "folder-here"),
    ({"vllm/new.py/x/y.py": b"x\n"}, {"vllm/new.py": b"n\n"}, "folder-here"),
    ({"vllm/new": b"x\n"}, {"vllm/new/x.py": b"n\n"}, "file-above"),
    ({"vllm/new": ("120000", b"a.py")}, {"vllm/new/deep/x.py": b"n\n"}, "file-above"),
]


@pytest.mark.parametrize(("after", "change", "reason"), CASES)
def test_a_path_that_is_taken_is_a_conflict_with_its_reason(
    tmp_path: Path, after: dict[str, Content], change: dict[str, Content], reason: str
) -> None:
    rebased = Move(tmp_path, BASE, [Step(NAME, change)], {**BASE, **after}).go()
    reasons = [one.reason for one in rebased.patches[0].carried.conflicts]
    assert (words(rebased), reasons, rebased.exit_code) == (["conflict"], [reason], 3)


def test_a_moved_file_finds_its_place_taken(tmp_path: Path) -> None:
    steps = [Step(NAME, {"vllm/b.py": None, "vllm/moved": numbered(40)})]
    after = {**BASE, "vllm/moved/x.py": b"x\n"}
    rebased = Move(tmp_path, BASE, steps, after).go()
    reasons = [one.reason for one in rebased.patches[0].carried.conflicts]
    assert (words(rebased), reasons) == (["conflict"], ["folder-here"])


def test_a_place_that_the_patch_itself_clears_is_free(tmp_path: Path) -> None:
    base = {**BASE, "vllm/new/x.py": b"x\n"}
    steps = [Step(NAME, {"vllm/new/x.py": None, "vllm/new": b"n\n"})]
    move = Move(tmp_path, base, steps, {**base, "vllm/a.py": b"other\n"})
    assert words(move.go()) == ["clean"]
    assert move.contents["vllm/new"] == b"n\n"


def test_a_place_that_an_earlier_patch_takes_is_taken(tmp_path: Path) -> None:
    """Upstream's folder is there, and the patch before made it a file."""
    base = {**BASE, "vllm/new/x.py": b"x\n"}
    steps = [
        Step("0001-clear.patch", {"vllm/new/x.py": None}),
        Step("0002-make.patch", {"vllm/new": b"n\n"}),
    ]
    after = {**base, "vllm/new/y.py": b"y\n"}
    assert words(Move(tmp_path, base, steps, after).go()) == ["clean", "conflict"]


@pytest.mark.parametrize(("after", "change", "reason"), CASES)
def test_the_command_says_what_stands_there(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    after: dict[str, Content],
    change: dict[str, Content],
    reason: str,
) -> None:
    project = Sessions(tmp_path, {**BASE, **after}, [Step(NAME, change)])
    assert project.begin("--dry-run", "--json") == 3
    answer = json.loads(capsys.readouterr().out)
    (made,) = change
    (patch,) = answer["patches"]
    folder = "a folder of this name is there"
    why = folder if reason == "folder-here" else "a file stands where its folder has to be"
    assert patch["why"].startswith(f"it conflicts in {made}")
    assert patch["evidence"][0] == {"file": made, "line": 0, "text": why}


@pytest.mark.parametrize(("after", "change", "reason"), CASES)
def test_a_person_finds_it_another_place(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    after: dict[str, Content],
    change: dict[str, Content],
    reason: str,
) -> None:
    project = Sessions(tmp_path, {**BASE, **after}, [Step(NAME, change)])
    assert project.begin() == 3
    ((made, data),) = change.items()
    assert isinstance(data, bytes)
    part = "vllm/new.py" if "vllm/new.py" in made else "vllm/new"
    beside = made.replace(part, f"{part}~{NAME}")
    assert (project.work / beside).read_bytes() == data
    capsys.readouterr()
    assert project.run("--continue", "--json") == 1
    assert said(capsys)["error"]["code"] == "unresolved"
    write(project.work, {"vllm/elsewhere.py": data})
    git(project.work, "add", "vllm/elsewhere.py")
    git(project.work, "rm", "--quiet", beside)
    assert project.run("--continue", "--accept", f"0001:not-applied:{made}:") == 0
    contents = project.contents()
    assert contents["vllm/elsewhere.py"] == data
    assert all(path in contents for path in after)
