"""The status as Markdown: the matrix, and what each cell rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from vpatch.report import printable
from vpatch.status.cell import MEANING, Cell, Row
from vpatch.status.collect import Status

_SPECIAL = "\\`*_{}[]()#+!|~"


def to_markdown(status: Status) -> str:
    """The whole page."""
    return "\n".join(_lines(status)) + "\n"


def _lines(status: Status) -> Iterator[str]:
    yield "# vpatch status"
    yield ""
    yield from _table(status, status.pinned)
    if status.unpinned:
        yield "## Releases without a pin"
        yield ""
        yield from _table(status, status.unpinned)
    if status.unseen:
        yield f"Not looked at: {', '.join(status.unseen)}."
        yield ""
    for note in status.notes:
        yield f"Note: {escaped(note)}."
        yield ""
    yield "| word | means |"
    yield "|---|---|"
    for word, meaning in MEANING.items():
        yield f"| {word} | {escaped(meaning)} |"
    yield ""
    for row in status.pinned:
        yield f"## {row.tag}, revision {row.revision or '?'}"
        yield ""
        if row.trouble:
            yield f"**broken**: {escaped(row.trouble)}"
            yield ""
        for cell in row.cells:
            yield from _cell(cell)
        yield from _defects(row)
    yield from _left(status)


def _table(status: Status, rows: Sequence[Row]) -> Iterator[str]:
    yield "| release | " + " | ".join(status.topics) + " |"
    yield "|---" * (len(status.topics) + 1) + "|"
    for row in rows:
        revision = f" r{row.revision}" if row.revision is not None else ""
        words = (f"**{c.label}**" if c.word == "broken" else c.label for c in row.cells)
        yield f"| {row.tag}{revision} | " + " | ".join(words) + " |"
    yield ""


def _cell(cell: Cell) -> Iterator[str]:
    told = evidence(cell)
    if not told:
        return
    yield f"### {cell.topic}: {cell.label}"
    yield ""
    for heading, lines in told:
        yield f"- {heading}"
        for line in lines:
            yield f"  - {escaped(line)}"
    yield ""


def _defects(row: Row) -> Iterator[str]:
    if row.defects:
        yield f"### {escaped(row.counted)}"
        yield ""
        yield "| # | defect | topic | now |"
        yield "|---|---|---|---|"
        for topic, defect in row.defects:
            cells = (defect.number, defect.text, topic or "-", defect.now)
            yield "| " + " | ".join(map(escaped, cells)) + " |"
        yield ""


def _left(status: Status) -> Iterator[str]:
    if status.left:
        yield "## Known, and left"
        yield ""
        for defect in status.left:
            yield f"- {escaped(defect.said)}"


def evidence(cell: Cell) -> list[tuple[str, Sequence[str]]]:
    """What a cell rests on, under headings; those without lines are left out."""
    parts: list[tuple[str, Sequence[str]]] = [
        ("broken", cell.broken),
        ("the engine, with the series", [one.line for one in cell.proofs]),
        ("needed by the release as it is", cell.needed),
        ("the release has it itself", cell.upstream),
        (f"{len(cell.patches)} patches", cell.patches),
        ("the engine, on the release as it is", [one.line for one in cell.seen]),
        ("not looked at", [cell.why] if cell.why else []),
    ]
    return [(heading, lines) for heading, lines in parts if lines]


def escaped(text: str) -> str:
    """A text in which nothing is Markdown, on one line."""
    plain = escape(printable(text), quote=False)
    return "".join(f"\\{char}" if char in _SPECIAL else char for char in plain)
