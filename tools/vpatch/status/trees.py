"""What the gates say of a tree, kept in the user's cache: a tree's name is its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from vpatch.files import write_atomically
from vpatch.gates.check import GATES, Checked, check_tree
from vpatch.gates.tree import of_git
from vpatch.git import Git

_FOLDER = "gates"


@dataclass(frozen=True)
class GateSaid:
    """A gate's verdict on a tree.

    Attributes:
        word: ``pass``, ``fail`` or ``not-applicable``.
        error: The text that a user gets; may be empty.
        note: One sentence; may be empty.
        place: ``file:line``; may be empty.
    """

    name: str
    asks: str
    word: str
    error: str
    note: str
    place: str

    @property
    def line(self) -> str:
        """It, on one line."""
        parts = (f"gate {self.name}: {self.asks}", self.error or self.note, self.place)
        return " - ".join(part for part in parts if part)


@dataclass(frozen=True)
class TreeSaid:
    """All gates on a tree, by name."""

    gates: Mapping[str, GateSaid]

    def failing(self) -> tuple[GateSaid, ...]:
        """Those that are red."""
        return tuple(gate for gate in self.gates.values() if gate.word == "fail")

    @property
    def hidden(self) -> bool:
        """Whether a plain start already ends in an error: what comes behind it, nobody sees."""
        start = (self.gates[gate.name] for gate in GATES if gate.group == "start")
        return any(gate.word == "fail" and gate.error for gate in start)


def gates_on(git: Git, tree: str, name: str, kept: Path) -> TreeSaid:
    """Asks all gates of a tree of the mirror, once.

    Args:
        kept: The user's cache.

    Raises:
        UsageError: The tree holds no vLLM.
        HostError: git failed, or the cache cannot be written.
    """
    path = kept / _FOLDER / f"{tree}-{_code()}.json"
    known = _read(path)
    if known is None:
        known = _flat(check_tree(of_git(git, tree, name)))
        write_atomically(path, json.dumps(known).encode())
    return TreeSaid({gate.name: GateSaid(*known[gate.name]) for gate in GATES})


def _flat(checked: Checked) -> dict[str, list[str]]:
    found = {}
    for verdict in checked.verdicts:
        gate, said = verdict.gate, verdict.found
        first = said.evidence[0] if said.evidence else None
        place = f"{first.file}:{first.line}" if first else ""
        found[gate.name] = [gate.name, gate.asks, said.word, said.error, said.note, place]
    return found


def _read(path: Path) -> dict[str, list[str]] | None:
    """What was kept; None where it is not there or not whole."""
    try:
        found: Any = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    whole = isinstance(found, dict) and all(
        isinstance(row := found.get(gate.name), list)
        and len(row) == len(GateSaid.__dataclass_fields__)
        and all(isinstance(cell, str) for cell in row)
        for gate in GATES
    )
    return found if whole else None


@cache
def _code() -> str:
    """The gates themselves: other gates say other things of the same tree."""
    digest = hashlib.sha256()
    for file in sorted(files("vpatch.gates").iterdir(), key=lambda each: each.name):
        if file.name.endswith(".py"):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]
