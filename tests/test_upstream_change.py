"""What upstream did to the lines of a conflict: which release, or commit, and how."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexserver import IndexServer
from project_lab import BASE, git, vpatch
from rebase_lab import NEXT
from series_lab import TAG, numbered
from session_lab import AFTER, Sessions, listing
from vpatch.patches.diff import Hunk
from vpatch.rebase.upstream_change import Lines, moved

LAST = "v9.9.12"
# 9.9.10 moves the lines of 0003 only; 9.9.11 changes them, and 9.9.12 once more.
FIRST = {**BASE, "vllm/b.py": b"zero\n" + numbered(40)}
DIX = {**BASE, "vllm/b.py": b"zero\n" + numbered(40, changed={10: "dix", 30: "trente"})}
DIECI = {**BASE, "vllm/b.py": b"zero\n" + numbered(40, changed={10: "dieci", 30: "trente"})}
THIRD = "0003-b-say-ten.patch"


@pytest.fixture(autouse=True)
def index(monkeypatch: pytest.MonkeyPatch, hermetic: None) -> Iterator[IndexServer]:
    """An index that has one release more than the mirror."""
    with listing(monkeypatch, "9.9.9", "9.9.10", "9.9.11", "9.9.12") as server:
        yield server


@pytest.fixture
def project(tmp_path: Path) -> Sessions:
    made = Sessions(tmp_path, FIRST)
    made.tree_of(LAST, DIECI)
    return made


def told(capsys: pytest.CaptureFixture[str], file: str = THIRD) -> list[dict[str, Any]]:
    patches = json.loads(capsys.readouterr().out)["patches"]
    changes = {patch["file"]: patch["upstream_changes"] for patch in patches}
    found: list[dict[str, Any]] = changes.pop(file)
    assert not any(changes.values())
    return found


def test_the_first_release_that_changes_the_lines_is_named(
    project: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    project.tree_of("v9.9.11", DIX)
    assert project.run(TAG, LAST, "--dry-run", "--json") == 3
    first, second = told(capsys)
    assert first == {
        "file": "vllm/b.py",
        "line": 11,
        "in": "v9.9.11",
        "last_without": "v9.9.10",
        "title": "",
        "diff": ["-line 10", "+dix"],
        "more": 0,
    }
    assert (second["in"], second["diff"]) == ("v9.9.12", ["-dix", "+dieci"])


def test_a_release_that_is_not_there_is_no_witness(
    project: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    assert project.run(TAG, LAST, "--dry-run") == 3
    shown = capsys.readouterr().out
    assert (
        "0003 upstream: vllm/b.py:11 is changed in v9.9.12, v9.9.10 has it as it was:\n"
        "  0003 upstream:   -line 10\n"
        "  0003 upstream:   +dieci\n"
    ) in shown
    assert "trente" not in shown


def test_a_release_between_is_fetched_where_that_is_asked(
    project: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    """The index has no sdist of 9.9.11: it is named, not left out."""
    assert project.run(TAG, LAST, "--dry-run", "--between", "--json") == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert "v9.9.11" in error["message"]


def test_a_session_says_it_too(project: Sessions, capsys: pytest.CaptureFixture[str]) -> None:
    assert project.run(TAG, LAST) == 3
    assert "vllm/b.py:11 is changed in v9.9.12" in capsys.readouterr().out


def test_a_file_that_goes_is_told_with_the_release_in_which_it_goes(
    project: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    rest = {path: data for path, data in BASE.items() if path != "vllm/b.py"}
    project.tree_of("v9.9.11", rest)
    project.tree_of(LAST, rest)
    assert project.run(TAG, LAST, "--dry-run", "--keep", THIRD, "--json") == 3
    (one,) = told(capsys)
    assert (one["in"], one["line"]) == ("v9.9.11", 0)
    assert one["diff"] == ["the file is not there any more"]


def test_lines_of_earlier_patches_are_followed_through_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """0004 stands on what 0001 made: its lines are told by the release's own numbers."""
    after = {**AFTER, "vllm/b.py": BASE["vllm/b.py"], "vllm/c.py": BASE["vllm/c.py"]}
    after["vllm/a.py"] = numbered(60, changed={50: "cinquante"})
    project = Sessions(tmp_path, after)
    assert project.run(TAG, NEXT, "--dry-run", "--json") == 3
    (one,) = told(capsys, "0004-a-say-fifty.patch")
    assert (one["line"], one["diff"]) == (50, ["-line 50", "+cinquante"])


