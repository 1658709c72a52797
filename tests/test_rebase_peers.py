"""What the page of peers says, and who is judged how."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "ci"))

import peers_page  # noqa: E402
import rebase_peers  # noqa: E402
from peers_cases import CASES, Case  # noqa: E402
from peers_tools import TOOLS, Move, Outcome, call  # noqa: E402


def made(case: Case, folder: Path) -> tuple[Move, str]:
    move = rebase_peers.make_case(case, folder)
    wanted = rebase_peers.wanted_tree(case, move.repo)
    call(move.repo, "git", "checkout", "--quiet", "--detach", move.next)
    return move, wanted


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_vpatch_is_never_wrong_and_never_silent(case: Case, tmp_path: Path) -> None:
    move, wanted = made(case, tmp_path)
    (tmp_path / "vpatch").mkdir()
    outcome = TOOLS["vpatch rebase"](move, tmp_path / "vpatch")
    word = rebase_peers.judged(case, move, outcome, wanted)
    assert word == ("right" if wanted else "stops"), outcome.said


@pytest.mark.parametrize(
    ("name", "tool", "word"),
    [
        ("23", "git am -3", "wrong"),
        ("24", "quilt", "wrong"),
        ("27", "git rebase", "wrong"),
        ("29", "git rebase", "silent"),
        ("29b", "git rebase", "right"),
        ("plain", "quilt", "right"),
    ],
)
def test_peers_are_seen_to_mislead(name: str, tool: str, word: str, tmp_path: Path) -> None:
    if tool == "quilt" and shutil.which("quilt") is None:
        pytest.skip("quilt is not on PATH")
    case = next(case for case in CASES if case.name == name)
    move, wanted = made(case, tmp_path)
    (tmp_path / "tool").mkdir()
    assert rebase_peers.judged(case, move, TOOLS[tool](move, tmp_path / "tool"), wanted) == word


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (Outcome(1, "", "conflict", 0, 0.0), "stops"),
        (Outcome(0, "other", "", 1, 0.0), "wrong"),
        (Outcome(0, "wanted", "", 1, 0.0), "silent"),
        (Outcome(0, "wanted", "case 29 does what it does is upstream", 1, 0.0), "right"),
        (Outcome(0, "wanted", "some patch is upstream", 1, 0.0), "silent"),
    ],
)
def test_one_word_on_each_outcome(outcome: Outcome, word: str, tmp_path: Path) -> None:
    case = next(case for case in CASES if case.name == "29")
    move, _ = made(case, tmp_path)
    assert rebase_peers.judged(case, move, outcome, "wanted") == word


def test_what_is_not_allowed() -> None:
    row = peers_page.Row("1", "it", {peers_page.OURS: "wrong", "quilt": "wrong"})
    time = peers_page.Time
    times = (
        time("a step", "ours", 3.0, 1.0, "", 2),
        time("long", "ours", 2.0, 0.5, "git rebase"),
        time("long", "git rebase", 1.0, 0.6),
        time("all", "ours", 2.0, 3.0, "am", 15, 2, times=10),
        time("all", "am", 19.0, 16.0),
    )
    page = peers_page.Page((peers_page.OURS, "quilt"), (row,), (), times)
    told = [line.partition(":")[0] for line in peers_page.problems(page)]
    assert told == ["case 1", "a step", "long", "all"]
    fine = peers_page.Page((peers_page.OURS,), (), (), (time("a", "ours", 1.9, 1.9, "", 2),))
    assert not list(peers_page.problems(fine))
    # Where the machine has other work, the processor's seconds count.
    busy = peers_page.Page((peers_page.OURS,), (), (), times, load=99.0)
    assert not list(peers_page.problems(busy))


def test_the_page_has_nothing_wrong_of_ours() -> None:
    page = (REPO / "docs" / "rebase.md").read_text()
    heads = next(line for line in page.splitlines() if line.startswith("| case |"))
    place = [cell.strip() for cell in heads.split("|")].index(peers_page.OURS)
    for word in ("silent", "wrong"):
        counts = next(line for line in page.splitlines() if line.startswith(f"| | {word} |"))
        assert counts.split("|")[place].strip() == "0"
