"""What upstream has already, what has nothing to do, and what merely looks so."""

from __future__ import annotations

from pathlib import Path

import pytest

from rebase_lab import Move, kinds, only, words
from series_lab import TRAILERS, Step, numbered
from vpatch.rebase.model import Choices

NAME = "0001-a-say-five.patch"
SHAPES = b'''\
import math


class Circle:
    """Round."""

    def __init__(self, radius):
        self.radius = radius

    def area(self):
        return math.pi * self.radius**2

    def scaled(self, factor):
        return Circle(self.radius * factor)


class Square:
    """Not round."""

    def __init__(self, side):
        self.side = side

    def area(self):
        return self.side**2

    def scaled(self, factor):
        return Square(self.side * factor)
'''
CHECK = b"""\
        if factor <= 0:
            raise ValueError(factor)
        kind = type(self).__name__
        print(kind, factor)
"""


def checked(text: bytes, name: bytes) -> bytes:
    """The text, with a check in a class's method."""
    line = b"        return " + name + b"("
    return text.replace(line, CHECK + line)


CIRCLE = checked(SHAPES, b"Circle")


def move(folder: Path, theirs: bytes, upstream: bytes, before: bytes = SHAPES) -> Move:
    return Move(folder, {"vllm/a.py": before}, only(NAME, theirs), {"vllm/a.py": upstream})


def test_what_upstream_took_is_absorbed_and_says_where_it_stands(tmp_path: Path) -> None:
    upstream = CIRCLE.replace(b'"""Round."""', b'"""Round, says upstream."""')
    made = move(tmp_path, CIRCLE, upstream)
    rebased = made.go()
    (patch,) = rebased.patches
    assert (patch.verdict.word, rebased.exit_code, patch.questions) == ("absorbed", 0, ())
    (line,) = patch.verdict.evidence
    assert (line.path, line.line) == ("vllm/a.py", 14)
    assert line.text.startswith("if factor <= 0:")
    assert (patch.verdict.runs, patch.verdict.upstream) == (1, 1)
    assert made.contents["vllm/a.py"] == upstream


def test_what_upstream_took_and_changed_around_is_absorbed_though_it_conflicts(
    tmp_path: Path,
) -> None:
    upstream = CIRCLE.replace(b"return Circle(self", b"return type(self)(self")
    made = move(tmp_path, CIRCLE, upstream)
    rebased = made.go()
    assert words(rebased) == ["absorbed"]
    assert made.contents["vllm/a.py"] == upstream


def test_the_same_lines_in_another_class_are_not_absorbed(tmp_path: Path) -> None:
    """Case 26: `git apply -R --check` finds them at an offset, in another function."""
    made = move(tmp_path, CIRCLE, checked(SHAPES, b"Square"))
    rebased = made.go()
    assert words(rebased) in (["clean"], ["offset"])
    assert made.contents["vllm/a.py"] == checked(CIRCLE, b"Square")


def test_some_of_it_is_upstream_and_which_is_said(tmp_path: Path) -> None:
    """Case 29: `am -3` keeps the whole message over half a diff, and says nothing."""
    both = CIRCLE.replace(b"import math\n", b"import math\nimport sys\n\nLIMIT = sys.maxsize\n")
    made = move(tmp_path, both, CIRCLE)
    rebased = made.go()
    (patch,) = rebased.patches
    assert (patch.verdict.word, patch.verdict.why) == (
        "partly-absorbed",
        "1 of its 2 places are upstream",
    )
    assert [each.path for each in patch.verdict.evidence] == ["vllm/a.py"]
    assert made.contents["vllm/a.py"] == both


def test_lines_at_another_indent_are_a_question(tmp_path: Path) -> None:
    """Case 27: `git cherry` says absorbed, and `git rebase` drops the patch."""
    wanted = SHAPES.replace(
        b"        return Circle(", b"        print('scaled', factor)\n        return Circle("
    )
    upstream = SHAPES.replace(
        b"        return Circle(",
        b"        if factor:\n            print('scaled', factor)\n        return Circle(",
    )
    rebased = move(tmp_path, wanted, upstream).go()
    assert rebased.exit_code != 0
    assert "absorbed" not in words(rebased)
    asked = [question for question in rebased.questions if question.kind == "whitespace"]
    assert [(each.path, each.line) for each in asked] == [("vllm/a.py", 15)]


def test_more_of_the_same_at_the_end_of_a_repetitive_file(tmp_path: Path) -> None:
    """Case 23: `am -3` appends it twice."""
    before, more = b"entry\n" * 8, b"entry\n" * 9
    made = Move(tmp_path, {"vllm/a": before}, only(NAME, more, "vllm/a"), {"vllm/a": more})
    rebased = made.go()
    assert made.contents["vllm/a"] == more
    assert words(rebased) == ["absorbed"]
    two = before + b"entry\n" * 2
    made = Move(tmp_path / "two", {"vllm/a": before}, only(NAME, more, "vllm/a"), {"vllm/a": two})
    assert made.go().exit_code != 0


def test_a_deletion_that_upstream_made_too_is_absorbed(tmp_path: Path) -> None:
    without = SHAPES.replace(b"    def area(self):\n        return self.side**2\n\n", b"")
    upstream = without.replace(b"Round.", b"Round as round.")
    rebased = move(tmp_path, without, upstream).go()
    assert words(rebased) == ["absorbed"]
    assert str(rebased.patches[0].verdict.evidence[0]).startswith("vllm/a.py")


def test_a_file_that_upstream_has_as_it_is_is_absorbed(tmp_path: Path) -> None:
    steps = [Step(NAME, {"vllm/b.py": SHAPES})]
    files = {"vllm/a.py": b"a\n", "vllm/b.py": SHAPES}
    assert words(Move(tmp_path, {"vllm/a.py": b"a\n"}, steps, files).go()) == ["absorbed"]


