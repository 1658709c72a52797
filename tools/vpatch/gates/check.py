"""All gates, in the order in which an engine start meets them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vpatch.garbage import uncollected
from vpatch.gates import (
    attention,
    collection,
    drafter,
    drafting,
    extraction,
    fields,
    handed,
    ids,
    interface,
    loading,
    names,
    norms,
    parallel,
    parts,
    placeholder,
    protocol,
    target,
    torch_module,
    words,
)
from vpatch.gates.engine import Runner
from vpatch.gates.gate import Gate, Subject, Verdict, judge, not_silent
from vpatch.gates.modules import Module, Program
from vpatch.gates.tree import Tree

GATES: tuple[Gate, ...] = (
    *parts.GATES,
    *target.GATES,
    *drafter.GATES,
    *placeholder.GATES,
    *interface.GATES,
    *ids.GATES,
    *handed.GATES,
    *drafter.OPTIONS,
    *norms.OPTIONS,
    *loading.OPTIONS,
    *drafting.OPTIONS,
    *attention.OPTIONS,
    *placeholder.OPTIONS,
    *interface.OPTIONS,
    *ids.OPTIONS,
    *parallel.OPTIONS,
    *extraction.OPTIONS,
    *collection.OPTIONS,
    *protocol.GATES,
    *names.GATES,
    *fields.GATES,
    *words.GATES,
    *torch_module.GATES,
)


@dataclass(frozen=True)
class Checked:
    """A tree, and what every gate says of it.

    Attributes:
        name: The tree's.
        runner: The model runner that was asked about.
        default: Whether the tree takes it where nobody chooses.
    """

    name: str
    runner: Runner
    default: bool
    verdicts: tuple[Verdict, ...]

    @property
    def failed(self) -> tuple[Verdict, ...]:
        """The gates that are red."""
        return tuple(each for each in self.verdicts if each.failed)

    @property
    def story(self) -> tuple[Verdict, ...]:
        """The errors that a plain start ends with, each behind the one before it."""
        return tuple(
            each for each in self.failed if each.gate.group == "start" and each.found.error
        )

    def as_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "tree": self.name,
            "runner": self.runner,
            "default_runner": self.default,
            "failed": [each.gate.name for each in self.failed],
            "gates": [each.as_dict() for each in self.verdicts],
        }


def check_tree(
    tree: Tree,
    parsed: dict[str, Module | None] | None = None,
    runner: Runner | None = None,
) -> Checked:
    """Asks all gates.

    Args:
        tree: What they are asked of.
        parsed: Modules of it that have been parsed before; gets those that are parsed now.
        runner: The model runner; the one that the tree takes where nobody chooses.

    Raises:
        HostError: A file cannot be read.
    """
    with uncollected():
        return _check(tree, {} if parsed is None else parsed, runner, keep=parsed is not None)


def _check(
    tree: Tree, modules: dict[str, Module | None], runner: Runner | None, *, keep: bool
) -> Checked:
    # Of its own: what it made is gone before anybody looks for garbage again.
    subject = Subject(Program(tree, modules), runner)
    verdicts = not_silent(tuple(judge(subject, gate) for gate in GATES))
    is_default = subject.runner == subject.default_runner
    checked = Checked(tree.name, subject.runner, is_default, verdicts)
    if not keep:
        subject.forget()
    return checked
