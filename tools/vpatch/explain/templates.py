"""Texts that code makes, as templates: fixed parts in order, gaps where something is filled in.

Read off syntax trees: the code that words an error is the only list of errors there is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product

GAP = "\0"
"""Stands where a value is filled in."""

_MOST = 24
_DEEPEST = 12
_PERCENT = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?[srdif]")


@dataclass(frozen=True)
class Scope:
    """What names stand for.

    Attributes:
        names: What is assigned to a name, all of it.
        functions: What a function returns, all of it, and in which scope.
    """

    names: Mapping[str, tuple[ast.expr, ...]] = field(default_factory=dict)
    functions: Mapping[str, tuple[tuple[ast.expr, ...], Scope]] = field(default_factory=dict)


def templates(node: ast.expr, scope: Scope, depth: int = 0) -> tuple[str, ...]:
    """Every text that an expression may make, with gaps."""
    return tuple(islice(dict.fromkeys(_every(node, scope, depth)), _MOST))


def _every(node: ast.expr, scope: Scope, depth: int) -> Iterator[str]:
    match node:
        case _ if depth >= _DEEPEST:
            yield GAP
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=values):
            yield from _joined([_piece(value, scope, depth) for value in values])
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from _joined([templates(side, scope, depth + 1) for side in (left, right)])
        case ast.Call():
            yield from _called(node, scope, depth)
        case _:
            choices = _choices(node, scope)
            for choice in choices:
                yield from templates(choice, scope, depth + 1)
            if not choices or isinstance(node, ast.BinOp):
                yield "" if choices else GAP


def _choices(node: ast.expr, scope: Scope) -> Sequence[ast.expr]:
    """What an expression may be instead; nothing where that is not known."""
    match node:
        case ast.IfExp(body=body, orelse=other):
            return (body, other)
        case ast.BoolOp(values=values):
            return values
        case ast.BinOp(left=left, op=ast.Mult()):
            return (left,)
        case ast.Name(id=name):
            return scope.names.get(name, ())
    return ()


def _called(node: ast.Call, scope: Scope, depth: int) -> Iterable[str]:
    match node.func:
        case ast.Name(id=name) if name in scope.functions:
            returns, inner = scope.functions[name]
            return [text for value in returns for text in templates(value, inner, depth + 1)]
        case ast.Attribute(value=ast.Dict(values=values), attr="get"):
            every = [*values, *node.args[1:]]
            return [text for value in every for text in templates(value, scope, depth + 1)]
    return (GAP,)


def _piece(value: ast.expr, scope: Scope, depth: int) -> tuple[str, ...]:
    if not isinstance(value, ast.FormattedValue):
        return templates(value, scope, depth + 1)
    plain = value.conversion == -1 and value.format_spec is None
    return templates(value.value, scope, depth + 1) if plain else (GAP,)


def _joined(pieces: list[tuple[str, ...]]) -> Iterator[str]:
    for number, each in enumerate(product(*pieces)):
        if number >= _MOST:
            return
        yield "".join(each)


def texts_in(node: ast.AST) -> Iterator[ast.expr]:
    """The outermost expressions below a node that make a text."""
    for child in ast.iter_child_nodes(node):
        joined = isinstance(child, ast.BinOp) and isinstance(child.op, ast.Add)
        if isinstance(child, ast.JoinedStr) or joined or _is_text(child):
            yield child  # type: ignore[misc] # an expression: mypy loses it in the or
        else:
            yield from texts_in(child)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def with_percents(template: str) -> str:
    """A logger's text: what ``%s`` stands for is filled in."""
    return _PERCENT.sub(GAP, template)


def scope_of(nodes: Iterable[ast.AST], outer: Scope | None = None) -> Scope:
    """What is assigned below some nodes, over what an outer scope has."""
    names: dict[str, tuple[ast.expr, ...]] = dict(outer.names) if outer else {}
    own: dict[str, tuple[ast.expr, ...]] = {}
    for node in nodes:
        for each in ast.walk(node):
            for name, value in (*_bound(each), *_in_turn(each, names)):
                own[name] = (*own.get(name, ()), value)
    return Scope({**names, **own}, outer.functions if outer else {})


def _bound(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _pair(target, value)
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.NamedExpr(target=ast.Name(id=name), value=value):
            yield name, value


def _in_turn(
    node: ast.AST, names: Mapping[str, tuple[ast.expr, ...]]
) -> Iterator[tuple[str, ast.expr]]:
    """What a loop's or a comprehension's variable is in turn, where that is written out."""
    if not isinstance(node, (ast.For, ast.comprehension)) or not isinstance(node.target, ast.Name):
        return
    every = names.get(node.iter.id, ()) if isinstance(node.iter, ast.Name) else (node.iter,)
    for each in every:
        if isinstance(each, (ast.Tuple, ast.List)):
            yield from ((node.target.id, value) for value in each.elts)


def _pair(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, other in zip(target.elts, value.elts, strict=False):
            yield from _pair(one, other)
