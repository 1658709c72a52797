"""What every torch.nn.Module has, and what a class has to do to be one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vpatch.gates.classes import Class
from vpatch.gates.gate import Evidence, Found, Gate, Subject
from vpatch.gates.modules import Function
from vpatch.gates.walk import walk
from vpatch.gates.way import classes

MODULE = "torch.nn.Module"


def _disciplined(subject: Subject) -> Found:
    """Layers are modules, and call Module.__init__ before they set one."""
    wrong: list[tuple[Evidence, str]] = []
    for of in classes(subject):
        if not of.is_opaque and not of.is_protocol:
            wrong += _wrong_with(of)
    if not wrong:
        return Found("pass")
    evidence = tuple(place for place, _ in wrong)
    return Found("fail", evidence, wrong[0][1], "after load")


def _wrong_with(of: Class) -> Iterator[tuple[Evidence, str]]:
    own = of.methods.get("__init__")
    is_module = MODULE in of.all_foreign
    if is_module and own is not None and not _calls_init(own):
        place = Evidence(of.module.path, own.lineno, f"{of.name}.__init__ calls no other __init__")
        yield place, "AttributeError: cannot assign module before Module.__init__() call"
    if not is_module and own is not None and "forward" in of.methods:
        place = Evidence(of.module.path, of.node.lineno, f"class {of.name} is no {MODULE}")
        yield place, f"TypeError: '{of.name}' object is not callable"


def _calls_init(method: Function) -> bool:
    return any(
        isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and each.func.attr == "__init__"
        for each in walk(method)
    )


GATES = (
    Gate(
        name="modules",
        asks="what has a forward is a torch module, and is made as one",
        group="code",
        topic="",
        upstream="",
        check=_disciplined,
    ),
)
