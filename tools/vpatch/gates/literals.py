"""Expressions that make containers and texts."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

from vpatch.gates.expressions import Expressions
from vpatch.gates.values import UNKNOWN, ClassValue, Foreign, Obj, Tensor, Unknown, Value, show_repr


def _constant(_run: Expressions, node: ast.Constant, _names: dict[str, Value]) -> Value:
    return node.value


def _elements(run: Expressions, node: Any, names: dict[str, Value]) -> list[Value] | None:
    found: list[Value] = []
    for each in node.elts:
        if not isinstance(each, ast.Starred):
            found.append(run.expression(each, names))
            continue
        items = run.items(run.expression(each.value, names))
        if items is None:
            return None
        found += items
    return found


def _list(run: Expressions, node: ast.List, names: dict[str, Value]) -> Value:
    found = _elements(run, node, names)
    return UNKNOWN if found is None else found


def _tuple(run: Expressions, node: ast.Tuple, names: dict[str, Value]) -> Value:
    found = _elements(run, node, names)
    return UNKNOWN if found is None else tuple(found)


def _set(run: Expressions, node: ast.Set, names: dict[str, Value]) -> Value:
    found = _elements(run, node, names)
    return UNKNOWN if found is None else _hashed(found)


def _hashed(found: list[Value]) -> Value:
    try:
        return set(found)
    except TypeError:
        return UNKNOWN


def _dict(run: Expressions, node: ast.Dict, names: dict[str, Value]) -> Value:
    made: dict[Value, Value] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        worth = run.expression(value, names)
        if key is not None:
            name = run.expression(key, names)
            if isinstance(name, (str, int, tuple, Foreign)):
                made[name] = worth
        elif isinstance(worth, dict):
            made.update(worth)
        else:
            return UNKNOWN
    return made


def _text(run: Expressions, node: ast.JoinedStr, names: dict[str, Value]) -> Value:
    parts = []
    for each in node.values:
        if isinstance(each, ast.FormattedValue):
            value = run.expression(each.value, names)
            parts.append(show_repr(value) if each.conversion == ord("r") else run.text(value))
        elif isinstance(each, ast.Constant):
            parts.append(str(each.value))
    return "".join(parts)


def _item(run: Expressions, node: ast.Subscript, names: dict[str, Value]) -> Value:
    owner = run.expression(node.value, names)
    if isinstance(owner, (ClassValue, Foreign)):
        return owner  # tuple[int, ...]
    if isinstance(node.slice, ast.Slice):
        return _slice(run, owner, node.slice, names)
    key = run.expression(node.slice, names)
    if isinstance(owner, Tensor):
        return owner
    if isinstance(owner, Obj):
        getter = run.attribute_or(owner, "__getitem__", None)
        return UNKNOWN if getter is None else run.call(getter, [key], {})
    if owner is None:
        raise run.throw("TypeError", "'NoneType' object is not subscriptable")
    if isinstance(key, Unknown) or not isinstance(owner, (str, list, tuple, dict)):
        return UNKNOWN
    try:
        return owner[key]
    except (KeyError, IndexError, TypeError) as error:
        raise run.throw(type(error).__name__, str(error)) from error


def _slice(run: Expressions, owner: Value, node: ast.Slice, names: dict[str, Value]) -> Value:
    ends = [
        None if each is None else run.expression(each, names)
        for each in (node.lower, node.upper, node.step)
    ]
    if isinstance(owner, (str, list, tuple)) and all(e is None or type(e) is int for e in ends):
        return owner[slice(*ends)]
    return owner if isinstance(owner, Tensor) else UNKNOWN


def _comprehension(run: Expressions, node: Any, names: dict[str, Value]) -> Value:
    inner = dict(names)
    found: list[Value] = []
    for ready in _rounds(run, node.generators, inner):
        if not ready:
            return UNKNOWN
        if isinstance(node, ast.DictComp):
            key = run.expression(node.key, inner)
            found.append((key, run.expression(node.value, inner)))
        else:
            found.append(run.expression(node.elt, inner))
    if isinstance(node, ast.DictComp):
        return dict(found) if all(isinstance(k, (str, int, tuple)) for k, _ in found) else UNKNOWN
    return _hashed(found) if isinstance(node, ast.SetComp) else found


def _rounds(
    run: Expressions, generators: list[ast.comprehension], names: dict[str, Value]
) -> Iterator[bool]:
    """Binds the names of each round; False where it cannot be known what they are."""
    if not generators:
        yield True
        return
    first, *rest = generators
    items = run.items(run.expression(first.iter, names))
    if items is None:
        yield False
        return
    for item in items:
        run.store(first.target, item, names)
        truths = [run.known_truth(each, names) for each in first.ifs]
        if None in truths:
            yield False
        elif all(truths):
            yield from _rounds(run, rest, names)


LITERALS: dict[type[ast.expr], Callable[..., Value]] = {
    ast.Constant: _constant,
    ast.List: _list,
    ast.Tuple: _tuple,
    ast.Set: _set,
    ast.Dict: _dict,
    ast.JoinedStr: _text,
    ast.Subscript: _item,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.DictComp: _comprehension,
    ast.GeneratorExp: _comprehension,
}
