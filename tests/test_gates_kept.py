"""What is kept of the gates' answers: asked once, and never another tree's or other gates'."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import pytest

from gates_lab import write
from vpatch.gates.check import GATES, check_tree
from vpatch.gates.gate import Subject, Verdict, judge
from vpatch.gates.kept import gates_of, said
from vpatch.gates.modules import Program
from vpatch.gates.tree import of_folder

NAMES = [gate.name for gate in GATES if gate.group != "code"]


class Asked:
    """A tree whose gates are asked, and which were."""

    def __init__(self, folder: Path) -> None:
        self.folder = write(folder, {})
        self.names: list[list[str]] = []

    def ask(self, names: Collection[str]) -> list[Verdict]:
        self.names.append(sorted(names))
        subject = Subject(Program(of_folder(self.folder)))
        return [judge(subject, gate) for gate in GATES if gate.name in names]


@pytest.fixture
def tree(tmp_path: Path) -> Asked:
    """The small vLLM of the gates' tests."""
    return Asked(tmp_path / "vllm")


def test_a_gate_is_asked_once(tree: Asked, tmp_path: Path) -> None:
    first = gates_of("a" * 40, NAMES[:2], tmp_path, tree.ask)
    assert gates_of("a" * 40, NAMES[:2], tmp_path, tree.ask) == first
    more = gates_of("a" * 40, NAMES[:4], tmp_path, tree.ask)
    assert {name: more[name] for name in first} == first
    gates_of("b" * 40, NAMES[:1], tmp_path, tree.ask)
    assert tree.names == [sorted(NAMES[:2]), sorted(NAMES[2:4]), NAMES[:1]]


def test_one_gate_alone_is_green_where_it_is_among_all(tree: Asked) -> None:
    every = {one.gate.name: said(one) for one in check_tree(of_folder(tree.folder)).verdicts}
    for name in NAMES:
        alone = gates_of("", [name], None, tree.ask)[name]
        assert (alone == every[name]) or "pass" not in (alone.word, every[name].word)


def test_all_gates_are_never_put_together_of_some(tree: Asked, tmp_path: Path) -> None:
    every = {one.gate.name: said(one) for one in check_tree(of_folder(tree.folder)).verdicts}
    gates_of("a" * 40, NAMES, tmp_path, tree.ask)

    def ask_all(_: Collection[str]) -> tuple[Verdict, ...]:
        return check_tree(of_folder(tree.folder)).verdicts

    assert gates_of("a" * 40, list(every), tmp_path, ask_all) == every


def row(**cells: str) -> str:
    """A kept answer, some cells of which somebody else wrote."""
    known = {"name": "target", "asks": "", "word": "pass", "error": "", "note": ""}
    return json.dumps({"target": [*({**known, "place": "", "text": ""} | cells).values()]})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"target": 1}',
        '{"target": ["drafter"]}',
        row(word="Pass"),
        row(place="a.py"),
        row(place="a.py:x"),
        row(text="\ud800"),
    ],
)
def test_what_is_kept_and_not_whole_is_asked_again(tree: Asked, tmp_path: Path, text: str) -> None:
    first = gates_of("a" * 40, ["target"], tmp_path, tree.ask)
    (kept,) = (tmp_path / "gates").iterdir()
    kept.write_text(text)
    assert gates_of("a" * 40, ["target"], tmp_path, tree.ask) == first
    assert len(tree.names) == 2
    assert json.loads(kept.read_text()).keys() == {"target"}


def test_other_gates_and_another_python_ask_again(
    tree: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates_of("a" * 40, ["target"], tmp_path, tree.ask)
    monkeypatch.setattr("vpatch.gates.kept.code_of_gates", lambda: "f" * 16)
    gates_of("a" * 40, ["target"], tmp_path, tree.ask)
    assert len(tree.names) == 2


def test_a_cache_that_cannot_be_written_costs_time_alone(tree: Asked, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert gates_of("a" * 40, ["target"], tmp_path / "cache", tree.ask).keys() == {"target"}
