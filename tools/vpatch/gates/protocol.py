"""Failures that nobody listed: what the classes of a start offer, against what is asked of them.

Methods that nobody calls and no base has; protocol methods that no runner calls; calls of runners
that no class answers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from vpatch.gates.classes import NN_MODULE, Class
from vpatch.gates.gate import Evidence, Found, Gate, Subject
from vpatch.gates.modules import Function, Module
from vpatch.gates.registry import MODELS
from vpatch.gates.walk import walk
from vpatch.gates.way import ABOUT, asking_modules, below, target_classes

# In this order: runners and speculators call most of them.
_READ = (
    ("vllm/v1/worker/", "vllm/v1/spec_decode/"),
    ("vllm/config/", "vllm/model_executor/models/"),
    ("vllm/models/",),
    ("vllm/v1/",),
)
_OFFERING = (
    ("vllm/model_executor/models/",),
    ("vllm/v1/worker/", "vllm/v1/spec_decode/"),
    ("vllm/models/",),
)
# How runners and proposers call the target, and what they make of it.
_TARGETS = frozenset(
    ("model", "target_model", "eagle3_model", "target_language_model", "language_model")
)
_PROTOCOLS = ("SupportsEagle", "SupportsEagle3", "SupportsEagleBase", "EagleModelMixin")
# Of wrappers around a model: CUDAGraphWrapper.
_OF_WRAPPERS = frozenset(["unwrap"])


def _dead(subject: Subject) -> Found:
    """Public methods of the target that no base declares, and that nothing calls."""
    lonely: list[tuple[Class, str]] = []
    for of in target_classes(subject):
        for name in of.methods:
            declared = any(each.has(name) for each in of.mro[1:])
            if not (name.startswith("_") or declared) and any(part in name for part in ABOUT):
                lonely.append((of, name))
    names = {name for _, name in lonely}
    called = _called(subject, names)
    evidence = tuple(
        Evidence(of.module.path, of.methods[name].lineno, f"{of.name}.{name}")
        for of, name in lonely
        if name not in called
    )
    if not evidence:
        return Found("pass")
    names = {each.text.rpartition(".")[2] for each in evidence}
    note = f"{', '.join(sorted(names))}: no base declares it and no runner calls it"
    return Found("fail", evidence, "", "never", note)


def _called(subject: Subject, names: set[str]) -> set[str]:
    """Those of some names that are called, outside of methods of the same name."""
    if not names:
        return set()
    pattern = re.compile(rb"[.\"'](" + b"|".join(n.encode() for n in sorted(names)) + rb")\b")
    found: set[str] = set()
    for folders in _READ:
        for path in below(subject, folders) if found != names else ():
            found |= _called_in(subject, path, names - found, pattern)
    return found


def _called_in(
    subject: Subject, path: str, names: set[str], pattern: re.Pattern[bytes]
) -> set[str]:
    data = subject.program.tree.read(path) or b""
    if not any(name.encode() in data for name in names):
        return set()
    hits = [
        (each[1].decode(), data.count(b"\n", 0, each.start()) + 1)
        for each in pattern.finditer(data)
    ]
    hits = [(name, line) for name, line in hits if name in names]
    module = subject.program.at(path) if hits else None
    return _outside(module, hits) if module is not None else set()


def _outside(module: Module, hits: list[tuple[str, int]]) -> set[str]:
    """Those names that stand in code, in no function of the same name."""
    found: set[str] = set()
    for name, line in hits:
        around = _function_at(module, line)
        below = walk(around) if around is not None else walk(module.body)
        used = any(
            (isinstance(each, ast.Attribute) and each.attr == name)
            or (isinstance(each, ast.Constant) and each.value == name)
            for each in below
        )
        if used and (around is None or around.name != name):
            found.add(name)
    return found


def _function_at(module: Module, line: int) -> Function | None:
    every = [*module.functions.values()]
    for of in module.classes.values():
        every += [each for each in of.body if isinstance(each, Function)]
    return next((e for e in every if e.lineno <= line <= (e.end_lineno or e.lineno)), None)


def _unanswered(subject: Subject) -> Found:
    """What runners call on a model, and no class of the tree defines."""
    asked: dict[str, Evidence] = {}
    for module in asking_modules(subject):
        for call, name in _model_calls(module):
            asked.setdefault(name, Evidence(module.path, call.lineno, f"model.{name}()"))
    unknown = _undefined(subject, set(asked))
    evidence = tuple(place for name, place in sorted(asked.items()) if name in unknown)
    if not evidence:
        return Found("pass")
    first = evidence[0].text.removeprefix("model.").removesuffix("()")
    error = f"AttributeError: '{target_classes(subject)[0].name}' object has no attribute '{first}'"
    return Found("fail", evidence, error, "after load", "no class of the tree has it")


def _model_calls(module: Module) -> Iterator[tuple[ast.Call, str]]:
    for node in _interesting(module):
        for call in walk(node):
            function = call.func if isinstance(call, ast.Call) else None
            if isinstance(call, ast.Call) and isinstance(function, ast.Attribute):
                owner = function.value
                last = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
                if last in _TARGETS and not function.attr.startswith("__"):
                    yield call, function.attr


def _interesting(module: Module) -> Iterator[Function]:
    """The functions of a module that have to do with drafters."""
    for of in module.classes.values():
        yield from (each for each in of.body if isinstance(each, Function) and _about(each))
    yield from (each for each in module.functions.values() if _about(each))


def _about(node: Function) -> bool:
    names = (getattr(each, "attr", getattr(each, "id", "")) for each in walk(node))
    return any(part in name for name in names if name for part in ABOUT)


def _undefined(subject: Subject, names: set[str]) -> set[str]:
    """Those of some names that no class of models, runners or torch's Module has."""
    unknown = names - NN_MODULE - _OF_WRAPPERS
    for of in target_classes(subject):
        unknown = {name for name in unknown if not of.has(name)}
    tree = subject.program.tree
    for folders in _OFFERING:
        for path in below(subject, folders) if unknown else ():
            data = tree.read(path) or b""
            unknown = {name for name in unknown if not _has(data, name.encode())}
    return unknown


