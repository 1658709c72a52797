"""Python files, parsed in pieces: a class or function that many versions share is parsed once.

A file is cut in front of its top-level classes and functions, and a large class in front of its
methods. A cut inside a string or a bracket leaves a piece that does not parse: the whole is parsed
then, so that cutting never changes what is read.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from vpatch.garbage import uncollected

_DEFINES = re.compile(rb"(?:@|def |class |async def )")
_LONE_RETURN = re.compile(rb"\r(?!\n)")
_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=]", re.MULTILINE)
_METHOD_INDENT = b"    "
# What only the parser sees: around a class's methods, and behind a class without any.
AROUND = b"class _:\n"
BEHIND = b"    pass\n"


class Unreadable(ValueError):  # noqa: N818 - an answer, not a failure
    """The text is no Python that this Python reads; says why, and at which line."""

    def __init__(self, why: str, line: int) -> None:
        super().__init__(why)
        self.why = why
        self.line = line


@dataclass(frozen=True, eq=False)
class Piece:
    """A part of a file.

    Attributes:
        source: Its lines; what it is known by.
        first: Line of the file at which it starts, from 1.
        owner: The class that it is a part of, where that class was cut; else empty.
        head: It is the part with the class's own line.
        body: Its statements; their lines count from the piece's start (see ``line``).
        lead: Lines in front of it that only the parser saw.
    """

    source: bytes
    first: int
    owner: str
    head: bool
    body: tuple[ast.stmt, ...]
    lead: int

    def line(self, line: int) -> int:
        """The file's line for a line of a node."""
        return self.first + line - 1 - self.lead


@lru_cache(maxsize=1024)
def pieces(data: bytes) -> tuple[Piece, ...]:
    """A Python file in pieces.

    Raises:
        Unreadable: it does not parse.
    """
    with uncollected():
        return _pieces(data)


def _pieces(data: bytes) -> tuple[Piece, ...]:
    lines = data.split(b"\n")
    if _LONE_RETURN.search(data) or _COOKIE.search(b"\n".join(lines[:2])):
        return (_whole(data),)
    try:
        return tuple(_in_pieces(lines))
    except Unreadable:
        return (_whole(data),)


def _in_pieces(lines: list[bytes]) -> Iterator[Piece]:
    for start, end in _cuts(lines, 0, len(lines), b""):
        cuts = list(_cuts(lines, start, end, _METHOD_INDENT))
        name = _class_name(lines[start:end]) if cuts[1:] else ""
        if not name:
            yield _piece(lines, start, end)
            continue
        try:
            yield from [*_class_pieces(lines, cuts, name)]
        except Unreadable:
            yield _piece(lines, start, end)


def _class_pieces(lines: list[bytes], cuts: list[tuple[int, int]], name: str) -> Iterator[Piece]:
    yield _alone(_piece(lines, *cuts[0], owner=name, head=True))
    for start, end in cuts[1:-1]:
        yield _alone(_piece(lines, start, end, owner=name))
    # What stands behind the class belongs to its last piece.
    yield _piece(lines, *cuts[-1], owner=name)


def _alone(piece: Piece) -> Piece:
    """A piece with the class and nothing behind it: else the next cut is in no class any more."""
    if len(piece.body) != 1 or not isinstance(piece.body[0], ast.ClassDef):
        raise Unreadable("the class ends before its last method", 0)
    return piece


def _cuts(lines: list[bytes], start: int, end: int, indent: bytes) -> Iterator[tuple[int, int]]:
    """Ranges that start at a definition (with its decorators) of this indent."""
    width = len(indent)
    begin, decorated = start, False
    for number in range(start, end):
        line = lines[number]
        if line[:width] != indent or not _DEFINES.match(line, width):
            continue
        if not decorated and number > begin:
            yield begin, number
            begin = number
        decorated = line[width : width + 1] == b"@"
    yield begin, end


def _class_name(lines: Sequence[bytes]) -> str:
    for line in lines:
        if line.startswith(b"class "):
            found = re.match(rb"class\s+(\w+)", line)
            return found[1].decode("utf-8", "replace") if found else ""
        if line.startswith((b"def ", b"async def ")):
            return ""
    return ""


def _piece(
    lines: list[bytes], start: int, end: int, *, owner: str = "", head: bool = False
) -> Piece:
    source = b"\n".join(lines[start:end]) + b"\n"
    inside = bool(owner) and not head
    body = parsed(source, inside=inside, head=head)
    return Piece(source, start + 1, owner, head, body, 1 if inside else 0)


def _whole(data: bytes) -> Piece:
    return Piece(data, 1, "", False, parsed(data, inside=False, head=False), 0)


@lru_cache(maxsize=8192)
def parsed(source: bytes, *, inside: bool, head: bool) -> tuple[ast.stmt, ...]:
    """The statements of a piece: of one inside a class behind a line for that class.

    Raises:
        Unreadable: it does not parse.
    """
    text = (AROUND if inside else b"") + source + (BEHIND if head else b"")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in other people's strings
            return tuple(ast.parse(text).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = getattr(error, "msg", "") or str(error) or type(error).__name__
        raise Unreadable(why, getattr(error, "lineno", 0) or 0) from None
