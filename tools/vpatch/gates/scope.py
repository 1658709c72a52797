"""What names stand for, for code that is read as if it ran."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping
from typing import Any

from vpatch.gates.classes import Class, make_class
from vpatch.gates.modules import Defined, Function, Imported, Module, Program, imports_of
from vpatch.gates.values import (
    UNKNOWN,
    ClassValue,
    Code,
    Foreign,
    ModuleValue,
    Place,
    Thrown,
    TooMuch,
    Value,
)

_MAX_STEPS = 60_000
MISSING = object()
_BUILTINS = frozenset(dir(builtins))


class Scope:
    """Looks up what names stand for."""

    def __init__(self, program: Program, known: Mapping[str, Value]) -> None:
        self.program = program
        self.known = known
        self.module = Module("", "", ast.Module([], []))
        self.owner: Class | None = None
        self.at: tuple[str, int] = ("", 0)  # file and line
        self.steps = 0
        self.said: list[tuple[str, str]] = []
        self.overwritten: list[Value] = []  # what layers were given: they write to it
        self.current: Value = UNKNOWN  # what get_current_vllm_config() returns
        self._globals: dict[tuple[str, str], Value] = {}

    def step(self, node: ast.AST) -> None:
        """Notes where the run is, and ends one that takes too long."""
        self.steps += 1
        if self.steps > _MAX_STEPS:
            raise TooMuch
        self.at = (self.module.path, getattr(node, "lineno", self.at[1]))

    @property
    def place(self) -> Place:
        """Where the run is."""
        return Place(*self.at)

    def throw(self, kind: str, text: str) -> Thrown:
        """An exception of the code, at the line where the run is."""
        return Thrown(kind, text, self.place)

    # What the other parts of a run give.
    def expression(self, node: ast.expr, names: dict[str, Value]) -> Value:
        raise NotImplementedError

    def call(self, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
        raise NotImplementedError

    def name(self, name: str, names: dict[str, Value]) -> Value:
        """What a name stands for."""
        if name in names:
            return names[name]
        found = self.global_name(self.module, name)
        if found is not MISSING:
            return found
        builtin = self.known.get(f"builtins.{name}", MISSING)
        if builtin is not MISSING:
            return builtin
        if self.module.imports.get("*") or name.startswith("__") or name in _BUILTINS:
            return Foreign(f"builtins.{name}")
        raise self.throw("NameError", f"name '{name}' is not defined")

    def global_name(self, module: Module, name: str) -> Any:
        """What a module's name stands for; a marker where it has none."""
        key = (module.dotted, name)
        if key not in self._globals:
            self._globals[key] = UNKNOWN  # where it is asked for again while it is worked out
            self._globals[key] = self._find_global(module, name)
        return self._globals[key]

    def _find_global(self, module: Module, name: str) -> Any:
        if name in self.known:
            return self.known[name]
        found = self.program.resolve(module, name)
        if found is None:
            imported = module.imports.get(name)
            if imported is None:
                return MISSING
            text = f"cannot import name '{imported.name}' from '{imported.module}'"
            raise self.throw("ImportError", text)
        return self.value_of(found)

    def value_of(self, found: Defined | Imported) -> Value:
        """What an import or a definition stands for."""
        if isinstance(found, Imported):
            dotted = ".".join(filter(None, (found.module, found.name)))
            return self.known.get(dotted, Foreign(dotted))
        if found.node is None:
            return ModuleValue(found.module)
        if isinstance(found.node, ast.ClassDef):
            return ClassValue(make_class(self.program, found.module, found.node))
        if isinstance(found.node, Function):
            return self.known.get(found.node.name, Code(found.module, found.node))
        return self.in_module(found.module, found.node)

    def imported(self, node: ast.Import | ast.ImportFrom) -> dict[str, Value]:
        """What an import statement inside a function binds."""
        bound: dict[str, Value] = {}
        for name, imported in imports_of([node], self.module.package):
            bound[name] = self.known[name] if name in self.known else self._one_import(imported)
        return bound

    def _one_import(self, imported: Imported) -> Value:
        found = self.program.find(imported)
        if isinstance(found, tuple):
            return self.global_name(*found)
        if found is None:
            text = f"cannot import name '{imported.name}' from '{imported.module}'"
            raise self.throw("ImportError", text)
        return self.value_of(found)

    def in_module(self, module: Module, node: ast.expr) -> Value:
        """What an expression of a module stands for."""
        before = self.module, self.owner
        self.module, self.owner = module, None
        try:
            return self.expression(node, {})
        except Thrown:
            return UNKNOWN  # a platform's business, most often
        finally:
            self.module, self.owner = before
