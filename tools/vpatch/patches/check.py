"""Everything that is checked about a series without its release, in one list."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from vpatch.errors import HostError
from vpatch.findings import Finding, FindingsError
from vpatch.patches.chain import chain_findings
from vpatch.patches.history import HEAD, revision_findings
from vpatch.patches.mend import mended
from vpatch.patches.pin import PIN, Pin
from vpatch.patches.repo import folder_identity, pin_findings
from vpatch.patches.roundtrip import lost_on_the_way
from vpatch.patches.series import Series, lint

_KEY = re.compile(r"`([A-Za-z0-9_.-]+)`")
_TOML_LINE = re.compile(r"at line ([0-9]+)")


def check_series(folder: Path, tag: str, *, since: str = HEAD) -> tuple[Finding, ...]:
    """What is wrong with a series, each finding with its next step.

    Args:
        folder: ``patches/TAG``.
        tag: The release.
        since: The revision of the repository whose pin counts as published.

    Raises:
        UsageError: ``since`` is no revision.
        HostError: a file cannot be opened, or git failed.
    """
    while True:
        identity = folder_identity(folder)
        try:
            findings = mended(_found(folder, tag, since), tag)
        except HostError:
            if folder_identity(folder) == identity:
                raise
            continue
        # Another series that took its place meanwhile would be half of what was read.
        if not findings or folder_identity(folder) == identity:
            return findings


def _found(folder: Path, tag: str, since: str) -> Iterator[Finding]:
    try:
        found = lint(folder)
    except FindingsError as error:
        yield from error.findings
        return
    yield from found
    try:
        series = Series.read(folder, tag)
    except FindingsError:
        return  # lint has told it
    told = {finding.file for finding in found}
    quiet = [patch for patch in series.patches if str(folder / patch.file) not in told]
    yield from (
        replace(finding, file=str(folder / finding.file)) for finding in lost_on_the_way(quiet)
    )
    yield from _pin(folder, series, since)


def _pin(folder: Path, series: Series, since: str) -> Iterator[Finding]:
    path = folder / PIN
    if path.is_symlink():
        yield Finding(str(path), None, "link", "the file is a symbolic link")
    if not path.is_file():
        yield from chain_findings(series, None)
        yield Finding(str(path), None, "no-pin", "the series has no pin: no verb uses it")
        return
    try:
        pin = Pin.read(path)
    except FindingsError as error:
        yield from chain_findings(series, None)
        yield from (_placed(finding, path) for finding in error.findings)
        return
    yield from chain_findings(series, pin)
    for finding in (*pin_findings(pin, series), *revision_findings(pin, folder, since)):
        yield _placed(finding, path)


def _placed(finding: Finding, path: Path) -> Finding:
    """The finding at the line of the key that it is about."""
    said = _TOML_LINE.search(finding.message)
    if said is not None:
        return replace(finding, line=int(said[1]))
    named = _KEY.search(finding.message)
    key = named[1].rpartition(".")[2] if named else "series_sha256"
    lines = path.read_bytes().split(b"\n")
    wanted = (f"{key} =".encode(), f"[{key}]".encode(), f'"{key}" ='.encode())
    return replace(
        finding,
        line=next((n for n, line in enumerate(lines, start=1) if line.startswith(wanted)), 1),
    )
