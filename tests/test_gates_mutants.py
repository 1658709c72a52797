"""The mutants of the patched releases: how they are made, and that the gates still see them."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest

from vpatch.pipeline import Upstream
from vpatch.progress import SilentProgress

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "ci"))

import gate_mutants  # noqa: E402
from gate_mutate import Mutant, mutants_of, pieces_of  # noqa: E402

BEFORE = b"""\
TABLE = dict(one="A")


class Model(Base, Other):
    size = 3

    def forward(self, x):
        return self.layer(x)
"""
AFTER = b"""\
TABLE = dict(one="A", two="B")


class Model(Base, Middle, Other):
    size = 3
    width: int = 4

    def forward(self, x):
        self.note(x)
        self.seen = helper(x.shape)
        return self.layer(x)

    def note(self, x):
        pass


def helper(x):
    return len(x)
"""


def _changes(mutants: list[Mutant]) -> set[tuple[str, str, str, str]]:
    return {(m.piece.scope, m.piece.kind, m.piece.text, m.piece.action) for m in mutants}


def test_what_is_added_and_nothing_else() -> None:
    assert _changes(mutants_of("vllm/m.py", BEFORE, AFTER)) == {
        ("", "entry", "two", "rename"),
        ("Model", "base", "Middle", "remove"),
        ("Model", "attribute", "width", "rename"),
        ("Model.forward", "call", "self.note(x)", "remove"),
        ("Model.forward", "attribute", "self.seen", "rename"),
        ("Model.forward", "call", "helper", "rename"),
        ("Model.forward", "read", "x.shape", "rename"),
        ("Model", "def", "note", "rename"),
        ("", "def", "helper", "rename"),
    }


def test_each_is_one_change_that_parses() -> None:
    for mutant in mutants_of("vllm/m.py", BEFORE, AFTER):
        ast.parse(mutant.data)
        piece = mutant.piece
        assert mutant.data == AFTER[: piece.start] + piece.becomes.encode() + AFTER[piece.end :]
        assert mutant.data != AFTER


def test_a_base_goes_with_its_comma() -> None:
    (mutant,) = [m for m in mutants_of("vllm/m.py", BEFORE, AFTER) if m.piece.kind == "base"]
    assert b"class Model(Base, Other):" in mutant.data.replace(b"  ", b" ")


def test_where_it_is_used() -> None:
    lines = {(p.kind, p.text): p.lines for p in pieces_of(AFTER)}
    assert lines["def", "note"] == {14}
    assert lines["call", "helper"] == {10}
    assert lines["entry", "two"] == frozenset()
    assert lines["attribute", "width"] == frozenset()  # nobody here reads it


def test_a_new_file_is_all_new() -> None:
    assert len(mutants_of("vllm/m.py", None, AFTER)) > len(mutants_of("vllm/m.py", BEFORE, AFTER))


def test_keys_go_by_content() -> None:
    first, second = mutants_of("vllm/m.py", BEFORE, AFTER)[:2]
    assert first.key != second.key
    assert first.key == mutants_of("vllm/m.py", BEFORE, AFTER)[0].key
    assert first.key != mutants_of("vllm/n.py", BEFORE, AFTER)[0].key


def _listed(tag: str) -> list[dict[str, Any]]:
    return gate_mutants.read_list()[tag]


def test_the_gates_see_95_percent_of_what_breaks_the_engine() -> None:
    """By the committed list; the tests below hold it against the gates as they are."""
    ran = [e for e in _listed("v0.17.1") if e["engine"] in {"broken", "whole", "not reached"}]
    assert len(ran) >= 60
    broken, seen = gate_mutants.counted(_listed("v0.17.1"))
    assert broken >= 60
    assert seen >= gate_mutants.NEEDED * broken


def test_what_broke_the_engine_says_how() -> None:
    for tag in gate_mutants.TAGS:
        for each in _listed(tag):
            assert bool(each["check"]) == (each["engine"] == "broken"), each


def _compare(cache: Path, tag: str, step: int) -> None:
    source = Upstream(cache, None, None, SilentProgress())
    tree, found = gate_mutants.mutants(tag, source)
    known = {each["key"]: each["red"] for each in _listed(tag)}
    same = [mutant for mutant in found if mutant.key in known]
    assert len(same) >= 0.9 * len(found), f"ci/gate_mutants.py static {tag}: the series has changed"
    checker = gate_mutants.Checker(tree)
    wrong = [
        (mutant.name, red, known[mutant.key])
        for mutant in same[::step]
        if (red := checker.check(mutant)) != known[mutant.key]
    ]
    assert not wrong


@pytest.mark.network
@pytest.mark.parametrize("tag", gate_mutants.TAGS)
def test_a_sample_of_the_list_holds(release_cache: Path, tag: str) -> None:
    _compare(release_cache, tag, 48)


@pytest.mark.nightly
@pytest.mark.network
@pytest.mark.parametrize("tag", gate_mutants.TAGS)
def test_the_list_holds(release_cache: Path, tag: str) -> None:
    _compare(release_cache, tag, 1)
