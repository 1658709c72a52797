"""Is every field that is read of vLLM's config one that a class of it defines?

``vllm_config.compilation_config.pass_config.enable_sp``: each step's class is the annotation of the
field before it. A field that a release renamed is an AttributeError when the line runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from vpatch.gates.classes import Class, class_of
from vpatch.gates.gate import Evidence, Found, Gate, Subject
from vpatch.gates.modules import Function, Module
from vpatch.gates.walk import walk
from vpatch.gates.way import functions, modules

_ROOT = ("vllm.config.vllm", "VllmConfig")
_CONFIG = "vllm.config"
# What stands around a type and changes nothing of it.
_AROUND = frozenset(("SkipValidation", "Optional", "Annotated"))


@dataclass(frozen=True)
class _Kind:
    """A class of vLLM's config, by where an annotation names it.

    Attributes:
        dotted: Its module, which is parsed where its text does not answer.
    """

    dotted: str
    name: str


def _fields(subject: Subject) -> Found:
    """What no class on the chain has."""
    wrong: dict[Evidence, str] = {}
    reader = _Reader(subject)
    for module in modules(subject):
        for function in functions(subject, module):
            for node, of, name in _reads(reader, function):
                place = Evidence(module.path, node.lineno, ast.unparse(node))
                wrong.setdefault(place, f"'{of}' object has no attribute '{name}'")
    if not wrong:
        return Found("pass")
    evidence = tuple(wrong)
    more = f"and {len(wrong) - 1} more" if wrong.keys() - {evidence[0]} else ""
    return Found("fail", evidence, f"AttributeError: {wrong[evidence[0]]}", "after load", more)


def _reads(reader: _Reader, function: Function) -> Iterator[tuple[ast.Attribute, str, str]]:
    """Fields that are read and that their class does not have: node, class, name."""
    asked: set[str] | None = None
    for node in walk(function):
        if not (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)):
            continue
        of = reader.kind(node.value)
        if of is None or reader.has(of, node.attr):
            continue
        if asked is None:
            asked = _asked_first(function)
        if node.attr not in asked:
            yield node, of.name, node.attr


def _asked_first(function: Function) -> set[str]:
    """Texts that the function hands to hasattr and getattr."""
    return {
        each.value
        for call in walk(function)
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in {"hasattr", "getattr"}
        for each in call.args
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }


class _Reader:
    """Which class of vLLM's config an expression is one of, by names and annotations."""

    def __init__(self, subject: Subject) -> None:
        self._program = subject.program
        self._root = _Kind(*_ROOT)
        self._kinds: dict[tuple[str, str, str], _Kind | None] = {}
        self._classes: dict[tuple[str, str], Class | None] = {}
        self._known: dict[tuple[str, str, str], bool] = {}

    def kind(self, node: ast.expr) -> _Kind | None:
        """The class of what an expression is; None where nothing here says it.

        By their names: `vllm_config`, and what is called as one of its fields.
        """
        if isinstance(node, ast.Name):
            return self._named(node.id)
        if not isinstance(node, ast.Attribute):
            return None
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return self._named(node.attr)
        of = self.kind(node.value)
        return None if of is None else self._field(of, node.attr)

    def _named(self, name: str) -> _Kind | None:
        if not name.endswith("_config"):
            return None
        return self._root if name == "vllm_config" else self._field(self._root, name)

    def _field(self, of: _Kind, name: str) -> _Kind | None:
        key = (of.dotted, of.name, name)
        if key not in self._kinds:
            self._kinds[key] = self._annotated(of, name)
        return self._kinds[key]

    def _annotated(self, of: _Kind, name: str) -> _Kind | None:
        found = self._class(of)
        for each in found.mro if found is not None else ():
            for node in each.node.body:
                if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == name:
                    return self._of_type(each.module, node.annotation)
        return None

    def _of_type(self, module: Module, annotation: ast.expr) -> _Kind | None:
        """The one class of vLLM's config that an annotation names."""
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            annotation = ast.parse(annotation.value, mode="eval").body
        if isinstance(annotation, ast.BinOp):
            sides = [annotation.left, annotation.right]
            named = [e for e in sides if not (isinstance(e, ast.Constant) and e.value is None)]
            return self._of_type(module, named[0]) if len(named) == 1 else None
        if isinstance(annotation, ast.Subscript):
            around = getattr(annotation.value, "id", "") in _AROUND
            return self._of_type(module, annotation.slice) if around else None
        name = getattr(annotation, "id", "")
        if not name.endswith("Config"):  # enums have what no class body says
            return None
        if name in module.classes:
            return _Kind(module.dotted, name)
        imported = module.imports.get(name)
        if imported is None or imported.name is None or not imported.module.startswith(_CONFIG):
            return None
        is_there = b"\nclass %s" % imported.name.encode() in self._text(imported.module)
        return _Kind(imported.module, imported.name) if is_there else None

    def _text(self, dotted: str) -> bytes:
        return self._program.tree.read(f"{dotted.replace('.', '/')}.py") or b""

    def _class(self, of: _Kind) -> Class | None:
        key = (of.dotted, of.name)
        if key not in self._classes:
            module = self._program.module(of.dotted)
            self._classes[key] = class_of(self._program, module, of.name) if module else None
        return self._classes[key]

    def has(self, of: _Kind, name: str) -> bool:
        """Whether its class has such an attribute, or may have it."""
        key = (of.dotted, of.name, name)
        if key not in self._known:
            self._known[key] = name.startswith("__") or self._says(of, name) or self._has(of, name)
        return self._known[key]

    def _says(self, of: _Kind, name: str) -> bool:
        """Whether a module that nobody parsed has such a field: parsing is what takes long."""
        text = b"" if self._program.is_parsed(of.dotted) else self._text(of.dotted)
        return b"\n    %s:" % name.encode() in text or b"\n    def %s(" % name.encode() in text

    def _has(self, of: _Kind, name: str) -> bool:
        found = self._class(of)
        return (
            found is None
            or found.is_opaque
            or found.has(name)
            or any("*" in each.assigned for each in found.mro)
        )


GATES = (
    Gate(
        name="config-fields",
        asks="every field that is read of vLLM's config is one of its class",
        group="code",
        topic="",
        upstream="",
        check=_fields,
    ),
)
