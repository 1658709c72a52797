"""``vpatch lint``: the form of series."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import RenderableType

from vpatch.findings import Finding, FindingsError
from vpatch.patches.check import check_series
from vpatch.patches.fix import fixed
from vpatch.patches.mend import FIXABLE
from vpatch.patches.pin import PIN, Pin
from vpatch.patches.repo import existing_series, series_tags
from vpatch.patches.swap import replacing
from vpatch.rebase.resolutions import Resolutions
from vpatch.report import Report, lines, plain
from vpatch.tags import parse_tag
from vpatch.verbs.errors import told_finding


def run(repo: Path, tags: Sequence[str], *, since: str, fix: bool = False) -> Report:
    """Checks the named releases, or all that have a series and what is stored of conflicts.

    Args:
        since: The revision of the repository whose pins count as published.
        fix: Repair first what has one right answer.

    Raises:
        UsageError: not a tag, no such series, or no such revision.
        FindingError: somebody else changed a series while it was repaired.
        HostError: a file cannot be opened or written, or git failed.
    """
    names = [parse_tag(tag) for tag in tags] or series_tags(repo)
    folders = [(existing_series(repo, tag), tag) for tag in names]
    done = [line for folder, _ in folders for line in _fix(folder)] if fix else []
    findings = [
        finding for folder, tag in folders for finding in check_series(folder, tag, since=since)
    ]
    if not tags:
        findings += Resolutions.read(repo).findings
    findings = _by_hand(findings) if fix else findings
    return _report({"tags": names}, findings, done if fix else None, ", ".join(names))


def run_folder(folder: Path, *, since: str, fix: bool = False) -> Report:
    """Checks one series wherever it lies, of the release that its pin names.

    Args:
        folder: As ``vpatch rebase --out`` writes it.
        since: As of ``run``; a folder that is in no git repository has no published pin.
        fix: As of ``run``.

    Raises:
        As ``run``.
    """
    tag = _tag_of(folder)
    done = _fix(folder) if fix else []
    findings = [_elsewhere(one, folder, tag) for one in check_series(folder, tag, since=since)]
    findings = _by_hand(findings) if fix else findings
    about = {"tags": [tag], "series": str(folder)}
    return _report(about, findings, done if fix else None, str(folder))


def _tag_of(folder: Path) -> str:
    """The release in a folder's pin; the folder's name where it has none that can be read."""
    if not (folder / PIN).is_file():
        return folder.name
    try:
        return Pin.read(folder / PIN).tag
    except FindingsError:
        return folder.name  # lint says what is wrong with it


def _elsewhere(finding: Finding, folder: Path, tag: str) -> Finding:
    """The next step for a folder that is not in its place, where other verbs do not see it."""
    mend = finding.mend.replace(
        f"vpatch lint --fix {tag}", f"vpatch lint --fix --series {shlex.quote(str(folder))}"
    )
    if re.search("vpatch (?!lint )", mend):
        mend += f" For that, put the folder into its place: patches/{tag}."
    return replace(finding, mend=mend)


def _report(
    about: Mapping[str, object], findings: Sequence[Finding], fixed: list[str] | None, name: str
) -> Report:
    """What was found, and what was repaired; None where that was not asked."""
    return Report(
        "lint",
        {
            **about,
            **({} if fixed is None else {"fixed": fixed}),
            "findings": [finding.as_dict() for finding in findings],
        },
        lines(*(plain(f"fixed: {line}") for line in fixed or ()), _text(name, findings)),
        exit_code=1 if findings else 0,
    )


def _by_hand(findings: Iterable[Finding]) -> list[Finding]:
    """What --fix has left is not to be sent to --fix again."""
    left = "It has no one right answer: mend it by hand, then vpatch pin."
    return [replace(one, mend=left) if one.code in FIXABLE else one for one in findings]


def _fix(folder: Path) -> list[str]:
    """Repairs a series; a sentence for each repair."""
    with replacing(folder) as replacement:
        try:
            fixes = fixed(replacement.before)
        except UnicodeDecodeError:
            return []  # lint says what is wrong with it
        if fixes.done:
            replacement.write(fixes.files, ours=lambda path: path in fixes.read)
    return [f"{folder.name}: {line}" for line in fixes.done]


def _text(name: str, findings: Sequence[Finding]) -> RenderableType:
    if not findings:
        return plain(f"{name or 'no series'}: nothing found")
    told = (plain(text) for finding in findings for text in told_finding(finding))
    return lines(*told)
