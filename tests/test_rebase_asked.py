"""What a rebase asks beyond its verdicts: helpers that go, names that both brought, short names."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from project_lab import BASE
from rebase_lab import NEXT, Move, only
from series_lab import TAG, TRAILERS, Step, numbered
from session_lab import AFTER, Sessions, said
from vpatch.rebase.hunks import Placed
from vpatch.rebase.model import Change
from vpatch.rebase.own_form import own_forms
from vpatch.verbs.rebase_report import short_name

GONE = TRAILERS.replace("Pending", f"Inappropriate [upstream has its own from {NEXT} on]")
HELPER = "tests/helpers.py"
USES = b"from tests.helpers import make\n"


def model(*lines: str, after: str = "") -> bytes:
    """A class whose __init__ has these lines."""
    body = "\n".join(f"        {line}" for line in ("self.a = 1", *lines, "self.z = 26"))
    return f"class Model:\n    def __init__(self):\n{body}\n{after}".encode()


def conflict_of(tmp_path: Path, mine: bytes, theirs: bytes) -> tuple[str, list[str]]:
    """Why a patch conflicts, and what stands behind that."""
    move = Move(tmp_path, {"vllm/a.py": model()}, only("0001-a.patch", mine), {"vllm/a.py": theirs})
    (patch,) = move.go().patches
    assert patch.verdict.word == "conflict"
    return patch.verdict.why, [each.text for each in patch.verdict.evidence]


def test_a_conflict_names_what_upstream_brought_in_another_form(tmp_path: Path) -> None:
    why, evidence = conflict_of(
        tmp_path, model("self.norm = norm(1)"), model("self.norm = (", "    rms(1)", ")")
    )
    assert why == "it conflicts in vllm/a.py; upstream has its own `self.norm`"
    assert "upstream has a `self.norm` of its own in Model" in evidence


def test_a_conflict_over_other_names_says_nothing_of_them(tmp_path: Path) -> None:
    why, evidence = conflict_of(tmp_path, model("self.norm = norm(1)"), model("self.fc = 1"))
    assert why == "it conflicts in vllm/a.py"
    assert evidence == ["both sides changed the same lines"]


def test_what_the_old_release_had_already_is_nobodys_own(tmp_path: Path) -> None:
    why, _ = conflict_of(
        tmp_path, model("self.a = 2", "self.b = 1"), model("self.a = 3", "self.c = 1")
    )
    assert why == "it conflicts in vllm/a.py"


FAR = "".join(f"        self.far_{n} = {n}\n" for n in range(30))


def twice(mine: str, theirs: str, folder: Path) -> list[str]:
    """The names that are asked about where a merge takes both sides."""
    top = "class Model:\n    def __init__(self):\n"
    base, ours, upstream = (
        f"{top}{first}{FAR}{last}        self.z = 26\n".encode()
        for first, last in (("", ""), (mine, ""), ("", theirs))
    )
    steps = only("0001-a.patch", ours)
    rebased = Move(folder, {"vllm/a.py": base}, steps, {"vllm/a.py": upstream}).go()
    assert rebased.patches[0].verdict.word in ("clean", "offset", "three-way")
    return [each.name for each in rebased.questions if each.kind == "set-twice"]


def test_an_attribute_that_both_set_is_asked_about(tmp_path: Path) -> None:
    mine, theirs = "        self.norm = norm(1)\n", "        self.norm = None\n"
    name = "0001-a.patch:set-twice:vllm/a.py:Model.self.norm"
    assert twice(mine, theirs, tmp_path) == [name]


def test_other_attributes_are_not(tmp_path: Path) -> None:
    assert twice("        self.norm = 1\n", "        self.fc = 1\n", tmp_path) == []


@given(data=st.binary(max_size=200), release=st.binary(max_size=200))
def test_any_bytes_are_looked_at(data: bytes, release: bytes) -> None:
    runs: tuple[Placed, ...] = ()
    change = Change("a.py", "a.py", b"", data, release, data, runs, release, b"")
    assert own_forms(change) == ()


def series_of(folder: Path, trailers: str = GONE) -> Sessions:
    """A helper that is obsolete by what its patch says, two patches that import it, one not."""
    steps = [
        Step("0001-helpers.patch", {HELPER: b"def make(): ...\n"}, trailers=trailers),
        Step("0002-one.patch", {"tests/test_one.py": USES}),
        Step("0003-two.patch", {"tests/test_two.py": b"from tests import helpers\n"}),
        Step("0004-three.patch", {"tests/test_three.py": b"# from tests.helpers_more\n"}),
    ]
    return Sessions(folder, {**BASE, "vllm/new.py": b"new\n"}, steps)


def test_a_helper_that_others_import_is_asked_about_with_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = series_of(tmp_path)
    assert project.run(TAG, NEXT, "--dry-run", "--json") == 1
    (asked,) = [each for each in said(capsys)["questions"] if each["kind"] == "obsolete"]
    assert asked["text"].endswith(
        f"; but 2 patches behind it import {HELPER}, which it makes: --keep 0001 carries it"
    )
    assert project.run(TAG, NEXT, "--keep", "0001") == 0
    assert (project.next / "0001-helpers.patch").is_file()


def test_a_question_is_answered_by_the_number_of_its_patch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = series_of(tmp_path)
    assert project.run(TAG, NEXT, "--dry-run", "--json") == 1
    answer = said(capsys)
    hint = answer["error"]["hint"]
    assert "--accept 0001:obsolete" in hint
    short = hint.partition(": ")[2].split()[4:]
    assert project.run(TAG, NEXT, "--accept", "9:obsolete") == 2
    assert "--accept names '9:obsolete', which nothing asks" in capsys.readouterr().err
    assert project.run(TAG, NEXT, *short, "--json") == 0
    assert said(capsys)["accepted"] == [each["name"] for each in answer["questions"]]


def test_the_next_command_repeats_what_was_decided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [
        Step("0001-b.patch", {"vllm/b.py": numbered(40, changed={9: "9"})}, trailers=GONE),
        Step("0002-c.patch", {"vllm/c.py": numbered(40, changed={9: "9"})}, trailers=GONE),
        Step("0003-a.patch", {"vllm/a.py": b"1\n" + numbered(60)}, trailers=GONE),
    ]
    project = Sessions(tmp_path, {**BASE, "vllm/new.py": b"new\n"}, steps)
    decided = ("--keep", "3", "--accept", "1:obsolete")
    assert project.run(TAG, NEXT, *decided, "--json") == 1
    hint = said(capsys)["error"]["hint"]
    command = (
        f"vpatch rebase {TAG} {NEXT} --keep 0003 --accept 0001:obsolete --accept 0002:obsolete"
    )
    assert hint == f"Look at each, then: {command}"
    assert project.run(*command.split()[2:]) == 0
    assert [path.name for path in project.next.glob("*.patch")] == ["0001-a.patch"]


def test_a_session_takes_short_names(tmp_path: Path) -> None:
    steps = [
        Step("0001-b.patch", {"vllm/b.py": numbered(40, changed={10: "ten"})}),
        Step("0002-c.patch", {"vllm/c.py": numbered(40, changed={9: "9"})}, trailers=GONE),
    ]
    project = Sessions(tmp_path, AFTER, steps)
    assert project.begin() == 3
    (project.work / "vllm/b.py").write_bytes(numbered(40, changed={10: "dix is ten"}))
    assert project.run("--continue") == 1
    assert project.run("--continue", "--accept", "2:obsolete") == 0
    assert [path.name for path in project.next.glob("*.patch")] == ["0001-b.patch"]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("0012-a-b.patch:name-gone:x.py:A.b", "0012:name-gone:x.py:A.b"),
        ("odd.patch:obsolete", "odd.patch:obsolete"),
    ],
)
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short
