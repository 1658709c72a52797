"""A state of upstream that changes lines which a patch conflicts over."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """A state of upstream.

    Attributes:
        name: A release's tag, or the start of a commit's id.
        title: A commit's subject; empty for a release.
    """

    name: str
    commit: str
    title: str = ""


@dataclass(frozen=True)
class Touch:
    """A state of upstream that changes the lines, or the file, that a patch conflicts over.

    Attributes:
        line: Where they are from there on, from 1; 0 where the whole file is meant.
        last: The state before it, which has the lines as they were.
        diff: What it does to them, with signs; or a sentence about the whole file.
        more: How many lines of the diff are left out.
    """

    path: str
    line: int
    point: Point
    last: str
    diff: tuple[str, ...]
    more: int = 0

    def as_dict(self) -> dict[str, object]:
        """As ``--json`` prints it."""
        return {
            "file": self.path,
            "line": self.line,
            "in": self.point.name,
            "last_without": self.last,
            "title": self.point.title,
            "diff": list(self.diff),
            "more": self.more,
        }

    def told(self) -> list[str]:
        """The same for a person: where and when, and the lines."""
        where = f"{self.path}:{self.line}" if self.line else self.path
        title = f" ({self.point.title})" if self.point.title else ""
        more = [f"and {self.more} lines more"] if self.more else []
        head = f"{where} is changed in {self.point.name}{title}, {self.last} has it as it was:"
        return [head, *(f"  {line}" for line in (*self.diff, *more))]
