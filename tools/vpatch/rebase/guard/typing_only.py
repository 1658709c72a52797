"""Names that the new tree binds for type checkers alone, and that a patch uses when it runs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from vpatch.gates.walk import walk
from vpatch.rebase.guard.change import NAME_GONE, Doubt
from vpatch.rebase.guard.names import Used
from vpatch.rebase.guard.pieces import Piece, pieces
from vpatch.rebase.guard.tables import table

_DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_GUARD = b"TYPE_CHECKING"


def typing_only(of: Used) -> Iterator[Doubt]:
    """What was bound for everybody behind the patch in the old series, and is not any more."""
    change = of.corners.change
    if _GUARD not in change.result:
        return
    lost = _for_checkers(change.result) - _for_checkers(change.after)
    if not lost:
        return
    for piece, node, line in of.nodes():
        if not (isinstance(node, ast.Name) and node.id in lost & table(piece).asked):
            continue
        if id(node) not in _annotations(piece):
            text = f"`{node.id}` is used, and imported for type checkers alone now"
            yield Doubt(NAME_GONE, of.scope(line), line, text)


def _for_checkers(data: bytes) -> frozenset[str]:
    """Names that a file imports below ``if TYPE_CHECKING`` and binds nowhere else."""
    imported: set[str] = set()
    bound: set[str] = set()
    for node in (each for piece in pieces(data) if not piece.lead for each in piece.body):
        if isinstance(node, ast.If) and _asks_for_checkers(node.test):
            imported.update(_names(node.body))
            bound.update(_names(node.orelse))
        else:
            bound.update(_names([node]))
    return frozenset(imported - bound)


def _asks_for_checkers(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return bool(name == _GUARD.decode())


def _names(body: Iterable[ast.stmt]) -> Iterator[str]:
    """The names that statements bind, and some that only look so."""
    for statement in body:
        if isinstance(statement, _DEFINED):
            yield statement.name
            continue
        for node in walk(statement):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                yield from (each.asname or each.name.partition(".")[0] for each in node.names)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, _DEFINED):
                yield node.name


def _annotations(piece: Piece) -> frozenset[int]:
    """The nodes that say a type: what they name need not be there at run time."""
    return frozenset(
        id(each)
        for body in piece.body
        for node in walk(body)
        for said in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if isinstance(said, ast.expr)
        for each in walk(said)
    )
