"""What is read ahead for the guard: everything that a series' files import, in one go."""

from __future__ import annotations

from pathlib import Path

import pytest

from rebase_lab import Move, only, words
from series_lab import numbered
from vpatch.git import Git

IMPORTS = b"""\
import vllm.one
from . import two, three as four
from .deep.five import (
    six,
)
from vllm.seven import eight
"""
FILES = {
    "vllm/a.py": IMPORTS + numbered(9),
    **{f"vllm/{name}.py": name.encode() for name in ("one", "two", "three", "seven")},
    "vllm/deep/five.py": b"six = 6\n",
    "vllm/deep/__init__.py": b"",
    "vllm/__init__.py": b"",
}


def test_imported_modules_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    move = Move(
        tmp_path,
        FILES,
        only("0001-a-say-five.patch", IMPORTS + numbered(9, changed={5: "five = six"})),
        {**FILES, "vllm/a.py": b"zero = 0\n" + IMPORTS + numbered(9)},
    )
    asked: list[set[str]] = []
    read = Git.read_blobs

    def count(self: Git, names: list[str]) -> dict[str, bytes]:
        found = read(self, list(names))
        asked.append(set(found))
        return found

    # What another test has read is known.
    monkeypatch.setattr("vpatch.rebase.snapshot._known", {})
    monkeypatch.setattr(Git, "read_blobs", lambda self, names: count(self, list(names)))
    assert words(move.go()) == ["offset"]
    # Both trees: the touched files, then what they import; the last one is the test's own.
    assert len(asked) <= 5
    blobs = {move.lab.git.line("rev-parse", f"{move.lab.base}:{path}") for path in FILES}
    assert blobs <= set().union(*asked[:-1])
