"""Failures that nobody listed: names, attributes and arguments that are not there.

Asked of the modules that a start with a drafter goes through: what Python would only find out when
the line runs, most often after the weights have loaded.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass

from vpatch.gates.arguments import misfit, misfit_of
from vpatch.gates.classes import NN_MODULE, Class
from vpatch.gates.gate import Evidence, Found, Gate, Subject, When
from vpatch.gates.modules import SCOPE, Function, Imported, Module, Program, imports_of
from vpatch.gates.walk import walk
from vpatch.gates.way import bound_names, classes, functions, modules

_IN_WORD = re.compile(rb"\w")
_BUILTINS = frozenset(dir(builtins)) | {"__file__", "__path__", "__class__"}


@dataclass(frozen=True)
class _Wrong:
    evidence: Evidence
    error: str


def _imported(subject: Subject) -> Found:
    """Imports of the tree's own names, and names that no scope binds."""
    return _told(
        [
            wrong
            for module in modules(subject)
            for wrong in (*_unreadable(module), *_imports(subject.program, module),
                          *_unbound(subject, module))
        ],
        "after load",
    )  # fmt: skip


def _unreadable(module: Module) -> Iterator[_Wrong]:
    if module.error:
        yield _Wrong(Evidence(module.path, 1, module.error), f"SyntaxError: {module.error}")


def _imports(program: Program, module: Module) -> Iterator[_Wrong]:
    for node in module.statements:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from _absent(program, module, node)
        if not isinstance(node, ast.ImportFrom):
            continue
        for alias in node.names:
            imported = module.imports.get(alias.asname or alias.name)
            if imported is None or imported.name is None or _is_there(program, imported):
                continue
            text = f"cannot import name '{imported.name}' from '{imported.module}'"
            yield _Wrong(Evidence(module.path, node.lineno, text), f"ImportError: {text}")


def _absent(
    program: Program, module: Module, node: ast.Import | ast.ImportFrom
) -> Iterator[_Wrong]:
    """Modules that are not there; in a ``try`` or under a condition they may be missing."""
    if node not in module.body.body:
        return
    named = (each.module for each in dict(imports_of([node], module.package)).values())
    whole = (alias.name for alias in node.names)
    for dotted in whole if isinstance(node, ast.Import) else dict.fromkeys(named):
        if dotted.startswith(SCOPE) and not program.tree.has_module(dotted):
            text = f"No module named 'vllm.{dotted.removeprefix('vllm.')}'"
            place = Evidence(module.path, node.lineno, text)
            yield _Wrong(place, f"ModuleNotFoundError: {text}")


def _is_there(program: Program, imported: Imported) -> bool:
    # A file that holds the word is not parsed for it: most do, and parsing is what takes long.
    path = imported.module.replace(".", "/")
    for each in (f"{path}.py", f"{path}/__init__.py"):
        data = program.tree.read(each) if imported.module.startswith("vllm") else None
        if data is None or program.is_parsed(imported.module):
            continue
        if _defines(data, str(imported.name).encode()):
            return True
    return program.find(imported) is not None


def _defines(data: bytes, name: bytes) -> bool:
    """Whether a class, a function or a value of this name begins a line."""
    if b"\n%s = " % name in data:
        return True
    for kind in (b"\nclass ", b"\ndef ", b"\nasync def "):
        at = data.find(kind + name)
        while at >= 0:
            end = at + len(kind) + len(name)
            if not _IN_WORD.match(data, end):
                return True
            at = data.find(kind + name, end)
    return False


def _unbound(subject: Subject, module: Module) -> Iterator[_Wrong]:
    if "*" in module.imports:
        return
    bound = set(_BUILTINS) | set(module.imports) | set(module.assigned)
    bound |= set(module.classes) | set(module.functions)
    if "annotations" not in module.imports:  # of __future__: else they are not looked at
        bound -= module.only_for_types
    for function in functions(subject, module):
        own = bound_names(subject, function)
        below = walk(function)
        if {each.id for each in below if isinstance(each, ast.Name)} - own <= bound:
            continue  # most of them: nothing else has to be looked at
        outside = {each for one in _outside(function) for each in walk(one)}
        yield from _unbound_in(module, [each for each in below if each not in outside], bound | own)
    of_classes = {e for of in module.classes.values() for e in _bound_at(of.body)}
    for node in _at_import(module):
        below = walk(node)
        own = {e.id for e in below if isinstance(e, ast.Name) and isinstance(e.ctx, ast.Store)}
        own |= {e.arg for e in below if isinstance(e, ast.arg)}
        yield from _unbound_in(module, below, bound | own | of_classes)


def _unbound_in(module: Module, nodes: list[ast.AST], bound: set[str]) -> Iterator[_Wrong]:
    # What is said of a variable of a function is not looked at.
    idle = {e for n in nodes if isinstance(n, ast.AnnAssign) for e in walk(n.annotation)}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id not in bound and node not in idle:
            text = f"name '{node.id}' is not defined"
            yield _Wrong(Evidence(module.path, node.lineno, text), f"NameError: {text}")


