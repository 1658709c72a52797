"""What the guard is given, and what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vpatch.patches.diff import Hunk

SCOPE_CHANGED = "scope-changed"
AMBIGUOUS = "ambiguous"
ALREADY_NEARBY = "already-nearby"
NOT_APPLIED = "not-applied"
DOES_NOT_PARSE = "does-not-parse"
NAME_GONE = "name-gone"
CALL_MISFIT = "call-misfit"
OVERRIDE_GONE = "override-gone"

Reader = Callable[[str], bytes | None]
"""A file of a tree by its path; None where there is none (or no regular file)."""


@dataclass(frozen=True)
class Change:
    """One file of one carried patch, at the four corners of the merge.

    Attributes:
        path: The file in the new tree.
        before: It in the old series before the patch; None where the patch adds it.
        after: It in the old series after the patch; None where the patch deletes it.
        upstream: It in the new tree so far, without the patch; None where there is none.
        result: It in the new tree with the patch; None where it is not there (any more).
        path_old: Its name in the old series, where upstream has renamed it since; else empty.
        hunks: The patch's hunks of the file, for messages; may be empty.
        by_hand: A person wrote the result (a resolved conflict): where its lines stand is their
            choice, and only what cannot work is said.
    """

    path: str
    before: bytes | None
    after: bytes | None
    upstream: bytes | None
    result: bytes | None
    path_old: str = ""
    hunks: tuple[Hunk, ...] = ()
    by_hand: bool = False

    @property
    def old(self) -> str:
        """Its name in the old series."""
        return self.path_old or self.path


@dataclass(frozen=True)
class Concern:
    """One reason not to trust a carried patch, which a person can accept by its name.

    Attributes:
        kind: ``scope-changed`` (it landed in another class or function than it came from),
            ``ambiguous`` (its lines fit more than one place, and the merge may have taken the
            wrong one), ``already-nearby`` (what it adds stands there already), ``not-applied``
            (a part of it is neither in the result nor in upstream), ``does-not-parse``,
            ``name-gone`` (what it uses is not there any more), ``call-misfit`` (what it calls
            takes other arguments now), ``override-gone`` (what it overrides was renamed, or takes
            other arguments now).
        path: The file in the new tree.
        line: Line of the result (of upstream's file, where the result has none); 0 for the file.
        text: One sentence: what, and where.
        name: ``PATCH:KIND:PATH:SCOPE``, stable from run to run; what ``--accept`` takes.
    """

    kind: str
    path: str
    line: int
    text: str
    name: str

    @property
    def place(self) -> str:
        """``file:line``, or ``file`` alone."""
        return f"{self.path}:{self.line}" if self.line else self.path

    def as_dict(self) -> dict[str, object]:
        """The concern as ``--json`` prints it."""
        return {
            "kind": self.kind,
            "path": self.path,
            "line": self.line,
            "text": self.text,
            "name": self.name,
        }


@dataclass(frozen=True)
class Doubt:
    """A concern on its way: of a scope of a file, not yet named after its patch."""

    kind: str
    scope: str
    line: int
    text: str

    def of(self, patch: str, path: str) -> Concern:
        """The concern, for a patch and a file."""
        name = ":".join((patch, self.kind, path, self.scope))
        return Concern(self.kind, path, self.line, self.text, name)