@pytest.fixture
def clone(project: Sessions, tmp_path: Path) -> Path:
    """A repository of upstream's with both tags, and three commits between them."""
    folder = tmp_path / "clone"
    git(tmp_path, "init", "--quiet", "clone")
    mirror = str(project.lab.git.git_dir)
    git(folder, "fetch", "--quiet", mirror, project.release("sdist").commit)
    git(folder, "checkout", "--quiet", "-b", "main", "FETCH_HEAD")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "the release")
    git(folder, "tag", TAG)
    for title, data in (
        ("b: count from zero", FIRST["vllm/b.py"]),
        ("b: say dix", DIX["vllm/b.py"]),
        ("b: say dieci", DIECI["vllm/b.py"]),
    ):
        assert isinstance(data, bytes)
        (folder / "vllm" / "b.py").write_bytes(data)
        git(folder, "commit", "--quiet", "-am", title)
    git(folder, "tag", LAST)
    return folder


SAID = ["b: say dix", "b: say dieci"]


def test_a_clone_tells_the_commits(
    project: Sessions,
    clone: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # The pin names upstream's commit at the old release.
    text = (project.folder / "pin.toml").read_text()
    start = git(clone, "rev-parse", TAG)
    (project.folder / "pin.toml").write_text(text.replace(project.pin.commit, start))
    monkeypatch.chdir(clone)
    code = vpatch(
        *("rebase", TAG, LAST, "--onto-git", "main", "--dry-run", "--json"),
        *("--repo", str(project.repo)),
    )
    assert code == 3
    found = told(capsys)
    assert [one["title"] for one in found] == SAID
    assert found[0]["in"] == git(clone, "rev-parse", "HEAD~1")[:12]


@pytest.mark.parametrize("between", [True, False])
def test_a_remote_tells_the_commits_where_that_is_asked(
    project: Sessions, clone: Path, between: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--between"] if between else []
    url = f"file://{clone}"
    code = project.run(TAG, LAST, "--dry-run", "--json", "--upstream-git", url, *more)
    assert code == 3
    found = told(capsys)
    assert [one["title"] for one in found] == (SAID if between else [""])
    if between:
        assert found[0]["last_without"] == git(clone, "rev-parse", "HEAD~2")[:12]
    else:
        assert (found[0]["in"], found[0]["last_without"]) == (LAST, "v9.9.10")
    left = git(project.lab.git.git_dir, "for-each-ref", "refs/vpatch-incoming")
    assert not left


def hunks(old: list[str], new: list[str]) -> tuple[Hunk, ...]:
    """A diff without context, as git states it."""
    made = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, one, two, three, four in matcher.get_opcodes():
        if tag != "equal":
            body = [("-", line.encode()) for line in old[one:two]]
            body += [("+", line.encode()) for line in new[three:four]]
            starts = (one + (one < two), three + (three < four))
            made.append(Hunk(starts[0], two - one, starts[1], four - three, "", 1, tuple(body)))
    return tuple(made)


@given(st.data())
def test_lines_that_nobody_touches_are_found_again(data: st.DataObject) -> None:
    old = [f"line {number}\n" for number in range(data.draw(st.integers(1, 30)))]
    gone = data.draw(st.sets(st.integers(0, len(old) - 1)))
    new: list[str] = []
    for number, line in enumerate(old):
        count = data.draw(st.integers(0, 2)) if number % 5 == 0 else 0
        new += [f"new {number} {more}\n" for more in range(count)]
        if number not in gone:
            new.append(line)
    start = data.draw(st.integers(1, len(old)))
    end = data.draw(st.integers(start, len(old) + 1))
    now, touching = moved(Lines(start, end), hunks(old, new))
    if touching:
        assert now.start <= now.end
        assert any(
            hunk.old_start <= end and hunk.old_start + hunk.old_lines + 1 >= start
            for hunk in touching
        )
    else:
        assert new[now.start - 1 : now.end - 1] == old[start - 1 : end - 1]
        # and nothing came or went right beside them
        assert now.end - now.start == end - start
