"""``vpatch lint``: the form of series."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vpatch.findings import Finding
from vpatch.patches.pin import PIN, Pin
from vpatch.patches.repo import existing_series, pin_findings, pinned_tags
from vpatch.patches.series import Series
from vpatch.patches.series import lint as lint_series
from vpatch.report import Report, lines, plain
from vpatch.tags import parse_tag


def run(repo: Path, tags: Sequence[str]) -> Report:
    """Checks the named releases, or all that have a pin."""
    names = [parse_tag(tag) for tag in tags] or pinned_tags(repo)
    findings = [finding for tag in names for finding in _findings(repo, tag)]
    clean = plain(f"{', '.join(names) or 'no series'}: nothing found")
    return Report(
        "lint",
        {"tags": names, "findings": [finding.as_dict() for finding in findings]},
        lines(*(plain(str(finding)) for finding in findings)) if findings else clean,
        exit_code=1 if findings else 0,
    )


def _findings(repo: Path, tag: str) -> list[Finding]:
    folder = existing_series(repo, tag)
    found = list(lint_series(folder))
    if found or not (folder / PIN).is_file():
        return found
    return list(pin_findings(Pin.read(folder / PIN), Series.read(folder, tag)))
