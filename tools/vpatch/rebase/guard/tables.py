"""What the pieces of a Python file bind, and what they ask for, as Python's compiler sees it."""

from __future__ import annotations

import ast
import builtins
import symtable
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from vpatch.gates.walk import walk
from vpatch.rebase.guard.pieces import AROUND, BEHIND, Piece, pieces

BUILTINS = frozenset(dir(builtins)) | {"__file__", "__path__", "__class__", "__annotations__"}
BUILTINS |= {"__module__", "__qualname__"}


@dataclass(frozen=True)
class Table:
    """The names of a piece.

    Attributes:
        bound: What it binds for the whole module.
        asked: What it asks the module for.
        class_bound, class_asked: The same of the body of the class that it is a part of: a name
            that is asked for there may be the class's.
    """

    bound: frozenset[str] = field(default_factory=frozenset)
    asked: frozenset[str] = field(default_factory=frozenset)
    class_bound: frozenset[str] = field(default_factory=frozenset)
    class_asked: frozenset[str] = field(default_factory=frozenset)


def table(piece: Piece) -> Table:
    """The names of a piece; none where Python finds them contradictory."""
    return _table(piece.source, bool(piece.lead), piece.head)


@lru_cache(maxsize=512)
def bound(data: bytes) -> frozenset[str]:
    """The names that a file binds for itself and its importers."""
    return frozenset(name for piece in pieces(data) for name in _bound(piece))


def _bound(piece: Piece) -> Iterable[str]:
    """Most pieces are definitions and imports: they tell their names without a symbol table."""
    if b"global " in piece.source:
        return table(piece).bound
    names: list[str] = []
    for number, node in enumerate(piece.body):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if not (piece.lead and number == 0):
                names.append(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names += [alias.asname or alias.name.partition(".")[0] for alias in node.names]
        elif not isinstance(node, ast.Expr):
            return table(piece).bound
    return names


def unbound(data: bytes, chosen: Iterable[Piece]) -> dict[str, Piece]:
    """Names that some pieces of a file ask for and nothing binds: name -> the first such piece."""
    if b"import *" in data:
        return {}
    known = bound(data) | BUILTINS
    found: dict[str, Piece] = {}
    for piece in chosen:
        names = table(piece)
        for name in (names.asked - known) | (names.class_asked - known - _of_class(data, piece)):
            found.setdefault(name, piece)
    return found


def complaint(piece: Piece) -> tuple[int, str] | None:
    """What the compiler says against a piece that parses: an argument twice, say; and the line."""
    text = _framed(piece.source, bool(piece.lead), piece.head)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about other people's lines
            compile(text, "file", "exec", dont_inherit=True)
    except SyntaxError as error:
        return piece.line(error.lineno or 1), error.msg
    except (ValueError, RecursionError, MemoryError):
        return None
    return None


def named_at(piece: Piece, name: str) -> int:
    """The line of the file at which a piece first asks for a name."""
    lines = [
        node.lineno
        for body in piece.body
        for node in walk(body)
        if isinstance(node, ast.Name) and node.id == name
    ]
    return piece.line(min(lines)) if lines else piece.first


def _of_class(data: bytes, piece: Piece) -> frozenset[str]:
    if not piece.owner:
        return frozenset()
    parts = (each for each in pieces(data) if each.owner == piece.owner)
    return frozenset(name for each in parts for name in table(each).class_bound)


@lru_cache(maxsize=8192)
def _table(source: bytes, inside: bool, head: bool) -> Table:
    try:
        top = _symbols(source, inside, head)
    except (SyntaxError, ValueError, RecursionError):
        return Table()
    inner = top.get_children()
    own = inner[0] if inner and (inside or head) and inner[0].get_type() == "class" else None
    asked, declared = _asked_below(inner, own)
    bound_here = {each.get_name() for each in top.get_symbols() if _binds(each)} - (
        {"_"} if inside else set()
    )
    asked |= {each.get_name() for each in top.get_symbols() if each.is_referenced()}
    class_bound: set[str] = set()
    class_asked: set[str] = set()
    if own is not None:
        class_bound = {each.get_name() for each in own.get_symbols() if _binds(each)}
        class_asked = {each.get_name() for each in own.get_symbols() if _leads_out(each)}
    return Table(
        frozenset(bound_here | declared),
        frozenset(asked - bound_here),
        frozenset(class_bound),
        frozenset(class_asked - class_bound),
    )


def _asked_below(
    tables: Iterable[symtable.SymbolTable], own: symtable.SymbolTable | None
) -> tuple[set[str], set[str]]:
    """(what they ask the module for, what they bind in it by `global`)."""
    asked: set[str] = set()
    declared: set[str] = set()
    for each in tables:
        for symbol in each.get_symbols():
            if symbol.is_declared_global() and symbol.is_assigned():
                declared.add(symbol.get_name())
            elif each is not own and _leads_out(symbol):
                asked.add(symbol.get_name())
        below = _asked_below(each.get_children(), None)
        asked |= below[0]
        declared |= below[1]
    return asked, declared


def _leads_out(symbol: symtable.Symbol) -> bool:
    return symbol.is_referenced() and symbol.is_global()


def _binds(symbol: symtable.Symbol) -> bool:
    return symbol.is_assigned() or symbol.is_imported()


def _symbols(source: bytes, inside: bool, head: bool) -> symtable.SymbolTable:
    return symtable.symtable(_framed(source, inside, head), "file", "exec")


def _framed(source: bytes, inside: bool, head: bool) -> str:
    """A piece as a file of its own."""
    text = (AROUND if inside else b"") + source + (BEHIND if head else b"")
    return text.decode("utf-8", "replace")


def fresh_pieces(new: bytes, old: bytes) -> Iterator[Piece]:
    """The pieces of a file that another version of it does not have."""
    known = {(piece.source, piece.owner) for piece in pieces(old)} if old else set()
    return (piece for piece in pieces(new) if (piece.source, piece.owner) not in known)
