"""The status as one HTML page that asks for nothing: no request, no script."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files

from vpatch.report import printable
from vpatch.smoke.stored import StoredReport
from vpatch.status.cell import MEANING, Cell, Row, Word
from vpatch.status.collect import Status
from vpatch.status.markdown import evidence
from vpatch.status.topics import BY_NAME

_MARKS: dict[Word, str] = {
    "broken": "✕",
    "proven": "●",
    "stale": "◐",
    "patched": "○",
    "needed": "!",
    "upstream": "✓",
    "unknown": "·",
}


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


Child = str | Iterable[Html] | None


def tag(name: str, *children: Child, **attributes: str | None) -> Html:
    """An element; children that are no ``Html`` are escaped, and so is every attribute."""
    named = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(printable(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{named}>{''.join(map(_inner, children))}</{name}>")


def _inner(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    return escape(printable(child)) if isinstance(child, str) else "".join(child)


def to_html(status: Status, made: str) -> str:
    """The page.

    Args:
        made: When, for people.
    """
    style = files("vpatch.status").joinpath("page.css").read_text(encoding="utf-8")
    head = (
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        # Nothing is loaded and nothing runs, whatever a report may hold.
        Html(
            '<meta http-equiv="Content-Security-Policy" '
            "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        ),
        tag("title", "vpatch status"),
        Html(f"<style>{style}</style>"),
    )
    body = tag("main", _body(status, made))
    panels = [_panel(row, cell) for row in (*status.pinned, *status.unpinned) for cell in row.cells]
    page = tag("html", tag("head", head), tag("body", body, panels), lang="en")
    return f"<!doctype html>\n{page}\n"


def _body(status: Status, made: str) -> Iterator[Html]:
    yield tag("h1", "vpatch status")
    yield tag("p", f"{_summary(status)} Made {made}.", class_="lead")
    for row in status.pinned:
        if row.trouble:
            yield tag("p", tag("b", f"{row.tag} is broken: "), row.trouble, class_="alarm")
    yield from _matrix(status, status.pinned, "Releases with a series")
    yield _legend()
    if status.unpinned or status.unseen:
        yield from _matrix(status, status.unpinned, "Releases without a pin")
        if status.unseen:
            yield tag("p", f"Not looked at: {', '.join(status.unseen)}.", class_="dim")
    if status.notes:
        yield tag("ul", [tag("li", note) for note in status.notes], class_="notes")
    yield _more("Topics", _topics(status))
    yield _more(f"Stored reports ({len(status.reports)})", _reports(status.reports))
    if status.left:
        rows = [tag("li", one.said) for one in status.left]
        yield _more(f"Known, and left ({len(rows)})", tag("ul", rows))


def _summary(status: Status) -> str:
    words = [cell.word for row in status.pinned for cell in row.cells]
    counts = ", ".join(f"{words.count(word)} {word}" for word in MEANING if word in words)
    pins = len(status.pinned)
    return (
        f"{pins} release{'s' * (pins != 1)} with a series, {len(status.topics)} topics: {counts}."
    )


def _matrix(status: Status, rows: Sequence[Row], heading: str) -> Iterator[Html]:
    yield tag("h2", heading)
    if not rows:
        return
    columns = [tag("th", topic, scope="col") for topic in status.topics]
    head = tag("tr", tag("th", "release", scope="col"), columns)
    body = [tag("tr", _release(row), [_link(row, cell) for cell in row.cells]) for row in rows]
    inner = tag("table", tag("thead", head), tag("tbody", body))
    yield tag("div", inner, class_="box", tabindex="0", role="region", aria_label=heading)


def _release(row: Row) -> Html:
    revision = tag("small", f"revision {row.revision}") if row.revision is not None else None
    return tag("th", row.tag, revision, scope="row")


def _link(row: Row, cell: Cell) -> Html:
    name = _anchor(row, cell)
    mark = tag("span", _MARKS[cell.word], class_="mark", aria_hidden="true")
    link = tag("a", mark, tag("span", cell.label), href=f"#{name}", id=f"at-{name}",
               class_=f"cell {cell.word}")  # fmt: skip
    return tag("td", link)


def _anchor(row: Row, cell: Cell) -> str:
    return re.sub(r"[^\w.-]", "-", f"{row.tag}--{cell.topic}")


def _panel(row: Row, cell: Cell) -> Html:
    """What a cell rests on; shown when its link is followed."""
    name = _anchor(row, cell)
    close = tag("a", "close", href=f"#at-{name}", class_="close")
    word = tag("span", f"{_MARKS[cell.word]} {cell.label}", class_=f"word {cell.word}")
    title = tag("h3", f"{row.tag} · {cell.topic}", id=f"title-{name}")
    purpose = BY_NAME[cell.topic].purpose if cell.topic in BY_NAME else ""
    told = [
        Html(tag("h4", heading) + tag("ul", [tag("li", line) for line in lines]))
        for heading, lines in evidence(cell)
    ]
    inner = (
        close,
        title,
        tag("p", word, f" {MEANING[cell.word]}"),
        tag("p", purpose, class_="dim"),
    )
    return tag("section", inner, told, id=name, class_="panel", aria_labelledby=f"title-{name}")


def _legend() -> Html:
    rows = [
        tag("li", tag("span", f"{_MARKS[word]} {word}", class_=f"word {word}"), f" {meaning}")
        for word, meaning in MEANING.items()
    ]
    return tag("ul", rows, class_="legend")


def _more(heading: str, inner: Html) -> Html:
    return tag("details", tag("summary", heading), inner)


def _topics(status: Status) -> Html:
    rows = []
    for name in status.topics:
        known = BY_NAME.get(name)
        gates = ", ".join(known.gates) if known else ""
        cells = (tag("td", text) for text in (known.purpose if known else "", gates or "-"))
        rows.append(tag("tr", tag("th", name, scope="row"), list(cells)))
    return _table(("topic", "what it gives", "gates that speak for it"), rows)


def _reports(reports: Sequence[StoredReport]) -> Html:
    rows = []
    for one in reports:
        counts = ", ".join(f"{count} {word}" for word, count in one.counts().items())
        where = ", ".join(filter(None, (one.device, one.gpu, "+".join(one.runners))))
        wheel = one.wheel or "installed"
        texts = (one.vllm, one.when[:10], one.tier, where, counts, wheel, one.sha256[:12] or "-")
        rows.append(tag("tr", tag("th", one.file, scope="row"), [tag("td", t) for t in texts]))
    heads = ("report", "vLLM", "when", "tier", "where", "checks", "wheel", "sha256")
    return _table(heads, rows)


def _table(heads: Sequence[str], rows: Sequence[Html]) -> Html:
    head = tag("tr", [tag("th", text, scope="col") for text in heads])
    inner = tag("table", tag("thead", head), tag("tbody", rows))
    return tag("div", inner, class_="box", tabindex="0", role="region", aria_label=heads[0])
