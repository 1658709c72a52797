"""One base class for every failure that a user can meet.

Libraries raise; only ``cli.py`` prints and exits. Each failure carries the documented exit code,
a stable machine-readable code for ``--json``, one sentence that names the thing and the cause,
and a hint that names the next step.
"""

from __future__ import annotations

from typing import ClassVar


class VpatchError(Exception):
    """A failure with an exit code, a machine-readable code and the next step.

    Args:
        message: One sentence naming the thing that failed and the cause.
        hint: What the user can do next, as one sentence or one command; may be empty.
        code: Overrides the class's machine-readable code, for a finer cause.
    """

    exit_code: ClassVar[int] = 70
    default_code: ClassVar[str] = "internal"

    def __init__(self, message: str, *, hint: str = "", code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code or self.default_code


class FindingError(VpatchError):
    """A check or a guard found something (exit 1)."""

    exit_code = 1
    default_code = "finding"


class UsageError(VpatchError):
    """Wrong arguments, an unknown tag, or a tag without a pin (exit 2)."""

    exit_code = 2
    default_code = "usage"


class ConflictError(VpatchError):
    """A patch does not fit the tree that it is applied to (exit 3)."""

    exit_code = 3
    default_code = "conflict"


class HostError(VpatchError):
    """The environment fails us: network, hash, disk, permissions, missing tool (exit 4)."""

    exit_code = 4
    default_code = "environment"


class InterruptedRunError(VpatchError):
    """The user ended the run (exit 130)."""

    exit_code = 130
    default_code = "interrupted"
