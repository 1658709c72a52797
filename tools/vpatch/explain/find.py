"""Which known texts an error holds, the surest first, and what to do about each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from vpatch.explain import of_gates, of_preflight, of_series, of_smoke
from vpatch.explain.entry import Entry, Match
from vpatch.explain.pattern import candidates, cleaned
from vpatch.patches.series import Series
from vpatch.tags import version_of

# As vLLM's own log says it: `vLLM API server version 0.17.1`, `LLM engine (v0.17.1)`.
_RELEASE = re.compile(r"(?:vLLM[\w ]{0,20} version |engine \(v)(\d+\.\d+\.\d+(?:\.post\d+)?)")
_MOST_LOOSE = 100  # lines of a log's end
_Best = Callable[[Entry, Sequence[tuple[int, str]]], tuple[int, int, str] | None]
_SOURCES = ("gate", "series", "preflight", "smoke")
_ASKS = {"preflight": "vpatch preflight --target DIR --drafter DIR --installed python3"}


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
    last = max((place for place, _ in lines), default=0)
    ending = [one for one in lines if one[0] > last - _MOST_LOOSE]
    return _found(known, release, lines, _best) or _found(known, release, ending, _best_loosely)


def _found(
    known: Known, release: str, lines: Sequence[tuple[int, str]], best_of: _Best
) -> list[Match]:
    best: dict[tuple[str, str, str], tuple[int, int, Match]] = {}
    for entry in known.entries:
        found = best_of(entry, lines)
        if found is None:
            continue
        score, place, line = found
        # Of several texts of one question the surest is enough.
        key = (entry.source, entry.name, entry.topic)
        if key not in best or best[key][0] < score:
            best[key] = (score, place, _matched(entry, line, known, release))
    said = Counter((one.source, one.name, one.pattern.parts) for one in known.entries)

    def order(one: tuple[int, int, Match]) -> tuple[int, int, bool, int, int]:
        entry = one[2].entry
        unseen = entry.source == "gate" and not entry.releases
        # Of questions with one text come first the gate that releases were seen to fail, and the
        # question that more code words so.
        often = said[entry.source, entry.name, entry.pattern.parts]
        return -one[0], _rank(entry), unseen, -often, one[1]

    ranked = sorted(best.values(), key=order)
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


def _best_loosely(entry: Entry, lines: Sequence[tuple[int, str]]) -> tuple[int, int, str] | None:
    """The same, in texts that were cut or lost their quotes."""
    scores = [(entry.pattern.loosely(line), place, line) for place, line in lines]
    found = max(scores, key=lambda one: one[0], default=None)
    return found if found is not None and found[0] else None


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
        return entry.remedy or _ASKS.get(entry.source, "vpatch check --installed python3")
    return f"vpatch build {release if release in patched else max(concerned, key=version_of)}"