def _has(data: bytes, name: bytes) -> bool:
    return (
        name in data
        and re.search(
            rb"(?:def|class) +%s\b|^ +(?:self\.)?%s *[:=]" % (name, name), data, re.MULTILINE
        )
        is not None
    )


def _uncalled(subject: Subject) -> Found:
    """Methods of the protocol that no runner calls."""
    program = subject.program
    interfaces = program.module(f"{MODELS}.interfaces")
    names: dict[str, Evidence] = {}
    for protocol in _PROTOCOLS:
        node = interfaces.classes.get(protocol) if interfaces else None
        for each in node.body if node is not None else ():
            if isinstance(each, ast.FunctionDef) and interfaces is not None:
                place = Evidence(interfaces.path, each.lineno, f"{protocol}.{each.name}")
                names.setdefault(each.name, place)
    called = _called(subject, set(names))
    evidence = tuple(place for name, place in names.items() if name not in called)
    if not evidence:
        return Found("pass")
    note = f"{', '.join(each.text for each in evidence)}: asked of models, called by nobody"
    return Found("fail", evidence, "", "never", note)


GATES = (
    Gate(
        name="dead-methods",
        asks="every method that the target offers a drafter is declared or called",
        group="code",
        topic="aux-layers",
        upstream="",
        check=_dead,
    ),
    Gate(
        name="protocol",
        asks="every method of the EAGLE protocols is called",
        group="code",
        topic="",
        upstream="",
        check=_uncalled,
    ),
    Gate(
        name="calls",
        asks="every method that runners call on a model is defined by some class",
        group="code",
        topic="eagle3-interface",
        upstream="",
        check=_unanswered,
    ),
)
