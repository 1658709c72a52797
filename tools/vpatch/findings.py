"""Findings: what a check has to say about a file, one sentence each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vpatch.errors import FindingError


@dataclass(frozen=True)
class Finding:
    """One thing that a check found.

    Attributes:
        file: The file that it is about, as the caller named its folder.
        line: Line in that file, from 1; None where the whole file is meant.
        code: Stable machine-readable name of the rule.
        message: One sentence: what is wrong, and what would be right.
        mend: The next step: how to mend it; empty where the check does not say.
    """

    file: str
    line: int | None
    code: str
    message: str
    mend: str = ""

    @property
    def place(self) -> str:
        """``file:line``, or ``file`` alone."""
        return self.file if self.line is None else f"{self.file}:{self.line}"

    def __str__(self) -> str:
        return f"{self.place}: {self.message} [{self.code}]"

    def as_dict(self) -> dict[str, object]:
        """The finding as ``--json`` prints it."""
        return {
            "file": self.file,
            "line": self.line,
            "code": self.code,
            "message": self.message,
            **({"mend": self.mend} if self.mend else {}),
        }


class FindingsError(FindingError):
    """Findings that stop the work (exit 1); ``findings`` holds them all."""

    def __init__(self, findings: Iterable[Finding], *, hint: str = "") -> None:
        self.findings = tuple(findings)
        first = self.findings[0]
        more = len(self.findings) - 1
        suffix = f" (and {more} more)" if more else ""
        sentence = f"{first.place}: {first.message}{suffix}"
        super().__init__(sentence, hint=hint or first.mend, code=first.code)
