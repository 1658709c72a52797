"""Where a series came from: what `vpatch rebase` writes in the pin of the new release."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from vpatch.patches.tomltable import Table
from vpatch.tags import is_tag

_SHA256 = re.compile(r"[0-9a-f]{64}")
_VERDICTS = ("absorbed", "obsolete", "skipped")


@dataclass(frozen=True)
class Left:
    """A patch that left the series on its way to this release.

    Attributes:
        patch: Its name in the series that it left.
        verdict: ``absorbed``, ``obsolete`` or ``skipped``.
        evidence: Lines of this release that it rests on, ``file:line: text``.
    """

    patch: str
    subject: str
    verdict: str
    why: str
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Origin:
    """The series that this one was rebased from.

    Attributes:
        tag: Its release.
        series_sha256: Its ``Series.sha256``.
        left: The patches that it has and this one does not.
    """

    tag: str
    series_sha256: str
    left: tuple[Left, ...]


def origin_table(origin: Origin) -> dict[str, Any]:
    """The table of a pin."""
    left = [_as_utf8({**asdict(each), "evidence": list(each.evidence)}) for each in origin.left]
    return {"tag": origin.tag, "series_sha256": origin.series_sha256, "left": left}


def _as_utf8(value: Any) -> Any:
    """The same without what is not UTF-8 in its texts: a path may have it."""
    if isinstance(value, dict):
        return {key: _as_utf8(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_as_utf8(each) for each in value]
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def read_origin(table: Table) -> Origin:
    """What a pin's table says.

    Raises:
        FindingsError: it cannot be; the finding names the key.
    """
    origin = Origin(
        tag=table.text("tag", is_tag),
        series_sha256=table.text("series_sha256", _SHA256.fullmatch),
        left=tuple(_read_left(each) for each in table.tables("left")),
    )
    table.end()
    return origin


def _read_left(table: Table) -> Left:
    left = Left(
        patch=table.text("patch", bool),
        subject=table.text("subject", bool),
        verdict=table.text("verdict", _VERDICTS.__contains__),
        why=table.text("why", lambda _: True),
        evidence=table.texts("evidence"),
    )
    table.end()
    return left
