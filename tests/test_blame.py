"""`vpatch blame`: which release breaks which patch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from indexserver import IndexServer
from project_lab import BASE, git, vpatch
from series_lab import TAG, numbered
from session_lab import AFTER, Sessions, listing
from vpatch.errors import ConflictError
from vpatch.rebase.blame import LETTERS, Blamed, Cell, Row, Wanted, blame_all
from vpatch.rebase.rebase import Side
from vpatch.upstream.mirror import Mirror
from vpatch.verbs import blame as verb

REPO = Path(__file__).resolve().parent.parent
PAGE = REPO / "docs" / "blame.md"

# 9.9.10 moves 0001 down; 9.9.11 takes 0003 in and breaks 0005; 9.9.12 breaks 0004 behind nothing.
TEN = {**BASE, "vllm/a.py": b"zero\n" + numbered(60)}
ELEVEN = {
    **TEN,
    "vllm/b.py": numbered(40, changed={10: "ten"}),
    "vllm/c.py": numbered(40, changed={1: "un"}),
}
TWELVE = {**ELEVEN, "vllm/a.py": b"zero\n" + numbered(60, changed={50: "cinquante"})}


@pytest.fixture(autouse=True)
def index(monkeypatch: pytest.MonkeyPatch, hermetic: None) -> Iterator[IndexServer]:
    """An index that has one release more than the mirror, and one pre-release."""
    with listing(monkeypatch, "9.9.10", "9.9.13", "9.9.14rc1", "9.9.9") as server:
        yield server


@pytest.fixture
def project(tmp_path: Path) -> Sessions:
    made = Sessions(tmp_path, TEN)
    made.tree_of("v9.9.11", ELEVEN)
    made.tree_of("v9.9.12", TWELVE)
    return made


def run(project: Sessions, *args: str) -> int:
    return vpatch("blame", *args, "--repo", str(project.repo))


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (answer["schema"], answer["ok"]) == ("vpatch/blame/1", True)
    (series,) = answer["series"]
    found: dict[str, Any] = series
    return found


def test_every_patch_on_every_release(
    project: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    before = git_state(project)
    assert run(project, "--from", TAG, "--json") == 0
    series = told(capsys)
    assert series["releases"] == [TAG, "v9.9.10", "v9.9.11", "v9.9.12"]
    assert series["not_looked_at"] == ["v9.9.13"]
    letters = {
        patch["file"][:4]: "".join(one["letter"] for one in patch["verdicts"].values())
        for patch in series["patches"]
    }
    assert letters == {
        "0001": "=~~~",
        "0002": "====",
        "0003": "==AA",
        "0004": "=~~C",
        "0005": "==CC",
    }
    firsts = {
        patch["file"][:4]: (patch["first_change"], patch["first_break"])
        for patch in series["patches"]
    }
    assert firsts == {
        "0001": ("v9.9.10", None),
        "0002": (None, None),
        "0003": ("v9.9.11", "v9.9.11"),
        "0004": ("v9.9.10", "v9.9.12"),
        "0005": ("v9.9.11", "v9.9.11"),
    }
    assert git_state(project) == before


def git_state(project: Sessions) -> str:
    return git(project.cache / "mirror.git", "count-objects", "-v")


def test_up_to_a_release(project: Sessions, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(project, "--from", TAG, "--to", "9.9.11", "--json") == 0
    series = told(capsys)
    assert series["releases"] == [TAG, "v9.9.10", "v9.9.11"]
    assert series["not_looked_at"] == []


def test_without_from_each_pinned_series_is_tried_on_the_pinned_releases(
    project: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(project, "--json") == 0
    assert told(capsys)["releases"] == [TAG]


def test_one_patch_with_its_evidence(project: Sessions, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(project, "3", "--from", TAG) == 0
    shown = capsys.readouterr().out
    assert "0003-b-say-ten.patch: clean; absorbed from v9.9.11\n" in shown
    assert "    vllm/b.py:10: ten\n" in shown
    assert "0001" not in shown
    assert "not looked at: v9.9.13 (vpatch blame --fetch downloads)" in shown


@pytest.mark.parametrize("number", range(1, 6))
def test_a_patch_alone_has_the_verdicts_that_it_has_among_all(
    number: int,
    project: Sessions,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And only those up to it are tried."""
    assert run(project, "--from", TAG, "--json") == 0
    row = told(capsys)["patches"][number - 1]
    tried: list[int] = []

    def watched(lenders: Sequence[Path], wanted: Sequence[Wanted]) -> tuple[Blamed, ...]:
        tried.extend(len(series.patches) for series, _, _ in wanted)
        return blame_all(lenders, wanted)

    monkeypatch.setattr(verb, "blame_all", watched)
    assert run(project, "--from", TAG, "--json", str(number)) == 0
    assert told(capsys)["patches"] == [row]
    assert tried == [number]


