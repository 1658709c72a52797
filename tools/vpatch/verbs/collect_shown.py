"""What the reports of ``vpatch collect`` have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from vpatch.findings import Finding
from vpatch.report import plain

_SHOWN = 20


def finding_lines(findings: Sequence[Finding], count: int) -> Iterator[Text]:
    """The first findings of so many, and how many there are beside them."""
    shown = findings[:_SHOWN]
    yield from (plain(str(one)) for one in shown)
    if count > len(shown):
        yield plain(f"and {count - len(shown)} more findings: --json lists more")


def many(count: int, what: str) -> str:
    """A number of things."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def size(count: float) -> str:
    """Bytes as people say them."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:  # noqa: PLR2004
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
