"""What `vpatch blame` has to say: patches x releases, as a table, as JSON, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from vpatch.patches.called import is_called
from vpatch.rebase.blame import ASKED, LETTERS, Blamed, Cell, Change, Row
from vpatch.report import Report, lines, plain, printable, table

_SHOWN = 6


def report(found: Sequence[Blamed], *, only: str | None = None, markdown: bool = False) -> Report:
    """Series on releases.

    Args:
        found: The series.
        only: Show this patch, on every release, with what its verdicts rest on.
    """
    data = {"series": [as_dict(one, only) for one in found]}
    if markdown:
        return Report("blame", data, Text("\n".join(page(found, only))))
    parts = [part for one in found for part in _series(one, only)]
    return Report("blame", data, lines(*parts))


def chosen(blamed: Blamed, only: str | None) -> tuple[Row, ...]:
    """The rows that are shown."""
    return tuple(row for row in blamed.rows if only is None or is_called(row.file, only))


def as_dict(blamed: Blamed, only: str | None) -> dict[str, Any]:
    """A series as ``--json`` prints it."""
    return {
        "tag": blamed.tag,
        "releases": list(blamed.releases),
        "not_looked_at": list(blamed.unseen),
        "patches": [_row_dict(blamed, row) for row in chosen(blamed, only)],
    }


def _row_dict(blamed: Blamed, row: Row) -> dict[str, Any]:
    first, breaks = blamed.first(row), blamed.breaks(row)
    return {
        "file": row.file,
        "subject": row.subject,
        "first_change": first.release if first else None,
        "first_break": breaks.release if breaks else None,
        "verdicts": {
            release: _cell_dict(cell)
            for release, cell in zip(blamed.releases, row.cells, strict=True)
        },
    }


def _cell_dict(cell: Cell) -> dict[str, Any]:
    return {
        "verdict": cell.word,
        "letter": cell.letter,
        "why": cell.why,
        "evidence": list(cell.evidence),
        "questions": list(cell.questions),
        "files": list(cell.files),
        "behind": list(cell.behind),
    }


def _series(blamed: Blamed, only: str | None) -> Iterator[Text]:
    rows = chosen(blamed, only)
    if rows:
        # Two lines of headings keep the columns narrow: v0.17.1 is `17` over `.1`.
        names = [release.removeprefix("v0.").partition(".") for release in blamed.releases]
        upper = (f"{blamed.tag} on v0.", *(one for one, _, _ in names), "breaks on", "patch")
        lower = ("", *(f".{rest}" for _, _, rest in names), "", "")
        yield table(upper, [lower, *(_row(blamed, row) for row in rows)])
    if only is not None:
        for row in rows:
            yield plain(f"{row.file}: {history(blamed, row)}")
            yield from (plain(line) for line in _details(blamed, row))
    yield plain(legend(rows))
    if blamed.unseen:
        yield plain(f"not looked at: {', '.join(blamed.unseen)} (vpatch blame --fetch downloads)")


def _row(blamed: Blamed, row: Row) -> tuple[str, ...]:
    breaks = blamed.breaks(row)
    release = breaks.release if breaks else ""
    return (row.file[:4], *(cell.letter for cell in row.cells), release, row.file[5:])


def history(blamed: Blamed, row: Row) -> str:
    """A patch's verdicts one behind the other: ``clean; offset from v1; conflict from v2``."""
    first, *more = blamed.changes(row)
    return "; ".join([first.cell.word, *map(str, more)])


def _details(blamed: Blamed, row: Row) -> Iterator[str]:
    for change in blamed.changes(row)[1:]:
        yield from _told(change)


def _told(change: Change) -> Iterator[str]:
    cell = change.cell
    yield f"  {change.release} {cell.word}: {cell.why}".rstrip(": ")
    yield from (f"    {each}" for each in cell.evidence[:_SHOWN])
    yield from (f"    asks {each}" for each in cell.questions[:_SHOWN])


def legend(rows: Sequence[Row]) -> str:
    """What the letters of a table mean: those that it has."""
    used = {letter for row in rows for cell in row.cells for letter in cell.letter}
    return "; ".join(
        f"{letter} {meaning}" for letter, meaning in (*LETTERS.values(), ASKED) if letter in used
    )


def page(found: Sequence[Blamed], only: str | None = None) -> Iterator[str]:
    """The same as Markdown."""
    for blamed in found:
        rows = chosen(blamed, only)
        yield f"### The series of {blamed.tag}"
        yield ""
        yield f"| patch | {' | '.join(blamed.releases)} | breaks |"
        yield f"|---|{'---|' * (len(blamed.releases) + 1)}"
        for row in rows:
            breaks = blamed.breaks(row)
            cells = " | ".join(f"`{cell.letter}`" for cell in row.cells)
            yield f"| `{row.file}` | {cells} | {breaks.release if breaks else ''} |"
        yield ""
        yield _escaped(legend(rows))
        if blamed.unseen:
            yield ""
            yield f"Not looked at: {', '.join(blamed.unseen)}."
        yield ""


def _escaped(text: str) -> str:
    return "".join(f"\\{char}" if char in "\\|*_~" else char for char in printable(text))
