"""Failures that nobody listed: names of attributes and methods that nothing else of the tree knows.

A name that stands once in a whole vLLM is a misspelled one, or one whose other half was renamed or
taken away: an attribute that nobody sets, a method that nobody calls.
"""

from __future__ import annotations

import ast
import contextlib
import logging
import re
from pathlib import Path

from vpatch.gates.gate import Evidence, Found, Gate, Subject
from vpatch.gates.modules import Function, Module, imports_of
from vpatch.gates.registry import MODELS, MissingPart
from vpatch.gates.steps import RUNNERS, proposer_class
from vpatch.gates.walk import walk
from vpatch.gates.way import ABOUT, drafter_classes, functions, modules, target_classes

# What variables of the tree's have of Python and of torch.Generator.
_PYTHON = (str, bytes, list, tuple, dict, set, int, float, Path, logging.Logger)
_FOREIGN = frozenset(["set_offset", "get_offset", *(name for of in _PYTHON for name in dir(of))])
_WORD = re.compile(rb"\.?\b[A-Za-z_]\w*")
_IN_WORD = re.compile(rb"\w")
_SETS = re.compile(rb"\s*(?::[^\n=]*)?=(?!=)")
_ABOUT = re.compile("|".join((*ABOUT, "spec")).encode())
# They keep what only tests and tools look at, and most of it is no drafter's.
_CROWDED = frozenset([*RUNNERS.values(), "vllm.config.vllm"])
# What a target's checkpoint brings; no source says what its config.json holds, or its code has.
_BROUGHT = re.compile(r"config|.*(hf|text|vision)_?config|.*processor|.*tokenizer")


def _own_words(subject: Subject, module: Module) -> frozenset[bytes]:
    """The words of a file; with a dot before them where they are attributes."""

    def make() -> frozenset[bytes]:
        return frozenset(_WORD.findall(subject.program.tree.read(module.path) or b""))

    words: frozenset[bytes] = subject.keep(f"words of {module.dotted}", make)
    return words


def _is_lonely(subject: Subject, name: str, path: str) -> bool:
    """Whether no other file of the tree has a word. The few that are near are asked first."""
    word = name.encode()
    for module in modules(subject):
        words = _own_words(subject, module)
        if module.path != path and (word in words or b"." + word in words):
            return False
    return not subject.program.tree.has_word(word, but=path)


def _attributes(subject: Subject) -> Found:
    found = [
        (module, node)
        for module in modules(subject)
        for node in _halves(_candidates(subject, module))
        if (isinstance(node.ctx, ast.Load) or module.dotted in _setting(subject))
        and node.attr.encode() not in _own_words(subject, module)
        and _stands_alone(subject, module, node)
        and _is_lonely(subject, node.attr, module.path)
    ]
    if not found:
        return Found("pass")
    evidence = tuple(
        Evidence(module.path, node.lineno, ast.unparse(node)[-80:]) for module, node in found
    )
    read = next((node for _, node in found if isinstance(node.ctx, ast.Load)), None)
    if read is None:
        return Found("fail", evidence, "", "never", "nothing of the tree reads what is set there")
    error = f"AttributeError: object has no attribute '{read.attr}'"
    return Found("fail", evidence, error, "after load", "nothing else of the tree has this name")


def _halves(found: dict[tuple[str, bool], ast.Attribute]) -> list[ast.Attribute]:
    """Those that are read and not set, or set and not read."""
    return [node for (name, reads), node in found.items() if (name, not reads) not in found]


def _candidates(subject: Subject, module: Module) -> dict[tuple[str, bool], ast.Attribute]:
    """The attributes of a module that are read, or set, by their names; one of each name."""
    crowded = module.dotted in _CROWDED
    foreigners = module.dotted not in _setting(subject)
    brought = module.dotted not in _inner(subject)
    lines = (subject.program.tree.read(module.path) or b"").split(b"\n") if crowded else []
    found: dict[tuple[str, bool], ast.Attribute] = {}
    for function in functions(subject, module):
        foreign: set[str] | None = None
        some = crowded and not _ABOUT.search(function.name.encode())
        for node in walk(function):
            if not isinstance(node, ast.Attribute) or node.attr.startswith("__"):
                continue
            if node.attr in _FOREIGN:
                continue
            reads = isinstance(node.ctx, ast.Load)
            if (node.attr, reads) in found:
                continue
            if some and not (reads and _ABOUT.search(lines[node.lineno - 1])):
                continue
            foreign = _foreign_names(subject, module, function) if foreign is None else foreign
            if reads and foreigners and _is_of(node, foreign):
                continue
            if reads and brought and _is_brought(node):
                continue
            found[node.attr, reads] = node
    return found


