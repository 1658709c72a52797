"""Results for people and for machines: what each verb prints on stdout.

A ``Report`` holds both forms; nothing here prints.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from vpatch.errors import VpatchError

_NARROWEST = 40


@dataclass(frozen=True)
class Report:
    """What one verb has to say.

    Attributes:
        verb: Names the JSON schema, ``vpatch/<verb>/1``.
        data: The JSON object's members besides ``schema`` and ``ok``.
        text: The same for a person.
        exit_code: 0, or 1 where the verb found something.
    """

    verb: str
    data: Mapping[str, Any]
    text: RenderableType
    exit_code: int = 0

    def to_json(self) -> str:
        """Exactly one JSON object."""
        return to_json(self.verb, ok=self.exit_code == 0, data=self.data)


@dataclass(frozen=True)
class Failure:
    """A verb that ended in an error, for both readers."""

    verb: str
    error: VpatchError
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Exactly one JSON object, with the error in it."""
        error = {
            "code": self.error.code,
            "message": self.error.message,
            "hint": self.error.hint,
        }
        return to_json(self.verb, ok=False, data={**self.data, "error": error})

    def lines(self) -> list[str]:
        """What stderr shows."""
        lines = [f"vpatch {self.verb}: {self.error.message}".rstrip()]
        return [*lines, f"  -> {self.error.hint}"] if self.error.hint else lines


def to_json(verb: str, *, ok: bool, data: Mapping[str, Any]) -> str:
    """One line of JSON, sorted by nothing but the order of ``data``."""
    return json.dumps({"schema": f"vpatch/{verb}/1", "ok": ok, **data})


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Text:
    """Columns under headings. Nothing is folded or cut: a long name stays one name to copy."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    text = Text(_row(headings, widths), style="bold")
    for row in rows:
        text.append("\n" + _row(row, widths), style="not bold")
    return text


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join(padded).rstrip()


def lines(*parts: RenderableType | None) -> RenderableType:
    """Parts under each other; None is left out."""
    return Group(*(part for part in parts if part is not None))


def plain(text: str) -> Text:
    """A line in which nothing is markup."""
    return Text(printable(text))


@dataclass(frozen=True)
class Folded:
    """A line that a terminal folds between words, below its indent. Elsewhere it is one line."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As rich asks."""
        whole = printable(self.text)
        if not (console.is_terminal and whole):
            yield Text(whole)
            return
        below = " " * (len(whole) - len(whole.lstrip()) + 2)
        width = max(options.max_width, _NARROWEST)
        for line in wrap(
            whole,
            width,
            subsequent_indent=below,
            break_long_words=False,  # a path stays one path to copy
            break_on_hyphens=False,
        ):
            yield Text(line)


@dataclass(frozen=True)
class Fitting:
    """The first of some forms that a terminal has room for, or the last. Elsewhere the first."""

    forms: tuple[Text, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As rich asks."""
        room = options.max_width if console.is_terminal else None
        yield next(
            (one for one in self.forms if room is None or _width(one) <= room), self.forms[-1]
        )


def _width(text: Text) -> int:
    return max(map(len, text.plain.split("\n")))


def printable(text: str) -> str:
    """Control characters made visible: names out of wheels and patches may hold any."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
