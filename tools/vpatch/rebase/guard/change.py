"""The words of the guard: kinds of concerns, and a concern on its way to a question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vpatch.rebase.model import Question

# It landed in another class, function or section than it came from.
SCOPE_CHANGED = "scope-changed"
# Its lines fit more than one place, and the merge may have taken the wrong one.
AMBIGUOUS = "ambiguous"
# What it adds stands there already.
ALREADY_NEARBY = "already-nearby"
# A part of it is neither in the result, nor does upstream have it.
NOT_APPLIED = "not-applied"
# The result cannot be read, though upstream's file and the old patched one can.
DOES_NOT_PARSE = "does-not-parse"
# It uses a name, an attribute or an import that is not there any more.
NAME_GONE = "name-gone"
# It calls what takes other arguments now.
CALL_MISFIT = "call-misfit"
# It overrides a method that was renamed, or that takes other arguments now.
OVERRIDE_GONE = "override-gone"

KINDS = (
    SCOPE_CHANGED,
    AMBIGUOUS,
    ALREADY_NEARBY,
    NOT_APPLIED,
    DOES_NOT_PARSE,
    NAME_GONE,
    CALL_MISFIT,
    OVERRIDE_GONE,
)

Reader = Callable[[str], bytes | None]
"""A file of a tree by its path; None where there is none."""


@dataclass(frozen=True)
class Doubt:
    """A concern about a scope of a file, not yet named after its patch.

    Attributes:
        kind: One of ``KINDS``.
        scope: Of the file: a class or function; empty where the whole file is meant.
        line: Of the result (of upstream's file, where the result has none); 0 for the file.
        text: One sentence.
    """

    kind: str
    scope: str
    line: int
    text: str

    def of(self, patch: str, path: str) -> Question:
        """The question that it is to a person: ``PATCH:KIND:PATH:SCOPE`` is its name."""
        name = ":".join((patch, self.kind, path, self.scope))
        return Question(name, self.kind, path, self.line, self.text)
