"""``vpatch lint``: the form of series."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import RenderableType

from vpatch.findings import Finding
from vpatch.patches.check import check_series
from vpatch.patches.repo import existing_series, series_tags
from vpatch.report import Report, lines, plain
from vpatch.tags import parse_tag


def run(repo: Path, tags: Sequence[str], *, since: str) -> Report:
    """Checks the named releases, or all that have a series.

    Raises:
        UsageError: not a tag, no such series, or no such revision.
        HostError: a file cannot be opened, or git failed.
    """
    names = [parse_tag(tag) for tag in tags] or series_tags(repo)
    folders = [(existing_series(repo, tag), tag) for tag in names]
    findings = [
        finding for folder, tag in folders for finding in check_series(folder, tag, since=since)
    ]
    return Report(
        "lint",
        {"tags": names, "findings": [finding.as_dict() for finding in findings]},
        _text(names, findings),
        exit_code=1 if findings else 0,
    )


def _text(names: Sequence[str], findings: Sequence[Finding]) -> RenderableType:
    if not findings:
        return plain(f"{', '.join(names) or 'no series'}: nothing found")
    told = (plain(text) for finding in findings for text in _told(finding))
    return lines(*told)


def _told(finding: Finding) -> tuple[str, ...]:
    return (str(finding), f"  -> {finding.mend}") if finding.mend else (str(finding),)
