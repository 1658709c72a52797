"""What will happen: a verdict, the problem behind it, and what was looked at."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["works", "wrong-result", "error", "unknown"]
Word = Literal["works", "works-with", "wrong-result", "error", "unknown"]
When = Literal["config", "load", "first-step", "never"]

SPECULATIVE = "--speculative-config"
WHEN: Mapping[When, str] = {
    "config": "at the config, before weights are read",
    "load": "after the target's weights, while the drafter is loaded",
    "first-step": "at the first step (on a GPU: the profile run after loading)",
    "never": "never: it drafts from what it was not trained on",
}


@dataclass(frozen=True)
class Remedy:
    """What helps.

    Attributes:
        kind: An option of this release; a change of the checkpoint's config; another release.
        text: The option, the change or the release.
    """

    kind: Literal["option", "config", "release"]
    text: str


@dataclass(frozen=True)
class Problem:
    """Something that keeps a drafter from working as given.

    Attributes:
        check: A stable name: what was asked.
        effect: What comes of it.
        when: When it shows.
        why: One sentence.
        text: Of the error that a user gets: parts of it, in order.
        on_cpu: The same where a CPU's kernels say it otherwise.
        topic: Of the series that mends it.
    """

    check: str
    effect: Literal["wrong-result", "error"]
    when: When
    why: str
    text: tuple[str, ...] = ()
    on_cpu: tuple[str, ...] = ()
    remedy: Remedy | None = None
    topic: str | None = None

    @property
    def said(self) -> str:
        """The error's text, with dots where the release fills something in."""
        return " ... ".join(self.text)

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        found: dict[str, Any] = {
            "check": self.check,
            "effect": self.effect,
            "when": self.when,
            "why": self.why,
        }
        if self.text:
            found["text"] = list(self.text)
        if self.remedy is not None:
            found["remedy"] = {"kind": self.remedy.kind, "text": self.remedy.text}
        if self.topic is not None:
            found["topic"] = self.topic
        return found


@dataclass(frozen=True)
class Fact:
    """One thing that was looked at, and what was found."""

    name: str
    said: str


@dataclass(frozen=True)
class Verdict:
    """What will happen.

    Attributes:
        problems: In the order in which an engine would meet them; the first error is the one that
            a user gets.
        facts: What was looked at.
        notes: What is not certain, or worth a word.
        unknown: What could not be looked at: where nothing else is wrong, nobody knows.
    """

    problems: tuple[Problem, ...]
    facts: tuple[Fact, ...]
    notes: tuple[str, ...] = field(default=())
    unknown: tuple[str, ...] = field(default=())

    @property
    def first(self) -> Problem | None:
        """The problem that a user meets: the first error, else the first wrong result."""
        errors = [one for one in self.problems if one.effect == "error"]
        return next(iter(errors or self.problems), None)

    @property
    def as_given(self) -> Outcome:
        """What comes of the command as it was given."""
        if self.first is None:
            return "unknown" if self.unknown else "works"
        return self.first.effect

    @property
    def word(self) -> Word:
        """The same, or that an option of this release makes it work."""
        if self.first is None:
            return "unknown" if self.unknown else "works"
        if self._helped:
            return "unknown" if self.unknown else "works-with"
        return self.first.effect

    @property
    def _helped(self) -> bool:
        """Whether an option of this release mends each problem."""
        remedies = [one.remedy for one in self.problems]
        return bool(remedies) and all(
            remedy is not None and remedy.kind == "option" for remedy in remedies
        )

    @property
    def options(self) -> tuple[str, ...]:
        """The options that make it work, as far as that is known."""
        found = (one.remedy.text for one in self.problems if one.remedy is not None)
        return _together(dict.fromkeys(found)) if self._helped else ()


def _together(options: Iterable[str]) -> tuple[str, ...]:
    """A command line has one --speculative-config, or the last one counts."""
    values: dict[str, Any] = {}
    others = []
    for option in options:
        if option.startswith(SPECULATIVE):
            values |= json.loads(option.removeprefix(SPECULATIVE).strip(" '"))
        else:
            others.append(option)
    return tuple(([speculative(values)] if values else []) + others)


def speculative(values: Mapping[str, Any]) -> str:
    """A piece of the command line."""
    return f"{SPECULATIVE} '{json.dumps(values)}'"
