"""Is everything there that a start goes through, and is it what it looks like?

Every other gate reads these parts. Where one of them is missing, cannot be imported or is changed
after it is made, no other gate can tell what a start will do: this one is red.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from vpatch.gates.classes import Class, class_of
from vpatch.gates.engine import TARGET
from vpatch.gates.gate import Evidence, Found, Gate, Subject, When
from vpatch.gates.modules import Function, Module, Program
from vpatch.gates.registry import MODELS, MissingPart, registered
from vpatch.gates.steps import RUNNERS
from vpatch.gates.values import TooMuch
from vpatch.gates.way import classes, modules

_READ = (f"{MODELS}.kimi_k25", TARGET)
_ESSENTIAL = (
    ("vllm.config.speculative", "SpeculativeConfig"),
    ("vllm.config.vllm", "VllmConfig"),
    ("vllm.config.model", "ModelConfig"),
    ("vllm.v1.spec_decode.eagle", "EagleProposer"),
)
_CHANGES = ("setattr", "delattr")


@dataclass(frozen=True)
class _Wrong:
    """What is wrong: the error that a user gets, or what nobody can tell."""

    evidence: Evidence
    error: str = ""
    note: str = ""


def _whole(subject: Subject) -> Found:
    found = next(_wrongs(subject), None)
    if found is None:
        return Found("pass")
    when: When = "config" if found.error else "never"
    return Found("fail", (found.evidence,), found.error, when, found.note)


def _wrongs(subject: Subject) -> Iterator[_Wrong]:
    program = subject.program
    yield from _target(program)
    for dotted, name in (*_ESSENTIAL, (RUNNERS[subject.runner], "GPUModelRunner")):
        error, module = _missing(program, dotted, name)
        if error:
            path = module.path if module else dotted.replace(".", "/") + ".py"
            yield _Wrong(Evidence(path, 1, error), error)
    with suppress(MissingPart, TooMuch):
        on_the_way = modules(subject)
        made = {id(each.node): each for of in classes(subject) for each in of.mro}
        for module in on_the_way:
            yield from _stopped(module)
            own = [of for of in made.values() if of.module is module]
            yield from _changed(module, own)


def _target(program: Program) -> Iterator[_Wrong]:
    """The target's architecture, and the class that the gates read in its place."""
    registry = Evidence(f"{MODELS.replace('.', '/')}/registry.py", 1, f"no {TARGET}")
    place = registered(program).get(TARGET)
    if place is None:
        named = f"Model architectures ['{TARGET}'] are not supported for now."
        yield _Wrong(registry, f"ValueError: {named}")
        return
    dotted = place[0] if place[0].startswith("vllm.") else f"{MODELS}.{place[0]}"
    error, module = _missing(program, dotted, place[1])
    if error:
        told = f"ValueError: Model architectures ['{TARGET}'] failed to be inspected."
        path = module.path if module else registry.file
        yield _Wrong(Evidence(path, 1, error), told, error)
    elif (dotted, place[1]) != _READ:
        note = f"{TARGET} is {dotted}.{place[1]} here, which no gate reads"
        yield _Wrong(Evidence(registry.file, 1, place[1]), note=note)


def _missing(program: Program, dotted: str, name: str) -> tuple[str, Module | None]:
    """Why a class cannot be had; empty where it can."""
    module = program.module(dotted)
    if module is None:
        inside = dotted.removeprefix("vllm.")
        return f"ModuleNotFoundError: No module named 'vllm.{inside}'", None
    if module.error:
        return f"SyntaxError: {module.error}", module
    if class_of(program, module, name) is None:
        return f"ImportError: cannot import name '{name}' from '{dotted}'", module
    return "", module


def _stopped(module: Module) -> Iterator[_Wrong]:
    """A module that raises when it is imported, whatever comes."""
    for node in module.body.body:
        fails = isinstance(node, ast.Assert) and _is_false(node.test)
        if isinstance(node, ast.Raise) or fails:
            kind = ast.unparse(node)[:80]
            place = Evidence(module.path, node.lineno, kind)
            yield _Wrong(place, f"{_raised(node)}: at the import of {module.dotted}")


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def _raised(node: ast.stmt) -> str:
    if not isinstance(node, ast.Raise):
        return "AssertionError"
    made = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return ast.unparse(made) if made is not None else "RuntimeError"


def _changed(module: Module, made: Iterable[Class]) -> Iterator[_Wrong]:
    """Classes that are other ones once their module is imported."""
    lines = {of.name: of.node.lineno for of in made}
    twice: dict[str, int] = {}
    for node in module.statements:
        for name in _touched(node):
            if name in lines and node.lineno > lines[name]:
                yield _told(module, node, f"{name} is changed after it is made")
        if isinstance(node, ast.ClassDef) and node.name in lines:
            twice[node.name] = twice.get(node.name, 0) + 1
            if twice[node.name] > 1:
                yield _told(module, node, f"{node.name} is defined twice")


def _told(module: Module, node: ast.stmt, what: str) -> _Wrong:
    text = ast.unparse(node).split("\n", 1)[0][:80]
    note = f"{what}: which one a start gets, no gate can tell"
    return _Wrong(Evidence(module.path, node.lineno, text), note=note)


def _touched(node: ast.stmt) -> Iterator[str]:
    """The names whose value or attributes a statement of a module changes."""
    if isinstance(node, (ast.Assign, ast.Delete)):
        targets = node.targets
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        targets = [node.target]
    elif isinstance(node, Function):
        yield node.name
        return
    else:
        yield from _by_call(node)
        return
    for target in targets:
        owner = target.value if isinstance(target, ast.Attribute) else target
        if isinstance(owner, ast.Name):
            yield owner.id


def _by_call(node: ast.stmt) -> Iterator[str]:
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.args:
        first = call.args[0]
        if call.func.id in _CHANGES and isinstance(first, ast.Name):
            yield first.id


GATES = (
    Gate(
        name="parts",
        asks="the parts that a start goes through are there, and are what they look like",
        group="start",
        topic="",
        upstream="",
        check=_whole,
    ),
)
