"""Carrying a series to another release: merges in memory, and the word for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from rebase_lab import NEXT, Move, kinds, only, words
from series_lab import Content, Step, numbered
from vpatch.patches.apply import PatchConflictError
from vpatch.rebase.model import Choices, Entry

NAME = "0001-a-say-five.patch"
FIVE = numbered(40, changed={5: "five"})
A = {"vllm/a.py": numbered(40)}


def with_line(number: int, text: str, count: int = 40, **more: str) -> bytes:
    return numbered(count, changed={number: text})


def test_an_unrelated_change_of_upstream_leaves_a_patch_clean(tmp_path: Path) -> None:
    move = Move(tmp_path, A, only(NAME, FIVE), {**A, "vllm/b.py": b"b\n"})
    rebased = move.go()
    assert words(rebased) == ["clean"]
    assert (rebased.exit_code, rebased.questions) == (0, ())
    assert move.contents == {"vllm/a.py": FIVE, "vllm/b.py": b"b\n"}


def test_lines_above_put_it_at_an_offset(tmp_path: Path) -> None:
    after = b"zero\n" + numbered(40)
    move = Move(tmp_path, A, only(NAME, FIVE), {"vllm/a.py": after})
    assert words(move.go()) == ["offset"]
    assert move.contents["vllm/a.py"] == b"zero\n" + FIVE


def test_a_change_of_its_context_needs_a_merge(tmp_path: Path) -> None:
    move = Move(tmp_path, A, only(NAME, FIVE), {"vllm/a.py": with_line(7, "seven")})
    assert words(move.go()) == ["three-way"]
    assert move.contents["vllm/a.py"] == numbered(40, changed={5: "five", 7: "seven"})


def test_the_same_lines_conflict_and_nothing_is_taken_silently(tmp_path: Path) -> None:
    move = Move(tmp_path, A, only(NAME, FIVE), {"vllm/a.py": with_line(5, "cinq")})
    rebased = move.go()
    assert (words(rebased), rebased.exit_code) == (["conflict"], 3)
    (conflict,) = rebased.patches[0].carried.conflicts
    assert (conflict.path, conflict.reason) == ("vllm/a.py", "content")
    assert (
        f"<<<<<<< {NEXT}\ncinq\n||||||| before {NAME}\nline 5\n=======\nfive\n>>>>>>> {NAME}\n"
    ).encode() in conflict.merged
    assert conflict.base == Entry("100644", numbered(40))
    assert conflict.ours == Entry("100644", with_line(5, "cinq"))
    assert conflict.theirs == Entry("100644", FIVE)


def test_behind_a_conflict_the_others_are_tried_on_what_it_would_have_made(tmp_path: Path) -> None:
    six = numbered(40, changed={5: "five", 6: "six"})
    steps = [
        Step(NAME, {"vllm/a.py": FIVE}),
        Step("0002-a-say-six.patch", {"vllm/a.py": six}),
        Step("0003-b-say-b.patch", {"vllm/b.py": b"b\n"}),
    ]
    move = Move(tmp_path, A, steps, {"vllm/a.py": with_line(5, "cinq")})
    rebased = move.go()
    assert words(rebased) == ["conflict", "clean", "clean"]
    assert rebased.patches[1].carried.behind == (NAME,)
    assert rebased.patches[2].carried.behind == ()
    assert rebased.exit_code == 3


@pytest.mark.parametrize(
    ("before", "changes", "after", "reason"),
    [
        (
            {**A, "vllm/b.py": b"b\n"},
            {"vllm/a.py": FIVE, "vllm/b.py": b"c\n"},
            {"vllm/b.py": b"b\n"},
            "gone",
        ),
        (A, {"vllm/new.py": b"one\n"}, {**A, "vllm/new.py": b"other\n"}, "exists"),
        (
            {**A, "vllm/deep/x.py": b"x\n"},
            {"vllm/deep/new.py": b"one\n"},
            {**A, "vllm/other.py": b"unlike\n"},
            "folder-gone",
        ),
        (A, {"vllm/a.py": None}, {"vllm/a.py": FIVE}, "changed"),
        (
            {"vllm/a.bin": b"\0one"},
            {"vllm/a.bin": b"\0two"},
            {"vllm/a.bin": b"\0three"},
            "binary",
        ),
        (
            {"vllm/a": ("120000", b"one")},
            {"vllm/a": ("120000", b"two")},
            {"vllm/a": ("120000", b"three")},
            "binary",
        ),
        ({"a": b"a\n"}, {"a": ("120000", b"b")}, {"a": ("100755", b"a\n")}, "mode"),
    ],
)
def test_a_file_without_a_place_is_a_conflict_with_its_reason(
    tmp_path: Path,
    before: dict[str, Content],
    changes: dict[str, Content],
    after: dict[str, Content],
    reason: str,
) -> None:
    rebased = Move(tmp_path, before, [Step(NAME, changes)], after).go()
    reasons = {one.reason for one in rebased.patches[0].carried.conflicts}
    assert (words(rebased), reasons, rebased.exit_code) == (["conflict"], {reason}, 3)


EXOTIC: dict[str, dict[str, Content]] = {
    "mode": {"vllm/a.py": ("100755", numbered(40))},
    "mode and lines": {"vllm/a.py": ("100755", FIVE)},
    "rename": {"vllm/a.py": None, "vllm/c.py": numbered(40)},
    "rename and lines": {"vllm/a.py": None, "vllm/c.py": FIVE},
    "empty added": {"vllm/empty.py": b""},
    "deleted": {"vllm/a.py": None},
    "link": {"vllm/link": ("120000", b"a.py")},
    "file to link": {"vllm/a.py": ("120000", b"b.py")},
    "file to folder": {"vllm/a.py": None, "vllm/a.py/b.py": b"b\n"},
    "no newline": {"vllm/a.py": FIVE.rstrip(b"\n")},
    "binary": {"vllm/a.bin": b"\0\1\2", "vllm/a.py": FIVE},
    "crlf": {"vllm/crlf.txt": b"a\r\nb\r\n"},
    "latin": {"vllm/latin.txt": b"caf\xe9\n"},
    "blank name": {"vllm/a b\u00e4.py": b"x\n"},
}


@pytest.mark.parametrize("what", EXOTIC)
def test_whatever_a_patch_does_it_does_again(tmp_path: Path, what: str) -> None:
    changes = EXOTIC[what]
    move = Move(tmp_path, A, [Step(NAME, changes)], {**A, "other.txt": b"other\n"})
    assert words(move.go()) == ["clean"]
    wanted = {**A, "other.txt": b"other\n", **changes}
    plain = {
        path: content if isinstance(content, bytes) else content[1]
        for path, content in wanted.items()
        if content is not None
    }
    assert move.contents == plain
    modes = {path: "100644" if isinstance(c, bytes) else c[0] for path, c in wanted.items() if c}
    assert {path: move.made[path] for path in modes} == modes


def test_a_patch_that_moves_a_file_takes_upstreams_changes_along(tmp_path: Path) -> None:
    steps = [Step(NAME, {"vllm/a.py": None, "vllm/c.py": FIVE})]
    move = Move(tmp_path, A, steps, {"vllm/a.py": with_line(30, "thirty")})
    assert words(move.go()) == ["clean"]
    assert move.contents == {"vllm/c.py": numbered(40, changed={5: "five", 30: "thirty"})}


def test_a_file_that_upstream_moved_is_followed(tmp_path: Path) -> None:
    move = Move(tmp_path, A, only(NAME, FIVE), {"vllm/new/a.py": with_line(30, "thirty")})
    rebased = move.go()
    assert (words(rebased), kinds(rebased)) == (["three-way"], [])
    assert rebased.patches[0].carried.moved == {"vllm/a.py": "vllm/new/a.py"}
    assert move.contents == {"vllm/new/a.py": numbered(40, changed={5: "five", 30: "thirty"})}


def test_a_file_that_is_little_like_the_moved_one_is_a_question(tmp_path: Path) -> None:
    after = numbered(40, changed={n: f"other {n}" for n in range(24, 40)})
    move = Move(tmp_path, A, only(NAME, FIVE), {"vllm/new.py": after})
    rebased = move.go()
    assert kinds(rebased) == ["moved"]
    (question,) = rebased.questions
    assert question.name == f"{NAME}:moved:vllm/a.py:vllm/new.py"
    assert rebased.exit_code == 1
    assert move.go(Choices(accept=[question.name])).exit_code == 0


def test_a_file_that_was_there_before_is_no_moved_one(tmp_path: Path) -> None:
    """Case 24: f1 goes, and the hunk would fit into f2, which is alike."""
    before = {"vllm/f1.py": numbered(40), "vllm/f2.py": numbered(40, changed={39: "two"})}
    move = Move(tmp_path, before, only(NAME, FIVE, "vllm/f1.py"), {"vllm/f2.py": numbered(40)})
    rebased = move.go()
    assert (words(rebased), kinds(rebased), rebased.exit_code) == (["obsolete"], ["obsolete"], 1)
    assert move.contents == {"vllm/f2.py": numbered(40)}


def test_a_wheel_has_no_tests_and_their_patch_is_set_aside(tmp_path: Path) -> None:
    before = {**A, "tests/test_a.py": b"one\n"}
    steps = [
        Step(NAME, {"vllm/a.py": FIVE}),
        Step("0002-tests-two.patch", {"tests/test_a.py": b"two\n"}),
    ]
    move = Move(tmp_path / "to", before, steps, A, kinds=("sdist", "wheel"))
    rebased = move.go()
    assert (words(rebased), rebased.exit_code) == (["clean", "set-aside"], 0)
    move = Move(tmp_path / "from", before, steps, before, kinds=("wheel", "sdist"))
    assert words(move.go()) == ["clean", "set-aside"]


def test_what_a_person_made_of_a_conflict_counts(tmp_path: Path) -> None:
    six = numbered(40, changed={5: "five", 6: "six"})
    steps = [Step(NAME, {"vllm/a.py": FIVE}), Step("0002-a-six.patch", {"vllm/a.py": six})]
    move = Move(tmp_path, A, steps, {"vllm/a.py": with_line(5, "cinq")})
    mine = with_line(5, "five, cinq")
    rebased = move.go(Choices(resolved={NAME: {"vllm/a.py": Entry("100644", mine)}}))
    assert words(rebased)[0] == "resolved"
    assert words(rebased)[1] == "conflict"
    rebased = move.go(Choices(skip=[NAME]))
    assert words(rebased) == ["skipped", "conflict"]


def test_a_series_that_does_not_fit_its_own_release_is_said_so(tmp_path: Path) -> None:
    move = Move(tmp_path, A, only(NAME, FIVE), A)
    move.lab.commit = move.lab.commit_tree(move.lab.tree(None, {"vllm/a.py": b"x\n"}), None, "x")
    with pytest.raises(PatchConflictError, match="does not fit"):
        move.go()


def test_no_patches_are_no_trouble(tmp_path: Path) -> None:
    move = Move(tmp_path, A, [], {**A, "vllm/b.py": b"b\n"})
    rebased = move.go()
    assert (rebased.tree, rebased.head) == (rebased.base_tree, rebased.base)


@pytest.mark.usefixtures("hostile_git_config")
def test_a_users_settings_change_nothing(tmp_path: Path) -> None:
    steps = [Step(NAME, {"vllm/a.py": FIVE, "vllm/c d.py": b"c\n"})]
    move = Move(tmp_path, A, steps, {"vllm/a.py": b"zero\n" + with_line(7, "seven")})
    assert words(move.go()) == ["three-way"]
    wanted = b"zero\n" + numbered(40, changed={5: "five", 7: "seven"})
    assert move.contents == {"vllm/a.py": wanted, "vllm/c d.py": b"c\n"}
