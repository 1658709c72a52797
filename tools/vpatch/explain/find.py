"""Which known texts an error holds, the surest first, and what to do about each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vpatch.explain import of_gates, of_preflight, of_series, of_smoke
from vpatch.explain.entry import Entry, Match
from vpatch.explain.pattern import candidates, cleaned
from vpatch.patches.series import Series
from vpatch.tags import version_of

# As vLLM's own log says it: `vLLM API server version 0.17.1`, `LLM engine (v0.17.1)`.
_RELEASE = re.compile(r"(?:vLLM[\w ]{0,20} version |engine \(v)(\d+\.\d+\.\d+(?:\.post\d+)?)")
_SOURCES = ("gate", "series", "preflight", "smoke")


@dataclass(frozen=True)
class Known:
    """All that is known.

    Attributes:
        carriers: Topic -> the releases whose series has it, oldest first.
        tags: The releases that have a series.
    """

    entries: tuple[Entry, ...]
    carriers: Mapping[str, tuple[str, ...]]
    tags: tuple[str, ...]


def known_with(series: Sequence[Series]) -> Known:
    """Reads all that is known.

    Args:
        series: Those of the repository; without them their own refusals are not known.
    """
    gates = tuple(of_gates.entries())
    upstreams = {entry.pattern.parts for entry in gates}
    entries = (
        *gates,
        # A patch may touch a line that words an error of upstream's.
        *(one for one in of_series.entries(series) if one.pattern.parts not in upstreams),
        *of_preflight.entries(),
        *of_smoke.entries(),
    )
    return Known(entries, of_series.carriers(series), tuple(one.tag for one in series))


def find(text: str, known: Known) -> list[Match]:
    """Every known text that an error holds, the surest first.

    Args:
        text: A line, or a whole traceback or log; escape sequences do not count.
    """
    lines = list(candidates(text))
    release = release_in(text)
    best: dict[tuple[str, str, str], tuple[int, int, Match]] = {}
    for entry in known.entries:
        found = _best(entry, lines)
        if found is None:
            continue
        score, place, line = found
        # Of several texts of one question the surest is enough.
        key = (entry.source, entry.name, entry.topic)
        if key not in best or best[key][0] < score:
            best[key] = (score, place, _matched(entry, line, known, release))
    ranked = sorted(best.values(), key=lambda one: (-one[0], _rank(one[2].entry), one[1]))
    return _of_patched([match for _, _, match in ranked])


def release_in(text: str) -> str:
    """The release of vLLM that a log names; empty where it names none."""
    found = _RELEASE.search(cleaned(text))
    return f"v{found[1]}" if found else ""


def _of_patched(matches: list[Match]) -> list[Match]:
    """What the patched release itself says, no patched release mends."""
    own = {match.line: match.fix for match in matches if match.entry.source == "series"}
    return [
        replace(match, patched=(), fix=own[match.line])
        if match.line in own and match.entry.source == "preflight"
        else match
        for match in matches
    ]


def _best(entry: Entry, lines: Sequence[tuple[int, str]]) -> tuple[int, int, str] | None:
    """How sure, where, and in what an entry is found; a line alone before lines together."""
    found: tuple[int, int, str] | None = None
    for place, line in lines:
        if (found is None or entry.pattern.score(line) > found[0]) and entry.pattern.matches(line):
            found = (entry.pattern.score(line), place, line)
    return found


def _rank(entry: Entry) -> int:
    return _SOURCES.index(entry.source)


def _matched(entry: Entry, line: str, known: Known, release: str) -> Match:
    if entry.source == "smoke":  # what a release is known to do, its whole series mends
        patched = tuple(tag for tag in entry.releases if tag in known.tags)
    else:
        patched = known.carriers.get(entry.topic, ())
    return Match(entry, line, patched, _fix(entry, patched, release))


def _fix(entry: Entry, patched: Sequence[str], release: str) -> str:
    """One command, or what to change where a checkpoint or an option is at fault."""
    if entry.source == "series":
        tag = release if release in entry.releases else max(entry.releases, key=version_of)
        return f"vpatch preflight --target DIR --drafter DIR --tag {tag}"
    concerned = [tag for tag in patched if tag in entry.releases] or list(patched)
    if entry.remedy or not concerned:
        return entry.remedy or "vpatch check --installed python3"
    return f"vpatch build {release if release in patched else max(concerned, key=version_of)}"
