"""All that the gates say of a tree of the mirror, kept in the user's cache.

A tree's id is its content, and an answer's name holds the code of the gates and the Python that
read for them: another one of these is asked anew. The first line is the hash of the rest: what is
not whole, or was changed, is asked anew, too.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vpatch.errors import HostError
from vpatch.files import write_atomically
from vpatch.gates.check import GATES, Checked, check_tree
from vpatch.gates.engine import Runner
from vpatch.gates.gate import Evidence, Found, Gate, Verdict
from vpatch.gates.kept import FOLDER, code_of_gates
from vpatch.gates.tree import of_git
from vpatch.git import Git


def checked_of(git: Git, tree: str, name: str, kept: Path, runner: Runner | None = None) -> Checked:
    """What all gates say of a tree of the mirror, asked once.

    Args:
        tree: Its id.
        name: What a person calls it.
        kept: The user's cache; one that cannot be written costs time alone.
        runner: The model runner; the one that the tree takes where nobody chooses.

    Raises:
        UsageError: The tree holds no vLLM.
        HostError: git failed.
    """
    path = kept / FOLDER / f"{tree}-{code_of_gates()}-all{f'-{runner}' if runner else ''}.json"
    known = _read(path, name)
    if known is not None:
        return known
    checked = check_tree(of_git(git, tree, name), runner=runner)
    rows = [[each.gate.name, asdict(each.found)] for each in checked.verdicts]
    told = {"runner": checked.runner, "default": checked.default, "verdicts": rows}
    data = json.dumps(told).encode()
    with suppress(HostError):
        write_atomically(path, _hash(data) + b"\n" + data)
    return checked


def _hash(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def _read(path: Path, name: str) -> Checked | None:
    """What was kept; None where it is not there or not whole."""
    try:
        named, _, data = path.read_bytes().partition(b"\n")
        if named != _hash(data):
            return None
        found: Any = json.loads(data)
        rows = zip(GATES, found["verdicts"], strict=True)
        verdicts = tuple(_verdict(gate, *row) for gate, row in rows)
        return Checked(name, found["runner"], found["default"], verdicts)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _verdict(gate: Gate, name: str, found: dict[str, Any]) -> Verdict:
    if name != gate.name:
        raise ValueError(name)
    evidence = tuple(Evidence(**each) for each in found.pop("evidence"))
    return Verdict(gate, Found(evidence=evidence, **found))
