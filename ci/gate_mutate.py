"""What a series adds to a release, by syntax tree, and mutants: each of it renamed or removed.

Definitions, attributes, calls, bases and table entries of the patched tree that the release as it
is does not have in the same scope. A mutant is the patched tree with one of them changed.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

_GONE = "_gone"
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Piece:
    """Something that a file's syntax tree has.

    Attributes:
        scope: The classes and functions around it: ``Class.method``.
        kind: ``def``, ``class``, ``attribute``, ``read``, ``call``, ``base``, ``entry``.
        text: What it is, as code.
        action: ``rename`` or ``remove``.
        start, end: The bytes of the file that change, and what they become.
        becomes: What they become.
        lines: Where it is used: an engine that runs none of these lines shows nothing; empty where
            it is used by what imports the module.
    """

    scope: str
    kind: str
    text: str
    action: str
    start: int
    end: int
    becomes: str
    lines: frozenset[int]

    @property
    def key(self) -> tuple[str, str, str]:
        """What is compared between trees."""
        return self.scope, self.kind, self.text


@dataclass(frozen=True)
class Mutant:
    """One file of a tree, changed in one place.

    Attributes:
        path: The file.
        piece: What was changed.
        data: The file then.
    """

    path: str
    piece: Piece
    data: bytes

    @property
    def name(self) -> str:
        """For people: the same for the same change."""
        piece = self.piece
        where = f"{self.path.removeprefix('vllm/')}:{piece.scope or '-'}"
        return f"{where} {piece.kind} {piece.text} {piece.action}"

    @property
    def key(self) -> str:
        """By its content."""
        return hashlib.sha256(self.path.encode() + b"\0" + self.data).hexdigest()[:16]


def mutants_of(path: str, before: bytes | None, after: bytes) -> list[Mutant]:
    """The mutants of one file.

    Args:
        path: Its path.
        before: The file of the release as it is; None where it has none.
        after: The patched one.
    """
    known = Counter(each.key for each in pieces_of(before)) if before is not None else Counter()
    found = []
    seen: Counter[tuple[str, str, str]] = Counter()
    for piece in pieces_of(after):
        seen[piece.key] += 1
        if seen[piece.key] != known[piece.key] + 1:
            continue  # the release has as many; or it is the same once more
        data = after[: piece.start] + piece.becomes.encode() + after[piece.end :]
        if _parses(data):
            found.append(Mutant(path, piece, data))
    return found


def _parses(data: bytes) -> bool:
    try:
        ast.parse(data)
    except SyntaxError:
        return False
    return True


def pieces_of(data: bytes) -> list[Piece]:
    """All pieces of a file, in order."""
    reader = _Reader(data)
    reader.body(reader.tree.body, "")
    return sorted(reader.found, key=lambda each: (each.start, each.end))


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.tree = ast.parse(data)
        self.found: list[Piece] = []
        self._starts = [0]
        for line in data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def body(self, nodes: list[ast.stmt], scope: str) -> None:
        for node in nodes:
            self.statement(node, scope)

    def statement(self, node: ast.stmt, scope: str) -> None:
        if isinstance(node, _SCOPES):
            self._definition(node, scope)
            return
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._take(scope, "call", node, ast.unparse(node), "remove", "pass")
            self._inside(node.value, scope, skip=node.value)
            return
        for name in _bound(node) if _is_table(scope, node) else ():
            self._rename(scope, "attribute", name, name.id, self._readers(name.id))
        for field in ast.iter_child_nodes(node):
            if isinstance(field, ast.stmt):
                self.statement(field, scope)
            elif isinstance(field, ast.ExceptHandler):
                self.body(field.body, scope)
            elif isinstance(field, ast.withitem):
                self._inside(field.context_expr, scope)
            elif isinstance(field, ast.expr) and field is not getattr(node, "annotation", None):
                self._inside(field, scope)
        if not scope:
            self._entries(node)

    def _definition(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, scope: str
    ) -> None:
        line = self.data.splitlines()[node.lineno - 1]
        start = self._starts[node.lineno - 1] + line.index(node.name.encode(), node.col_offset + 3)
        kind = "class" if isinstance(node, ast.ClassDef) else "def"
        body = frozenset(_code_of(node))
        self._add(scope, kind, node.name, "rename", (start, start + len(node.name)),
                  node.name + _GONE, body)  # fmt: skip
        inner = f"{scope}.{node.name}" if scope else node.name
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                self._base(inner, base, body)
        self.body(node.body, inner)

    def _base(self, scope: str, base: ast.expr, body: frozenset[int]) -> None:
        start = self._at(base.lineno, base.col_offset)
        end = self._at(base.end_lineno or 0, base.end_col_offset or 0)
        comma = re.compile(rb"\s*,").match(self.data, end)
        span = (start, comma.end() if comma else end)
        self._add(scope, "base", ast.unparse(base), "remove", span, "", body)

    def _inside(self, node: ast.expr, scope: str, skip: ast.AST | None = None) -> None:
        inner: set[ast.AST] = {skip.func} if isinstance(skip, ast.Call) else set()
        for each in ast.walk(node):
            if isinstance(each, ast.Call) and each is not skip:
                inner.add(each.func)
                self._call(each, scope)
            elif isinstance(each, ast.Attribute) and each not in inner:
                kind = "read" if isinstance(each.ctx, ast.Load) else "attribute"
                self._attribute(scope, kind, each)
            if isinstance(each, ast.Attribute):
                inner.add(each.value)  # of self.a.b only b

    def _call(self, node: ast.Call, scope: str) -> None:
        if isinstance(node.func, ast.Attribute):
            self._attribute(scope, "call", node.func)
        elif isinstance(node.func, ast.Name) and not hasattr(builtins, node.func.id):
            self._rename(scope, "call", node.func, ast.unparse(node.func))

    def _attribute(self, scope: str, kind: str, node: ast.Attribute) -> None:
        end = self._at(node.end_lineno or 0, node.end_col_offset or 0)
        lines = frozenset(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        self._add(scope, kind, ast.unparse(node), "rename", (end, end), _GONE, lines)

    def _rename(
        self, scope: str, kind: str, node: ast.Name, text: str, lines: frozenset[int] | None = None
    ) -> None:
        end = self._at(node.end_lineno or 0, node.end_col_offset or 0)
        own = frozenset((node.lineno,)) if lines is None else lines
        self._add(scope, kind, text, "rename", (end, end), _GONE, own)

    def _readers(self, name: str) -> frozenset[int]:
        """The lines inside functions that read a name."""
        functions = [e for e in ast.walk(self.tree) if isinstance(e, _SCOPES[:2])]
        return frozenset(
            each.lineno
            for function in functions
            for each in ast.walk(function)
            if (isinstance(each, ast.Name) and each.id == name)
            or (isinstance(each, ast.Attribute) and each.attr == name)
        )

    def _entries(self, node: ast.stmt) -> None:
        """What tables of a module hold: keys and keywords."""
        for each in ast.walk(node):
            if isinstance(each, ast.Dict):
                for key in each.keys:
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        self._take("", "entry", key, key.value, "rename", repr(key.value + _GONE),
                                   frozenset())  # fmt: skip
            elif isinstance(each, ast.keyword) and each.arg:
                start = self._at(each.lineno, each.col_offset)
                span = (start, start + len(each.arg))
                self._add("", "entry", each.arg, "rename", span, each.arg + _GONE, frozenset())

    def _take(
        self, scope: str, kind: str, node: ast.stmt | ast.expr, text: str, action: str,
        becomes: str, lines: frozenset[int] | None = None,
    ) -> None:  # fmt: skip
        span = (
            self._at(node.lineno, node.col_offset),
            self._at(node.end_lineno or 0, node.end_col_offset or 0),
        )
        own = frozenset(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        self._add(scope, kind, text, action, span, becomes, own if lines is None else lines)

    def _add(
        self, scope: str, kind: str, text: str, action: str, span: tuple[int, int], becomes: str,
        lines: frozenset[int],
    ) -> None:  # fmt: skip
        short = " ".join(text.split())
        self.found.append(Piece(scope, kind, short, action, *span, becomes, lines))

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column


def _code_of(node: ast.AST) -> Iterator[int]:
    """The lines that run when a function, or a method of a class, is called."""
    for each in node.body if isinstance(node, _SCOPES) else ():
        if isinstance(each, _SCOPES):
            yield from _code_of(each)
        elif not isinstance(node, ast.ClassDef):
            yield from range(each.lineno, (each.end_lineno or each.lineno) + 1)


def _bound(node: ast.stmt) -> Iterator[ast.Name]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    yield from (each for each in targets if isinstance(each, ast.Name))


def _is_table(scope: str, node: ast.stmt) -> bool:
    """Whether an assignment binds an attribute of a class or of a module."""
    last = scope.rpartition(".")[2]
    return isinstance(node, (ast.Assign, ast.AnnAssign)) and (not scope or last[:1].isupper())