def test_the_table_is_for_people(project: Sessions, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(project, "--from", TAG) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[2].split() == ["0001", "=", "~", "~", "~", "a-say-five.patch"]
    assert rows[5].split() == ["0004", "=", "~", "~", "C", "v9.9.12", "a-say-fifty.patch"]
    assert "C conflicts" in rows[-2]
    assert "O " not in rows[-2]  # what no cell has is not explained


def test_a_table_for_a_page(project: Sessions, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(project, "--from", TAG, "--markdown") == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[2] == "| patch | v9.9.9 | v9.9.10 | v9.9.11 | v9.9.12 | breaks |"
    assert "| `0003-b-say-ten.patch` | `=` | `=` | `A` | `A` | v9.9.11 |" in rows


def test_the_mirror_is_enough_where_the_index_is_away(
    project: Sessions, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert run(project, "--from", TAG, "--json") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["series"][0]["releases"][-1] == "v9.9.12"
    assert "only releases of the mirror are looked at" in printed.err


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("--from", "v1.2.3"), "no-pin"),
        (("--from", "nonsense"), "bad-tag"),
        (("--from", TAG, "--to", "v9.9.8"), "wrong-order"),
        (("99", "--from", TAG), "no-such-patch"),
        (("no-such.patch", "--from", TAG), "no-such-patch"),
    ],
)
def test_what_is_refused(
    project: Sessions, args: tuple[str, ...], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(project, *args, "--json") == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == code
    assert error["hint"]


def test_a_release_that_is_asked_for_and_cannot_be_had_is_an_error(
    project: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(project, "--from", TAG, "--fetch", "--json") == 4
    assert "error" in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_fails_in_a_process_of_its_own_is_told_as_it_is(project: Sessions, jobs: int) -> None:
    path = project.folder / "0003-b-say-ten.patch"
    path.write_bytes(path.read_bytes().replace(b"-line 10\n", b"-line ten\n"))
    mirror = Mirror.open(project.cache)
    sides = tuple(Side(one.tag, one.commit) for one in mirror.imported() if one.kind == "sdist")
    with pytest.raises(ConflictError, match=r"0003-b-say-ten\.patch"):
        blame_all([mirror.git.git_dir], [(project.series, sides[0], sides)], jobs=jobs)


def test_a_conflict_behind_another_has_a_letter_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    after = {**AFTER, "vllm/a.py": numbered(60, changed={5: "cinq", 50: "cinquante"})}
    project = Sessions(tmp_path, after)
    assert run(project, "--from", TAG, "--json") == 0
    letters = {one["file"][:4]: one["verdicts"]["v9.9.10"] for one in told(capsys)["patches"]}
    assert (letters["0001"]["letter"], letters["0004"]["letter"]) == ("C", "c")
    assert letters["0004"]["behind"] == ["0001-a-say-five.patch"]


def test_letters_are_told_apart() -> None:
    letters = [letter for letter, _ in LETTERS.values()]
    assert len(set(letters)) == len(letters)
    assert Cell("clean", questions=("it",)).letter == "=?"
    assert not Cell("clean", questions=("it",)).fits


def test_a_verdict_may_come_and_go() -> None:
    cells = tuple(Cell(word) for word in ("clean", "offset", "clean", "conflict"))
    row = Row("0001-a.patch", "a", cells)
    blamed = Blamed("v1.0", ("v1.0", "v1.1", "v1.2", "v1.3"), (row,))
    assert [str(change) for change in blamed.changes(row)[1:]] == [
        "offset from v1.1",
        "clean from v1.2",
        "conflict from v1.3",
    ]
    first, breaks = blamed.first(row), blamed.breaks(row)
    assert first is not None
    assert breaks is not None
    assert (first.release, breaks.release) == ("v1.1", "v1.3")