def _setting(subject: Subject) -> frozenset[str]:
    """The modules that set nothing for others: runners and speculators do, for tools and tests."""
    targets = {each.module.dotted for each in target_classes(subject)}
    return _inner(subject) | targets | {"vllm.config.speculative", f"{MODELS}.interfaces"}


def _inner(subject: Subject) -> frozenset[str]:
    """The modules that are about drafters and nothing else."""

    def make() -> frozenset[str]:
        found = {each.module.dotted for each in drafter_classes(subject)}
        with contextlib.suppress(MissingPart):
            found |= {each.module.dotted for each in proposer_class(subject.program).mro}
        return frozenset({*found, "vllm.transformers_utils.eagle3"})

    found: frozenset[str] = subject.keep("modules of drafters", make)
    return found


def _foreign_names(subject: Subject, module: Module, function: Function) -> set[str]:
    """What is imported of other packages, and of modules that are made when vLLM is built."""
    below = walk(function)
    local = {each.arg for each in below if isinstance(each, ast.arg)}
    inside: list[ast.stmt] = [
        each for each in below if isinstance(each, (ast.Import, ast.ImportFrom))
    ]
    tree = subject.program.tree
    every = [*module.imports.items(), *imports_of(inside, module.package)]
    return {name for name, each in every if not tree.has_file(each.module)} - local


def _is_of(node: ast.Attribute, foreign: set[str]) -> bool:
    """Whether it is asked of what is imported."""
    root: ast.expr = node
    while isinstance(root, (ast.Attribute, ast.Call, ast.Subscript)):
        root = root.func if isinstance(root, ast.Call) else root.value
    return isinstance(root, ast.Name) and root.id in foreign


def _is_brought(node: ast.Attribute) -> bool:
    owner = node.value
    last = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return _BROUGHT.fullmatch(last) is not None


def _stands_alone(subject: Subject, module: Module, node: ast.Attribute) -> bool:
    """Whether nothing of its own file defines it, or, where it is set, reads it."""
    data = subject.program.tree.read(module.path) or b""
    word = node.attr.encode()
    reads = isinstance(node.ctx, ast.Load)
    at = data.find(word)
    while at >= 0:
        end = at + len(word)
        before, behind = data[at - 1 : at], data[end : end + 1]
        if not (_IN_WORD.match(before) or _IN_WORD.match(behind)):
            sets = _SETS.match(data, end) is not None
            if before != b"." or sets is reads:
                return False
        at = data.find(word, end)
    return True


def _methods(subject: Subject) -> Found:
    """Methods of target and drafters whose name nothing else of the tree says."""
    lonely: dict[tuple[str, int], Evidence] = {}
    for of in (*target_classes(subject), *drafter_classes(subject)):
        for name, node in of.methods.items():
            if _is_dunder(name) or node.decorator_list or not _once(subject, of.module, node):
                continue
            if _is_lonely(subject, name, of.module.path):
                place = Evidence(of.module.path, node.lineno, f"{of.name}.{name}")
                lonely[(place.file, place.line)] = place
    if not lonely:
        return Found("pass")
    evidence = tuple(lonely.values())
    names = ", ".join(each.text for each in evidence)
    return Found("fail", evidence, "", "never", f"{names}: nothing of the tree calls it")


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _once(subject: Subject, module: Module, node: Function) -> bool:
    data = subject.program.tree.read(module.path) or b""
    return data.count(node.name.encode()) == 1


GATES = (
    Gate(
        name="known-attributes",
        asks="every attribute on the way is known to something else of the tree",
        group="code",
        topic="",
        upstream="",
        check=_attributes,
    ),
    Gate(
        name="known-methods",
        asks="every method of target and drafters is known to something else of the tree",
        group="code",
        topic="",
        upstream="",
        check=_methods,
    ),
)
