"""Conflict markers: a merged file taken apart at them, and what of them is left in a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vpatch.patches.place import split_lines

_OURS, _BASE, _MIDDLE, _THEIRS = (b"<<<<<<<", b"|||||||", b"=======", b">>>>>>>")
_ORDER = (_OURS, _BASE, _MIDDLE, _THEIRS)
_MARKER = re.compile(rb"(?:<{7}|\|{7}|>{7})(?: .*)?|={7}")


@dataclass(frozen=True)
class Clash:
    """Lines that both sides changed.

    Attributes:
        ours, base, theirs: The lines of the new tree, of the old series before the patch, and
            after it.
        line: Of the marked file, at which the first marker stands.
        end: The same of the last one.
    """

    ours: bytes
    base: bytes
    theirs: bytes
    line: int = 0
    end: int = 0

    @property
    def sides(self) -> tuple[bytes, bytes, bytes]:
        """Its lines on each side: what it is known by."""
        return self.base, self.ours, self.theirs


def taken_apart(merged: bytes) -> tuple[bytes | Clash, ...] | None:
    """A file with markers in diff3 style, as the lines that merged and those that clash in turn.

    Returns:
        Lines, clash, lines, ..., lines; None where text that looks like a marker makes it
        ambiguous.
    """
    found: list[bytes | Clash] = []
    texts: list[list[bytes]] = [[]]
    start = 0
    for number, line in enumerate(split_lines(merged), start=1):
        # A heading's underline looks like the marker in the middle, which comes third.
        underline = line.startswith(_MIDDLE) and len(texts) < len(_ORDER) - 1
        if underline or not is_marker(line):
            texts[-1].append(line)
            continue
        if not line.startswith(_ORDER[len(texts) - 1]):
            return None
        if len(texts) == 1:
            start = number
        texts.append([])
        if len(texts) > len(_ORDER):
            common, ours, base, theirs = (b"".join(text) for text in texts[:-1])
            found += [common, Clash(ours, base, theirs, start, number)]
            texts = [[]]
    return (*found, b"".join(texts[0])) if len(texts) == 1 else None


def is_marker(line: bytes) -> bool:
    """Whether a line is one that git writes around a conflict."""
    return _MARKER.fullmatch(line.rstrip(b"\r\n")) is not None


def clashes(merged: bytes) -> tuple[Clash, ...]:
    """What clashes in a file with markers."""
    parts = taken_apart(merged) or ()
    return tuple(part for part in parts if isinstance(part, Clash))


def put_together(parts: Iterable[bytes | Clash], texts: Sequence[bytes]) -> bytes:
    """The file with each clash replaced by a text."""
    left = iter(texts)
    return b"".join(next(left) if isinstance(part, Clash) else part for part in parts)


def with_theirs(merged: bytes, sides: Iterable[bytes]) -> bytes | None:
    """A file with markers as it is with the patch's lines where both sides changed the same ones.

    Args:
        merged: What the sides became, in diff3 style.

    Returns:
        None where nobody can tell from the markers alone: a side has some itself, or ends without
        a newline, which markers bring.
    """
    if any(b"<" * 7 in side or (side and not side.endswith(b"\n")) for side in sides):
        return None
    parts = taken_apart(merged)
    if parts is None:
        return None
    return put_together(parts, [part.theirs for part in parts if isinstance(part, Clash)])


def settled(parts: Sequence[bytes | Clash], result: bytes) -> tuple[bytes, ...] | None:
    """What stands in a resolved file in the place of each clash.

    Returns:
        None where the file was edited elsewhere too.
    """
    common = [part for part in parts if isinstance(part, bytes)]
    if len(common) == 1:
        return () if result == common[0] else None
    if not result.startswith(common[0]) or not result.endswith(common[-1]):
        return None
    position, texts = len(common[0]), []
    for part in common[1:-1]:
        end = _line_start(result, part, position) if part else -1
        if end < 0:
            return None
        texts.append(result[position:end])
        position = end + len(part)
    last = len(result) - len(common[-1])
    if last < position or (common[-1] and not _starts_line(result, last)):
        return None
    return (*texts, result[position:last])


def _line_start(text: bytes, part: bytes, start: int) -> int:
    place = text.find(part, start)
    while place >= 0 and not _starts_line(text, place):
        place = text.find(part, place + 1)
    return place


def _starts_line(text: bytes, place: int) -> bool:
    return place == 0 or text[place - 1 : place] == b"\n"


def left_markers(text: bytes, sides: Iterable[bytes]) -> Iterator[tuple[int, str]]:
    """Markers that stand in a file and in none of the files that it was merged from.

    Returns:
        Each with its line, from 1.
    """
    known = {line.rstrip(b"\r\n") for side in sides for line in side.split(b"\n")}
    for number, line in enumerate(text.split(b"\n"), start=1):
        bare = line.rstrip(b"\r")
        if is_marker(bare) and bare not in known:
            yield number, bare.decode("utf-8", "replace")
