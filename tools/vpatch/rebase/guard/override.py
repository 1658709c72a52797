"""Does a method of the patch still override what it overrode?

A protocol that renames a method leaves the patch's one behind as code that nobody calls; nothing
conflicts, and nothing fails before it is too late.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator

from vpatch.gates.classes import Class, class_of
from vpatch.gates.modules import Function
from vpatch.rebase.guard.change import OVERRIDE_GONE, Doubt
from vpatch.rebase.guard.names import Used

_ALIKE = 0.6


def overrides_gone(of: Used) -> Iterator[Doubt]:
    """Methods that the patch adds or edits, whose base has another name or signature for them."""
    for key, line in _methods(of):
        owner, _, name = key.partition(".")
        old_owner = of.corners.key(owner)
        if owner not in of.now.classes or old_owner not in of.then.classes:
            continue
        then = class_of(of.old, of.then, old_owner)
        now = class_of(of.new, of.now, owner)
        why = _why(then, now, name) if then and now else ""
        if why:
            yield Doubt(OVERRIDE_GONE, key, line, f"{key} overrides nothing any more: {why}")


def _methods(of: Used) -> Iterator[tuple[str, int]]:
    """Methods of top-level classes that the patch touches in the result, and their lines."""
    result = of.corners.result
    for each in of.corners.made:
        key = of.corners.name(result, each).partition("#")[0].partition("@")[0]
        scope = result.by_key.get(key)
        owner, _, name = key.partition(".")
        is_method = owner and name and "." not in name and not name.startswith("__")
        if scope is not None and scope.kind == "function" and is_method:
            yield key, scope.start


def _why(then: Class, now: Class, name: str) -> str:
    old, new = _overridden(then, name), _overridden(now, name)
    if old is None:
        return ""
    of, method = old
    if new is None:
        return "" if now.all_foreign - then.all_foreign else _renamed(of, then, now, name)
    base, declared = new
    mine = now.methods.get(name)
    if mine is None or signature(declared) in (signature(method), signature(mine)):
        return ""
    return (
        f"{base.name}.{name}{signature(declared)} has another signature than "
        f"{of.name}.{name}{signature(method)} had"
    )


def _renamed(of: Class, then: Class, now: Class, name: str) -> str:
    old = {each for base in then.mro[1:] for each in (*base.methods, *base.values)}
    fresh = {
        each: base
        for base in reversed(now.mro[1:])
        for each in (*base.methods, *base.values)
        if each not in old
    }
    near = difflib.get_close_matches(name, fresh, n=1, cutoff=_ALIKE)
    said = f"{of.name} declared it, and no base of {now.name} does now"
    return f"{said}; {fresh[near[0]].name} has {near[0]} instead" if near else said


def _overridden(of: Class, name: str) -> tuple[Class, Function] | None:
    return next(((base, base.methods[name]) for base in of.mro[1:] if name in base.methods), None)


def signature(function: Function) -> str:
    """A function's parameters as callers see them: names, order, kinds, which may be left out."""
    given = function.args
    places = [*given.posonlyargs, *given.args]
    firsts = len(places) - len(given.defaults)
    parts = [f"{each.arg}{'=' if n >= firsts else ''}" for n, each in enumerate(places)]
    if given.posonlyargs:
        parts.insert(len(given.posonlyargs), "/")
    if given.vararg or given.kwonlyargs:
        parts.append(f"*{given.vararg.arg if given.vararg else ''}")
    parts += [
        f"{each.arg}{'=' if default is not None else ''}"
        for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    if given.kwarg:
        parts.append(f"**{given.kwarg.arg}")
    marks = sorted(ast.unparse(each) for each in function.decorator_list)
    marks = [mark for mark in marks if mark in {"classmethod", "property", "staticmethod"}]
    lead = "async " if isinstance(function, ast.AsyncFunctionDef) else ""
    return f"{lead}({', '.join(parts)})" + (f" as {' '.join(marks)}" if marks else "")
