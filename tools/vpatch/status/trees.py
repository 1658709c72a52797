"""What all gates say of a tree, as ``vpatch status`` asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vpatch.gates.answers import checked_of
from vpatch.gates.check import GATES
from vpatch.gates.kept import GateSaid, said
from vpatch.git import Git


@dataclass(frozen=True)
class TreeSaid:
    """All gates on a tree, by name.

    Attributes:
        absent: Those that are red because the tree has nothing at all of what they ask about.
    """

    gates: Mapping[str, GateSaid]
    absent: frozenset[str] = frozenset()

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
        HostError: git failed.
    """
    checked = checked_of(git, tree, name, kept)
    absent = frozenset(one.gate.name for one in checked.verdicts if one.found.absent)
    return TreeSaid({one.gate.name: said(one) for one in checked.verdicts}, absent)
