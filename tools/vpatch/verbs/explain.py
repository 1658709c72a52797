"""``vpatch explain``: from an error's text to the gate, the cause, the releases, the fix."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import RenderableType

from vpatch.errors import FindingError, UsageError
from vpatch.explain.entry import Match
from vpatch.explain.find import find, known_with
from vpatch.explain.of_gates import known_releases
from vpatch.explain.pattern import last_line
from vpatch.patches.repo import series_folder, series_tags
from vpatch.patches.series import Series
from vpatch.report import Report, lines, plain
from vpatch.tags import version_of

STDIN = "-"
_MOST = 1 << 20
_SHOWN = 200


def run(text: str, repo: Path | None) -> Report:
    """Explains a text.

    Args:
        text: A line, a traceback, a log; ``-``: standard input.
        repo: The folder that holds ``patches/``; without it the series' own texts are not known.

    Raises:
        UsageError: There is no text, or too much.
        FindingError: Nothing that is known has this text, or a series cannot be read.
    """
    given = _read() if text == STDIN else text
    if len(given) > _MOST:
        raise UsageError(
            f"the text is longer than {_MOST} characters",
            hint="Give the end of the log: tail -n 200 LOG | vpatch explain -",
            code="too-long",
        )
    said = last_line(given)
    if not said:
        raise UsageError(
            "there is no text to explain",
            hint="vpatch explain 'the last line of a traceback', or a log on stdin: "
            "tail -n 200 LOG | vpatch explain -",
        )
    matches = find(given, known_with(_series(repo)))
    if not matches:
        raise FindingError(
            f"no gate, no question of preflight and no refusal of a series says {_short(said)!r}",
            hint=f"It is a file: vpatch explain - < {shlex.quote(said)}"
            if _is_file(said)
            else "What your vLLM will do is told by vpatch check --installed python3, and what a "
            "drafter will do by vpatch preflight; the cause may stand further up: "
            "tail -n 200 LOG | vpatch explain -",
            code="unknown-error",
        )
    data = {"text": said, "matches": [match.as_dict() for match in matches]}
    return Report("explain", data, _text(matches))


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long, or no name at all
        return False


def _read() -> str:
    raw = sys.stdin.buffer.read(4 * _MOST + 1)
    return raw.decode("utf-8", "replace")


def _series(repo: Path | None) -> list[Series]:
    if repo is None:
        return []
    return [Series.read(series_folder(repo, tag), tag) for tag in series_tags(repo)]


def _text(matches: Sequence[Match]) -> RenderableType:
    first, rest = matches[0], matches[1:]
    told = list(_whole(first))
    if rest:
        told += ["", "It may also be:"]
        told += [line for match in rest for line in _brief(match)]
    return lines(*(plain(line) for line in told))


def _whole(match: Match) -> Iterator[str]:
    entry = match.entry
    yield f"{entry.source} {entry.name}"
    rows = (
        ("found", _short(match.line)),
        ("text", _short(entry.pattern.shown)),
        ("cause", f"perhaps: {entry.cause}" if entry.general else entry.cause),
        ("when", entry.when),
        (_releases_are(match), ", ".join(_spans(entry.releases, known_releases()))),
        ("patched", _patched(match)),
        ("helps", entry.remedy if entry.remedy != match.fix else ""),
        ("fix", match.fix),
    )
    width = max(len(name) for name, said in rows if said)
    for name, said in rows:
        if said:
            yield f"  {name.ljust(width)}  {said}"


def _brief(match: Match) -> Iterator[str]:
    entry = match.entry
    kind = " (only the kind of error is known)" if entry.general else ""
    yield f"  {entry.source} {entry.name}: {entry.cause}{kind}"
    yield f"    fix  {match.fix}"


def _releases_are(match: Match) -> str:
    return "said by" if match.entry.source == "series" else "unpatched"


def _spans(tags: Sequence[str], every: Sequence[str]) -> Iterator[str]:
    """Releases that follow each other, as one span."""
    order = sorted({*every, *tags}, key=version_of)
    wanted, run = set(tags), list[str]()
    for tag in [*order, ""]:
        if tag in wanted:
            run.append(tag)
        elif run:
            yield run[0] if len(run) == 1 else f"{run[0]} - {run[-1]}"
            run = []


def _patched(match: Match) -> str:
    entry = match.entry
    if entry.source == "series":
        return ""
    topic = f"by topic {entry.topic} in " if entry.topic else "by the series of "
    ours = f"{topic}{', '.join(match.patched)}" if match.patched else ""
    upstream = f"upstream since {entry.upstream}" if entry.upstream else ""
    return "; ".join(filter(None, (ours, upstream)))


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."
