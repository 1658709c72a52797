"""Of which class an object is, where its file says so: how it was made, or how it is annotated."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from vpatch.gates.classes import Class
from vpatch.gates.modules import Function, Module
from vpatch.gates.walk import walk

Told = tuple[Module, ast.expr]
"""An expression that names a class, and the module that it stands in."""


def of_name(name: str, around: Iterable[Function], module: Module) -> Told | None:
    """What the functions around a line say of a name; None where they say nothing, or too much."""
    for node in reversed([*around]):
        found = list(_bindings(node, name))
        if found:
            kind = _kind(found[0], node) if len(found) == 1 else None
            return (module, kind) if kind is not None else None
    return None


def of_attribute(name: str, owner: Class) -> Told | None:
    """The same of an attribute of ``self``."""
    found = [
        (each.module, method, node)
        for each in owner.mro
        for method in each.methods.values()
        for node in _assigned(method, name)
    ]
    if len(found) != 1:
        return None
    module, method, node = found[0]
    kind = _kind(node, method)
    return (module, kind) if kind is not None else None


def _bindings(function: Function, name: str) -> Iterator[ast.AST]:
    """What binds a name in a function: its arguments, and what is assigned to it."""
    yield from (each for each in _arguments(function) if each.arg == name)
    for node in walk(function):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            yield next((each for each in walk(function) if _is_of(each, node)), node)


def _is_of(node: ast.AST, target: ast.expr) -> bool:
    if isinstance(node, ast.Assign):
        return len(node.targets) == 1 and node.targets[0] is target
    return isinstance(node, ast.AnnAssign) and node.target is target


def _assigned(method: Function, name: str) -> Iterator[ast.AST]:
    for node in walk(method):
        if not (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)):
            continue
        if node.attr == name and isinstance(node.value, ast.Name) and node.value.id == "self":
            yield next((each for each in walk(method) if _is_of(each, node)), node)


def _kind(node: ast.AST, function: Function) -> ast.expr | None:
    """The expression that names the class of what a binding binds."""
    if isinstance(node, (ast.arg, ast.AnnAssign)) and node.annotation is not None:
        return _named(node.annotation)
    value = node.value if isinstance(node, ast.Assign) else None
    if isinstance(value, ast.Call):
        return value.func
    if isinstance(value, ast.Name):  # an argument, kept
        bound = list(_bindings(function, value.id))
        return _kind(bound[0], function) if len(bound) == 1 and bound[0] is not node else None
    return None


def _named(annotation: ast.expr) -> ast.expr | None:
    """The class of an annotation, ``None`` left out; None where there are several."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return _named(ast.parse(annotation.value, mode="eval").body)
        except (SyntaxError, ValueError):
            return None
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        sides = [each for each in (annotation.left, annotation.right) if not _is_none(each)]
        return _named(sides[0]) if len(sides) == 1 else None
    return annotation if isinstance(annotation, (ast.Name, ast.Attribute)) else None


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _arguments(function: Function) -> list[ast.arg]:
    given = function.args
    return [*given.posonlyargs, *given.args, *given.kwonlyargs]
