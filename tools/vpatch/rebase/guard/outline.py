"""The scopes of a file: which class, function or section each of its lines belongs to.

Python by its syntax tree, decorators included. Other languages by what a line looks like, as git
names the function of a hunk; Markdown by its headings; anything else is one scope.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise

from vpatch.patches.place import split_lines
from vpatch.rebase.guard.pieces import Unreadable, parsed, pieces

FILE = ""
Function = ast.FunctionDef | ast.AsyncFunctionDef
_PYTHON = (".py", ".pyi")
# Languages whose functions start in the first column.
_BRACES = (
    *(".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh", ".hpp", ".hxx", ".m", ".mm"),
    *(".go", ".rs", ".js", ".ts", ".tsx", ".jsx", ".php", ".pl", ".pm", ".sh", ".awk"),
)
_HEADINGS = (".md", ".markdown")
_STARTS = {
    _BRACES: re.compile(rb"(?![A-Za-z_]\w*:(?!:))[A-Za-z_$][^;]*[({][^;]*$"),
    _HEADINGS: re.compile(rb"#{1,6} "),
}
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


@dataclass(frozen=True)
class Scope:
    """A class, a function, a section.

    Attributes:
        key: Its dotted name in the file; a second one of the same name ends in ``#2``.
        kind: ``class``, ``function`` or ``section``.
        start, end: Its lines, from 1, decorators included.
        parent: Key of what it stands in; empty for the file.
    """

    key: str
    kind: str
    start: int
    end: int
    parent: str


@dataclass(frozen=True)
class Outline:
    """A file's lines, and whose they are.

    Attributes:
        lines: With their newlines.
        scopes: In the order of their lines, outer before inner; the file itself is none of them.
        python: It was read as Python.
    """

    lines: tuple[bytes, ...]
    scopes: tuple[Scope, ...]
    python: bool

    @cached_property
    def by_key(self) -> dict[str, Scope]:
        """The scopes by their keys."""
        return {scope.key: scope for scope in self.scopes}

    @cached_property
    def inner(self) -> list[str]:
        """The key of the innermost scope of each line."""
        keys = [FILE] * len(self.lines)
        for scope in self.scopes:
            keys[scope.start - 1 : scope.end] = [scope.key] * (scope.end - scope.start + 1)
        return keys[: len(self.lines)]

    @cached_property
    def own(self) -> dict[str, list[int]]:
        """The lines of each scope, from 1, without those of scopes inside it."""
        found: dict[str, list[int]] = {FILE: [], **{scope.key: [] for scope in self.scopes}}
        for number, key in enumerate(self.inner, start=1):
            found[key].append(number)
        return found

    @cached_property
    def texts(self) -> dict[str, list[bytes]]:
        """The own lines of each scope, blank ones left out."""
        found: dict[str, list[bytes]] = {key: [] for key in self.own}
        for key, line in zip(self.inner, self.lines, strict=True):
            if not line.isspace():
                found[key].append(line)
        return found

    def span(self, key: str) -> Sequence[bytes]:
        """All lines of a scope."""
        if not key:
            return self.lines
        scope = self.by_key.get(key)
        return self.lines[scope.start - 1 : scope.end] if scope else ()

    def at(self, line: int) -> str:
        """The key of the innermost scope of a line."""
        return self.inner[line - 1] if 0 < line <= len(self.inner) else FILE


def is_python(path: str) -> bool:
    """Whether a file is read as Python."""
    return path.endswith(_PYTHON)


def outline(path: str, data: bytes) -> Outline:
    """The scopes of a file."""
    ending = path[path.rfind(".") :].lower()
    kind = next((endings for endings in _STARTS if ending in endings), ())
    return _outline(data, is_python(path), kind)


@lru_cache(maxsize=512)
def _outline(data: bytes, python: bool, kind: tuple[str, ...]) -> Outline:
    lines = tuple(split_lines(data))
    if python:
        try:
            found = list(_scopes(data))
        except Unreadable:
            return Outline(lines, (), python=False)
        return Outline(lines, tuple(_numbered(found)), python=True)
    return Outline(lines, tuple(_numbered(_sections(lines, kind))) if kind else (), python=False)


def _scopes(data: bytes) -> Iterator[Scope]:
    """The scopes of a Python file, its cut classes whole again.

    Raises:
        Unreadable: it does not parse.
    """
    waiting: list[Scope] = []  # a cut class and what is in it: it ends where its last piece does
    for piece in pieces(data):
        ends, found = _of_piece(piece.source, piece.owner, piece.head, bool(piece.lead))
        here = [_shifted(each, piece.first - 1) for each in found]
        if piece.lead:
            waiting[0] = replace(waiting[0], end=ends + piece.first - 1)
            waiting += here
        elif piece.head:
            yield from waiting
            waiting = here
        else:
            yield from (*waiting, *here)
            waiting = []
    yield from waiting


def _shifted(of: Scope, by: int) -> Scope:
    return Scope(of.key, of.kind, of.start + by, of.end + by, of.parent)


@lru_cache(maxsize=8192)
def _of_piece(source: bytes, owner: str, head: bool, inside: bool) -> tuple[int, tuple[Scope, ...]]:
    """(where the class that it is inside of ends, its scopes), by lines of the piece."""
    body = parsed(source, inside=inside, head=head)
    if not inside:
        return 0, tuple(_below(body, FILE, 0))
    around, *behind = body
    end = (around.end_lineno or around.lineno) - 1
    methods = _below(getattr(around, "body", ()), owner, 1)
    return end, (*methods, *_below(behind, FILE, 1))


def _below(body: Sequence[ast.AST], parent: str, lead: int) -> Iterator[Scope]:
    waiting = list(reversed(body))  # a long chain of `elif` is as deep as it is long
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.ClassDef, *_FUNCTIONS)):
            key = f"{parent}.{_name(node)}" if parent else _name(node)
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            end = node.end_lineno or node.lineno
            yield Scope(key, kind, first - lead, end - lead, parent)
            yield from _below(node.body, key, lead)
        else:
            blocks = (getattr(node, field, None) for field in _BLOCKS)
            inside = [each for block in blocks if isinstance(block, list) for each in block]
            waiting += reversed(inside)


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _name(node: ast.ClassDef | Function) -> str:
    """Its name; of a property's setter and of an overload with what tells it apart."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Attribute) and isinstance(decorator.value, ast.Name):
            if decorator.value.id == node.name:
                return f"{node.name}@{decorator.attr}"
        elif isinstance(decorator, ast.Name) and decorator.id == "overload":
            return f"{node.name}@overload"
    return node.name


def _sections(lines: Sequence[bytes], kind: tuple[str, ...]) -> Iterator[Scope]:
    starts = [n for n, line in enumerate(lines, start=1) if _STARTS[kind].match(line.rstrip())]
    for start, following in pairwise([*starts, len(lines) + 1]):
        name = b" ".join(lines[start - 1].split()).decode("utf-8", "replace")
        yield Scope(name, "section", start, following - 1, FILE)


def _numbered(found: Iterable[Scope]) -> Iterator[Scope]:
    """Scopes of the same name told apart; what is inside them follows."""
    seen: dict[str, int] = {}
    named: dict[str, str] = {}  # the plain key of the innermost scope of a name -> its key
    for scope in found:
        parent = named.get(scope.parent, scope.parent)
        plain = f"{parent}{scope.key[len(scope.parent) :]}" if scope.parent else scope.key
        seen[plain] = seen.get(plain, 0) + 1
        key = plain if seen[plain] == 1 else f"{plain}#{seen[plain]}"
        named[scope.key] = key
        yield Scope(key, scope.kind, scope.start, scope.end, parent)
