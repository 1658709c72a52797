"""``vpatch status``: releases x topics: needed, upstream, patched, proven, broken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from rich.console import RenderableType
from rich.text import Text

from vpatch.errors import UsageError
from vpatch.files import write_atomically
from vpatch.pipeline import Upstream
from vpatch.report import Fitting, Folded, Report, lines, table
from vpatch.status.cell import Row
from vpatch.status.collect import Status, Wish, collect
from vpatch.status.markdown import evidence, to_markdown
from vpatch.status.page import to_html

Form = Literal["text", "markdown"]


@dataclass(frozen=True)
class Output:
    """How it is shown.

    Attributes:
        html: A file that gets the page as well.
    """

    form: Form
    html: Path | None


def run(wish: Wish, output: Output, repo: Path, upstream: Upstream) -> Report:
    """Exit 1 where a release with a pin is broken.

    Raises:
        UsageError: A tag is none, there is no folder with reports, or no place for the page.
        FindingError: A stored report or docs/defects.md is not what it has to be.
        HostError: The cache or the page cannot be written.
    """
    if output.html is not None and output.html.is_dir():
        raise UsageError(f"{output.html} is a folder", hint="Name a file for --html.")
    status = collect(wish, repo, upstream)
    made = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    if output.html is not None:
        write_atomically(output.html, to_html(status, made).encode("utf-8"))
    text = (
        Text(to_markdown(status).rstrip("\n"))
        if output.form == "markdown"
        else text_of(status, detailed=bool(wish.tags), html=output.html)
    )
    return Report("status", _data(status, made, output.html), text, 1 if status.broken else 0)


def _data(status: Status, made: str, html: Path | None) -> dict[str, Any]:
    return {
        "made": made,
        "topics": list(status.topics),
        "releases": [row.as_dict() for row in status.pinned],
        "without_pin": [row.as_dict() for row in status.unpinned],
        "not_looked_at": list(status.unseen),
        "left": [{"number": one.number, "text": one.text, "now": one.now} for one in status.left],
        "notes": list(status.notes),
        "html": None if html is None else str(html),
    }


def text_of(status: Status, *, detailed: bool, html: Path | None) -> RenderableType:
    """It, for a person.

    Args:
        detailed: With all that each cell rests on, and each release's defects.
        html: The page that was written.
    """
    rows = (*status.pinned, *status.unpinned)
    cells = [
        (row.tag, "-" if row.revision is None else str(row.revision), *(c.label for c in row.cells))
        for row in rows
    ]
    more = [line for row in rows for line in _details(row)] if detailed else []
    said = [f"{row.tag} is broken: {row.trouble}" for row in rows if row.trouble]
    if status.unseen:
        said.append(f"without a pin, not looked at: {', '.join(status.unseen)}")
    said += [f"note: {note}" for note in status.notes]
    if html is not None:
        said.append(f"page: {html}")
    return lines(
        Fitting(tuple(_tables(status.topics, cells))),
        *(Folded(line) for line in (*more, *said)),
    )


def _tables(topics: Sequence[str], cells: Sequence[Sequence[str]]) -> Iterator[Text]:
    """Releases by topics, topics by releases, and a line for each of both."""
    heads = ("release", "revision", *topics)
    yield table(heads, cells)
    first, *rest = zip(heads, *cells, strict=True)
    yield table(first, rest)
    yield table(
        ("release", "topic", "status"),
        [
            (row[0], topic, word)
            for row in cells
            for topic, word in zip(heads[1:], row[1:], strict=True)
        ],
    )


def _details(row: Row) -> Iterator[str]:
    for cell in row.cells:
        yield ""
        yield f"{row.tag} {cell.topic}: {cell.label}"
        for heading, told in evidence(cell):
            yield f"  {heading}"
            yield from (f"    {line}" for line in told)
    if row.defects:
        yield ""
        yield row.counted
    for topic, defect in row.defects:
        yield f"  {defect.number} ({topic or 'no topic'}) {defect.text} -> {defect.now}"
