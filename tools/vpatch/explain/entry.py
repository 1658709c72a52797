"""What is known of an error text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from vpatch.explain.pattern import Pattern

Source = Literal["gate", "preflight", "series", "smoke"]


@dataclass(frozen=True)
class Entry:
    """A known error text.

    Attributes:
        source: Whose text it is.
        name: The gate, preflight's question, the patch that words it, the smoke's check.
        cause: What it means, as one phrase.
        when: When it comes; may be empty.
        topic: Whose patches mend it; empty where none do.
        upstream: The first release of upstream that has it mended; may be empty.
        releases: Those that were seen to say it as they are; for a series: those that say it.
        remedy: What helps besides a patched release; may be empty.
        general: Only the kind of error is known: other code may say the same.
    """

    source: Source
    name: str
    pattern: Pattern
    cause: str
    when: str = ""
    topic: str = ""
    upstream: str = ""
    releases: tuple[str, ...] = ()
    remedy: str = ""
    general: bool = False


@dataclass(frozen=True)
class Match:
    """An entry whose text was found.

    Attributes:
        line: What it was found in.
        patched: The releases whose series has the topic, oldest first.
        fix: One command, or what to do.
    """

    entry: Entry
    line: str
    patched: tuple[str, ...]
    fix: str

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        entry = self.entry
        return {
            "source": entry.source,
            "name": entry.name,
            "text": entry.pattern.shown,
            "general": entry.general,
            "found_in": self.line,
            "cause": entry.cause,
            "when": entry.when or None,
            "releases": list(entry.releases),
            "topic": entry.topic or None,
            "patched": list(self.patched),
            "upstream": entry.upstream or None,
            "remedy": entry.remedy or None,
            "fix": self.fix,
        }