def test_the_release_that_a_patch_names_makes_it_obsolete_if_a_person_agrees(
    tmp_path: Path,
) -> None:
    status = TRAILERS.replace("Pending", "Inappropriate [upstream has its own from v9.9.10 on]")
    steps = [
        Step(NAME, {"vllm/a.py": CIRCLE}, trailers=status),
        Step("0002-tests-five.patch", {"tests/test_a.py": b"assert five\n"}),
        Step("0003-b-say-b.patch", {"vllm/b.py": b"b\n"}),
    ]
    before = {"vllm/a.py": SHAPES, "tests/test_b.py": b"b\n"}
    made = Move(tmp_path, before, steps, before)
    rebased = made.go()
    assert words(rebased) == ["obsolete", "obsolete", "clean"]
    assert "from v9.9.10 on" in rebased.patches[0].verdict.why
    assert NAME in rebased.patches[1].verdict.why
    assert (kinds(rebased), rebased.exit_code) == (["obsolete", "obsolete"], 1)
    assert made.contents["vllm/a.py"] == SHAPES
    names = [question.name for question in rebased.questions]
    assert names == [f"{NAME}:obsolete", "0002-tests-five.patch:obsolete"]
    assert made.go(Choices(accept=names)).exit_code == 0
    rebased = made.go(Choices(keep=[NAME]))
    assert (words(rebased), rebased.exit_code) == (["clean", "clean", "clean"], 0)


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ("Inappropriate [upstream has its own from v9.9.11 on]", "clean"),
        ("Inappropriate [upstream has its own from v9.9.10 on]", "obsolete"),
        ("Inappropriate [fixed upstream in v9.9.11]", "clean"),
        ("Inappropriate [fixed upstream in v9.9.10]", "obsolete"),
        ("Inappropriate [fixed upstream in v9.9.10.1]", "clean"),
        ("Inappropriate [fixed upstream in v9.9.10 and broken again]", "obsolete"),
        ("Pending [not fixed upstream in v9.9.10]", "clean"),
    ],
)
def test_a_release_before_the_one_that_a_patch_names_needs_it(
    tmp_path: Path, status: str, word: str
) -> None:
    steps = [Step(NAME, {"vllm/a.py": CIRCLE}, trailers=TRAILERS.replace("Pending", status))]
    made = Move(tmp_path, {"vllm/a.py": SHAPES}, steps, {"vllm/a.py": SHAPES})
    assert words(made.go()) == [word]


def test_a_class_that_is_nowhere_any_more_is_obsolete_and_one_that_moved_is_not(
    tmp_path: Path,
) -> None:
    rest = SHAPES[: SHAPES.index(b"class Circle")] + SHAPES[SHAPES.index(b"class Square") :]
    rebased = move(tmp_path / "gone", CIRCLE, rest).go()
    (patch,) = rebased.patches
    assert (patch.verdict.word, rebased.exit_code) == ("obsolete", 1)
    assert str(patch.verdict.evidence[0]) == "vllm/a.py: Circle is not there any more"
    circle = SHAPES[SHAPES.index(b"class Circle") : SHAPES.index(b"class Square")]
    made = Move(
        tmp_path / "moved",
        {"vllm/a.py": SHAPES},
        only(NAME, CIRCLE),
        {"vllm/a.py": rest, "vllm/round.py": b"import math\n\n\n" + circle},
    )
    rebased = made.go()
    (patch,) = rebased.patches
    assert (patch.verdict.word, rebased.exit_code) == ("conflict", 3)
    assert "vllm/round.py:4: class Circle: is here now" in map(str, patch.verdict.evidence)


def test_counts_add_up_and_every_patch_has_a_verdict(tmp_path: Path) -> None:
    steps = [
        Step(NAME, {"vllm/a.py": numbered(40, changed={5: "five"})}),
        Step("0002-a-six.patch", {"vllm/a.py": numbered(40, changed={5: "five", 30: "x"})}),
        Step("0003-b-say-b.patch", {"vllm/b.py": b"b\n"}),
    ]
    after = {"vllm/a.py": numbered(40, changed={5: "five", 30: "y"})}
    rebased = Move(tmp_path, {"vllm/a.py": numbered(40)}, steps, after).go()
    assert words(rebased) == ["absorbed", "conflict", "clean"]
    assert rebased.counts == {"clean": 1, "absorbed": 1, "conflict": 1}


def test_a_commit_of_upstreams_history_that_is_the_patch_is_said_and_asked(tmp_path: Path) -> None:
    """`git patch-id --verbatim` finds it, though upstream changed the lines again."""
    files = {"vllm/a.py": SHAPES}
    made = Move(tmp_path, files, only(NAME, CIRCLE), files)
    lab = made.lab
    took = lab.commit_tree(lab.tree(lab.base, {"vllm/a.py": CIRCLE}), lab.commit, "Taken")
    again = CIRCLE.replace(b"if factor <= 0", b"if not factor > 0")
    made.next = lab.commit_tree(lab.tree(lab.base, {"vllm/a.py": again}), took, "Again")
    rebased = made.go()
    assert words(rebased) == ["conflict"]
    made.since = lab.commit
    rebased = made.go()
    assert (words(rebased), kinds(rebased)) == (["absorbed"], ["emptied"])
    assert took[:12] in str(rebased.patches[0].verdict.evidence[-1])
    assert made.contents["vllm/a.py"] == again
    assert made.go(Choices(accept=[rebased.questions[0].name])).exit_code == 0