def _bound_at(body: list[ast.stmt]) -> Iterator[str]:
    """The names that a class's body binds."""
    for node in body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (e.id for t in targets for e in walk(t) if isinstance(e, ast.Name))
        elif isinstance(node, (Function, ast.ClassDef)):
            yield node.name


def _at_import(module: Module) -> Iterator[ast.expr]:
    """What a module runs when it is imported, in classes too: values, not annotations."""
    inside = [each for of in module.classes.values() for each in of.body]
    for node in (*module.statements, *inside):
        if isinstance(node, (ast.ClassDef, Function)):
            yield from _outside(node)
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Expr)) and node.value is not None:
            yield node.value


def _outside(node: ast.ClassDef | Function) -> Iterator[ast.expr]:
    """What of a definition is run where it stands."""
    yield from node.decorator_list
    if isinstance(node, ast.ClassDef):
        yield from node.bases
    else:
        yield from node.args.defaults
        yield from (each for each in node.args.kw_defaults if each is not None)


def _attributes(subject: Subject) -> Found:
    """``self.name`` where no class of the order has it, and calls whose arguments do not fit."""
    found: list[_Wrong] = []
    on_the_way = {module.dotted: set(functions(subject, module)) for module in modules(subject)}
    for of in classes(subject):
        if of.is_opaque or _is_wrapped(of):
            continue
        known = _known_attributes(of)
        for owner in of.mro:
            read = on_the_way.get(owner.module.dotted, set())
            for method in owner.methods.values():
                if method in read:
                    found += _in_method(of, owner, method, known)
    return _told(found, "after load")


def _is_wrapped(of: Class) -> bool:
    """Whether what makes an instance is decorated: that may set attributes too."""
    return any(
        each.methods["__init__"].decorator_list for each in of.mro if "__init__" in each.methods
    )


def _known_attributes(of: Class) -> frozenset[str]:
    known = {name for each in of.mro for name in (*each.methods, *each.values, *each.assigned)}
    return frozenset(known | NN_MODULE | set(dir(object)))


def _in_method(
    of: Class, owner: Class, method: Function, known: frozenset[str]
) -> Iterator[_Wrong]:
    arguments = [*method.args.posonlyargs, *method.args.args]
    static = any("staticmethod" in ast.unparse(each) for each in method.decorator_list)
    if not arguments or static or "*" in known:
        return
    own = arguments[0].arg
    of_class = method.name == "__new__"  # what it calls of its class gets the instance by hand
    asked = set(_asked_first(method, own))
    for node in walk(method):
        if isinstance(node, ast.Attribute) and _is(node.value, own):
            if node.attr not in known | asked and not node.attr.startswith("__"):
                text = f"'{of.name}' object has no attribute '{node.attr}'"
                place = Evidence(owner.module.path, node.lineno, f"self.{node.attr}")
                yield _Wrong(place, f"AttributeError: {text}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            target = of.method(node.func.attr) if _is(node.func.value, own) else None
            problem = misfit(node, target[1], bound=not of_class) if target else ""
            if problem:
                place = Evidence(owner.module.path, node.lineno, f"self.{node.func.attr}(...)")
                yield _Wrong(place, f"TypeError: {problem}")


def _asked_first(method: Function, own: str) -> Iterator[str]:
    """Attributes that the method asks for with hasattr or getattr."""
    for node in walk(method):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            texts = [a.value for a in node.args if isinstance(a, ast.Constant)]
            if node.func.id in {"hasattr", "getattr", "setattr"} and _is(node.args[0], own):
                yield from (text for text in texts if isinstance(text, str))


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _arguments(subject: Subject) -> Found:
    """Calls of functions and classes of the tree, by name, whose arguments do not fit."""
    found: list[_Wrong] = []
    program = subject.program
    for module in modules(subject):
        for function in functions(subject, module):
            local = bound_names(subject, function)
            for call in walk(function):
                if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
                    continue
                imported = module.imports.get(call.func.id)
                if call.func.id in local or (imported and not program.is_parsed(imported.module)):
                    continue
                problem = misfit_of(program, program.resolve(module, call.func.id), call)
                if problem:
                    place = Evidence(module.path, call.lineno, f"{call.func.id}(...)")
                    found.append(_Wrong(place, f"TypeError: {problem}"))
    return _told(found, "after load")


def _told(found: list[_Wrong], when: When) -> Found:
    if not found:
        return Found("pass")
    unique = list(dict.fromkeys(found))
    evidence = tuple(each.evidence for each in unique)
    more = f"and {len(unique) - 1} more" if unique[1:] else ""
    return Found("fail", evidence, unique[0].error, when, more)


GATES = (
    Gate(
        name="names",
        asks="every name on the way is bound, every import is there",
        group="code",
        topic="",
        upstream="",
        check=_imported,
    ),
    Gate(
        name="attributes",
        asks="every attribute that a class reads of itself is set by someone",
        group="code",
        topic="",
        upstream="",
        check=_attributes,
    ),
    Gate(
        name="arguments",
        asks="every call on the way fits what it calls",
        group="code",
        topic="",
        upstream="",
        check=_arguments,
    ),
)
