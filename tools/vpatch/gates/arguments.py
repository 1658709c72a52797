"""Do a call's arguments fit what it calls?"""

from __future__ import annotations

import ast

from vpatch.gates.classes import make_class
from vpatch.gates.modules import Defined, Function, Program


def misfit(call: ast.Call, function: Function, *, bound: bool = True) -> str:
    """Why arguments do not fit; empty where they do, or where that cannot be said."""
    decorators = [ast.unparse(each) for each in function.decorator_list]
    if any(each not in {"classmethod", "override"} for each in decorators):
        return ""
    given = function.args
    places = [each.arg for each in [*given.posonlyargs, *given.args]][1 if bound else 0 :]
    stars = any(isinstance(each, ast.Starred) for each in call.args)
    named = {each.arg for each in call.keywords}
    if stars or None in named:
        return ""
    if len(call.args) > len(places) and given.vararg is None:
        return (
            f"{function.name}() takes {len(places)} positional arguments but {len(call.args)} "
            "were given"
        )
    allowed = {*places, *(each.arg for each in given.kwonlyargs)}
    extra = sorted(str(name) for name in named - allowed)
    if extra and given.kwarg is None:
        return f"{function.name}() got an unexpected keyword argument '{extra[0]}'"
    needed = places[len(call.args) : len(places) - len(given.defaults)]
    needed += [
        each.arg
        for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
        if default is None
    ]
    missing = [name for name in needed if name not in named]
    return f"{function.name}() missing 1 required argument: '{missing[0]}'" if missing else ""


def misfit_of(program: Program, target: object, call: ast.Call) -> str:
    """The same, of what a name stands for."""
    if not isinstance(target, Defined):
        return ""
    if isinstance(target.node, Function):
        return misfit(call, target.node, bound=False)
    if isinstance(target.node, ast.ClassDef) and not target.node.decorator_list:
        of = make_class(program, target.module, target.node)
        found = of.method("__init__")
        if found is not None and not (of.is_opaque or of.is_protocol):
            return misfit(call, found[1])
    return ""
