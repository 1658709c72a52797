"""What the gates say of a tree, kept in the user's cache: a tree's name is its content."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from vpatch.errors import HostError
from vpatch.files import write_atomically
from vpatch.gates.gate import Verdict

FOLDER = "gates"
_WORDS = ("pass", "fail", "not-applicable")
_PLACE = re.compile(r"(?:.+:[0-9]+)?")
_SURROGATE = re.compile("[\ud800-\udfff]")
Ask = Callable[[Collection[str]], Iterable[Verdict]]


@dataclass(frozen=True)
class GateSaid:
    """A gate's verdict on a tree.

    Attributes:
        word: ``pass``, ``fail`` or ``not-applicable``.
        error: The text that a user gets; may be empty.
        note: One sentence; may be empty.
        place: ``file:line`` of the first line that it rests on; may be empty.
        text: What is there.
    """

    name: str
    asks: str
    word: str
    error: str
    note: str
    place: str
    text: str = ""

    @property
    def line(self) -> str:
        """It, on one line."""
        parts = (f"gate {self.name}: {self.asks}", self.error or self.note, self.place)
        return " - ".join(part for part in parts if part)


def said(verdict: Verdict) -> GateSaid:
    """A verdict as it is kept."""
    gate, found = verdict.gate, verdict.found
    first = found.evidence[0] if found.evidence else None
    place = f"{first.file}:{first.line}" if first else ""
    text = first.text if first else ""
    return GateSaid(gate.name, gate.asks, found.word, found.error, found.note, place, text)


def gates_of(tree: str, names: Collection[str], kept: Path | None, ask: Ask) -> dict[str, GateSaid]:
    """What gates say of a tree, asked once.

    A gate that is asked among some is as green as among all; what it says where it is not may be
    less. So those of the group ``code``, which rest on the others, are asked among all alone.

    Args:
        tree: Its id: what it holds.
        names: The gates.
        kept: The user's cache; None: nothing is kept. One that cannot be written costs time alone.
        ask: Asks gates of it by their names; may answer for more.

    Returns:
        The gates by name.

    Raises:
        What ``ask`` raises.
    """
    path = kept / FOLDER / f"{tree}-{code_of_gates()}.json" if kept is not None else None
    known = _read(path) if path is not None else {}
    missing = [name for name in names if name not in known]
    if missing:
        known |= {one.gate.name: said(one) for one in ask(missing)}
        if path is not None:
            _write(path, known)
    return {name: known[name] for name in names}


def _write(path: Path, known: Mapping[str, GateSaid]) -> None:
    rows = {name: astuple(one) for name, one in known.items()}
    with suppress(HostError):
        write_atomically(path, json.dumps(rows).encode())


def _read(path: Path) -> dict[str, GateSaid]:
    """What was kept; nothing where it is not there or not whole."""
    try:
        found: Any = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    rows = found.items() if isinstance(found, dict) else ()
    return {name: GateSaid(*row) for name, row in rows if _is_row(name, row)}


def _is_row(name: str, row: Any) -> bool:
    if not (isinstance(row, list) and len(row) == len(fields(GateSaid))):
        return False
    if not all(isinstance(cell, str) and not _SURROGATE.search(cell) for cell in row):
        return False
    one = GateSaid(*row)
    return one.name == name and one.word in _WORDS and bool(_PLACE.fullmatch(one.place))


@cache
def code_of_gates() -> str:
    """The gates themselves, and the Python that reads for them: others say other things."""
    digest = hashlib.sha256(sys.version.encode())
    for file in sorted(files("vpatch.gates").iterdir(), key=lambda each: each.name):
        if file.name.endswith(".py"):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]
