"""A known text: its fixed parts, found in order; and the error texts that somebody pastes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from vpatch.explain.templates import GAP

_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, the cursor
    r"|\x1b[PX^_].*?(?:\x1b\\|$)"  # DCS and its like, with what they carry
    r"|\x1b[ -/]*[0-~]?",
    re.DOTALL,
)
_PREFIX = re.compile(
    r"^(?:\([\w .:-]*pid=\d+\)\s*)?"
    r"(?:(?:ERROR|WARNING|INFO|CRITICAL) [\d-]+ [\d:.,]+ \[[^\]]{1,80}\]\s?)?"
)
_KIND = re.compile(r"^\s*(?:[\w.]+(?:Error|Exception|Warning): |Value error, )")
_STRONG = 12
_LINES = 3
_LEAST = 0.2
_DOTS = re.compile(r"\.{3,}|…")
_QUOTES = str.maketrans("", "", "'\"`\u2018\u2019\u201c\u201d\u00b4")
_SQUARE = re.compile(r"\[(?:Previous line repeated|rank)[^\]]*\]:? ?")


@dataclass(frozen=True)
class Pattern:
    """Fixed parts of a text, in order.

    Attributes:
        parts: Between two of them something is filled in.
        expression: A regular expression in their place.
        template: What is shown of such a one.
    """

    parts: tuple[str, ...]
    expression: str = ""
    template: str = ""

    @classmethod
    def of(cls, *texts: str) -> Pattern:
        """Of templates that follow each other, with anything between them.

        The exception's kind is left out where the rest is enough: pydantic words it otherwise.
        """
        parts = [_even(part) for text in texts for part in text.split(GAP)]
        whole = cls(tuple(part for part in parts if part.strip()))
        bare = cls(tuple(part for part in (_KIND.sub("", p) for p in whole.parts) if part.strip()))
        if bare.weight >= _STRONG:
            return bare
        if bare.weight:
            return whole
        template = GAP.join(texts)
        return cls((), _whole_message(template), template.replace(GAP, "..."))

    @cached_property
    def weight(self) -> int:
        """How many letters and digits are fixed: the more, the surer a match is."""
        fixed = "".join(self.parts) or re.sub(r"\(\?\w+\)|\\.|[^\w]", "", self.expression)
        return sum(char.isalnum() for char in fixed)

    def score(self, line: str) -> int:
        """How sure a match is; one that is the whole message is surer than a piece of it."""
        whole = len(self.parts) == 1 and _KIND.sub("", line).strip() == self.parts[0].strip()
        return self.weight + _STRONG * whole

    @property
    def shown(self) -> str:
        """The text, with dots where something is filled in."""
        return self.template or self.expression or " ... ".join(part.strip() for part in self.parts)

    def matches(self, line: str) -> bool:
        """Whether a text holds it. A short one has to be all that the text says."""
        if not self.weight:
            return False
        if self.expression:
            return re.search(self.expression, line) is not None
        if self.weight < _STRONG and _KIND.sub("", line).strip() != "".join(self.parts).strip():
            return False
        place = 0
        for part in self.parts:
            place = line.find(part, place)
            if place < 0:
                return False
            place += len(part)
        return True

    def loosely(self, line: str) -> int:
        """How much of it stands in a text that was cut with dots, or lost its quotes; 0: not it.

        What an ellipsis swallowed counts for nothing, and nothing but an ellipsis swallows.
        """
        parts = [_even(part.translate(_QUOTES)) for part in self.parts]
        found = _aligned(parts, _DOTS.split(_even(line.translate(_QUOTES))))
        return found if found >= max(_STRONG, self.weight * _LEAST) else 0


def _aligned(parts: Sequence[str], pieces: Sequence[str]) -> int:
    """Letters and digits of parts that stand in pieces, in order; 0 where one contradicts."""
    number, place, letters = 0, 0, 0
    for part in parts:
        at = pieces[number].find(part, place)
        if at >= 0:
            place, kept = at + len(part), len(part)
            letters += sum(char.isalnum() for char in part)
            continue
        if number + 1 == len(pieces):
            return 0
        head, tail = _cut(part, pieces[number][place:]), 0
        number, place = number + 1, 0
        if part in pieces[number]:
            head, place = len(part), pieces[number].find(part) + len(part)
        elif kept := _rest(part[head:], pieces[number]):
            tail, place = kept, len(pieces[number]) - len(pieces[number].lstrip()) + kept
        told = part[:head] + part[len(part) - tail :]
        letters += sum(char.isalnum() for char in told)
    return letters


def _cut(part: str, piece: str) -> int:
    """How many characters a part begins with before an ellipsis."""
    ends = piece.rstrip()
    return next((n for n in range(len(part), 0, -1) if ends.endswith(part[:n].rstrip())), 0)


def _rest(part: str, piece: str) -> int:
    """How many characters a part ends with behind an ellipsis."""
    begins = piece.lstrip()
    fits = (n for n in range(len(part), 0, -1) if begins.startswith(part[-n:].lstrip()))
    return next((len(part[-n:].lstrip()) for n in fits), 0)


def cleaned(text: str) -> str:
    """A text without what a terminal would obey."""
    plain = _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return "".join(char for char in plain if char in "\n\t" or char.isprintable())


def candidates(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a text, each alone and with those behind it: a message may be folded.

    Yields:
        The number of the line, from 0, and the text.
    """
    lines = [_even(_SQUARE.sub("", _PREFIX.sub("", line))) for line in cleaned(text).split("\n")]
    for number, line in enumerate(lines):
        if line.strip():
            yield number, line.strip()
    for length in range(2, _LINES + 1):
        for number in range(len(lines) - length + 1):
            folded = [line.strip() for line in lines[number : number + length]]
            if all(folded):
                yield number, " ".join(folded)


def last_line(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in cleaned(text).split("\n") if line.strip()]
    return lines[-1] if lines else ""


def _whole_message(template: str) -> str:
    """An expression for a text of which little is fixed: it has to be the whole message."""
    if not template.strip(f"{GAP} '"):
        return ""
    parts = (re.escape(_even(part)) for part in template.split(GAP))
    return rf"(?:^|\s){'.+'.join(parts)}$"


def _even(text: str) -> str:
    return re.sub(r"\s+", " ", text)
