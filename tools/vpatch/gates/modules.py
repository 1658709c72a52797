"""Modules of a tree, parsed when they are first asked for, and where their names come from."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from vpatch.gates.tree import Tree
from vpatch.gates.walk import walk

_MAX_HOPS = 12
# What is followed. Layers, kernels and platforms are none of a start's gates.
SCOPE = (
    "vllm.config",
    "vllm.envs",
    "vllm.model_executor.models",
    "vllm.models",
    "vllm.transformers_utils",
    "vllm.v1.spec_decode",
    "vllm.v1.worker",
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Imported:
    """A name that a module imports.

    Attributes:
        module: From where, dotted.
        name: What of it; None where the module itself is meant.
    """

    module: str
    name: str | None


@dataclass(frozen=True, eq=False)
class Module:
    """A parsed file.

    Attributes:
        dotted: As it is imported.
        path: In its tree.
        body: Its syntax tree; empty where it cannot be parsed.
        error: Why it cannot.
    """

    dotted: str
    path: str
    body: ast.Module
    error: str = ""

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """What runs when it is imported, branches of ``if`` and ``try`` flattened."""
        return list(_flat(self.body.body))

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """Its own classes."""
        return {node.name: node for node in self.statements if isinstance(node, ast.ClassDef)}

    @cached_property
    def functions(self) -> dict[str, Function]:
        """Its own functions."""
        return {node.name: node for node in self.statements if isinstance(node, Function)}

    @cached_property
    def assigned(self) -> dict[str, ast.expr | None]:
        """Names that are assigned to, with the last value; None where it is of several parts."""
        return dict(_assignments(self.statements))

    @cached_property
    def imports(self) -> dict[str, Imported]:
        """Names that come from elsewhere; those under TYPE_CHECKING among them."""
        package = self.dotted if self.path.endswith("/__init__.py") else _parent(self.dotted)
        return dict(imports_of(self.statements, package))

    @cached_property
    def only_for_types(self) -> frozenset[str]:
        """Names that are imported for type checkers alone."""
        branches = [n for n in self.statements if isinstance(n, ast.If) and _is_for_types(n.test)]
        for_types = {each for branch in branches for each in branch.body}
        rest = [node for node in self.statements if node not in for_types]
        there = {*(name for name, _ in imports_of(rest, "")), *self.assigned, *self.classes}
        named = {name for name, _ in imports_of(list(for_types), "")}
        return frozenset(named - there - set(self.functions))

    @property
    def package(self) -> str:
        """What relative imports start from."""
        return self.dotted if self.path.endswith("/__init__.py") else _parent(self.dotted)

    def defines(self, name: str) -> bool:
        """Whether a name is bound at its top level; anything may be where it has a star."""
        return (
            name in self.classes
            or name in self.functions
            or name in self.assigned
            or name in self.imports
            or "*" in self.imports
            or "__getattr__" in self.functions
        )


@dataclass(frozen=True, eq=False)
class Defined:
    """What a name stands for: a class, a function, a value of a module, or a whole module."""

    module: Module
    node: ast.ClassDef | Function | ast.expr | None


@dataclass(frozen=True, eq=False)
class Program:
    """A tree, as modules."""

    tree: Tree
    _modules: dict[str, Module | None] = field(default_factory=dict, repr=False)
    made: dict[tuple[str, str], Any] = field(default_factory=dict, repr=False)  # kept by others

    @classmethod
    def knowing(cls, tree: Tree, parsed: Mapping[str, Module]) -> Program:
        """A tree of which some files have been parsed before: blob -> module."""
        known = ((path, parsed.get(tree.blob(path))) for path in tree.paths)
        return cls(tree, {one.dotted: one for path, one in known if one and one.path == path})

    def by_blob(self) -> dict[str, Module]:
        """The modules that are parsed: blob -> module."""
        parsed = (one for one in self._modules.values() if one is not None)
        return {blob: one for one in parsed if (blob := self.tree.blob(one.path))}

    def forget(self) -> None:
        """Takes its modules and classes apart; nothing of it can be asked any more."""
        for part in (*self._modules.values(), *self.made.values()):
            getattr(part, "__dict__", {}).clear()
        self._modules.clear()
        self.made.clear()

    def module(self, dotted: str) -> Module | None:
        """A module by its dotted name; None where the tree has none."""
        if dotted not in self._modules:
            path = dotted.replace(".", "/")
            found = next(
                (each for each in (f"{path}.py", f"{path}/__init__.py") if each in self.tree.paths),
                None,
            )
            self._modules[dotted] = None if found is None else self._parse(dotted, found)
        return self._modules[dotted]

    def is_parsed(self, dotted: str) -> bool:
        """Whether a module has been asked for already."""
        return self._modules.get(dotted) is not None

    def at(self, path: str) -> Module | None:
        """A module by its path."""
        dotted = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return self.module(dotted)

    def resolve(self, module: Module, name: str) -> Defined | Imported | None:
        """What a name of a module stands for, through imports.

        Returns:
            A ``Defined`` of this tree, the ``Imported`` that leads out of it, or None where the
            name is bound nowhere.
        """
        for _ in range(_MAX_HOPS):
            here = _own(module, name)
            if here is not None and isinstance(here.node, ast.Name) and here.node.id != name:
                name = here.node.id  # another name for it
                continue
            if here is not None:
                return here
            imported = module.imports.get(name)
            if imported is None:
                return self._starred(module, name)
            found = self.find(imported)
            if not isinstance(found, tuple):
                return found
            module, name = found
        return None

    def find(self, imported: Imported) -> Defined | Imported | tuple[Module, str] | None:
        """Follows an import by one step: to a module, to a module's name, or out of the tree."""
        if not imported.module.startswith(SCOPE):
            return imported
        if imported.name is None:
            whole = self.module(imported.module)
            return Defined(whole, None) if whole else imported
        source = self.module(imported.module)
        if source is not None and source.defines(imported.name):
            return source, imported.name
        inner = self.module(f"{imported.module}.{imported.name}")
        if inner is not None:
            return Defined(inner, None)
        # Compiled, or made at build time (vllm._C, vllm._version): nothing to say about it.
        return imported if source is None else None

    def _starred(self, module: Module, name: str) -> Defined | Imported | None:
        if "__getattr__" in module.functions:
            return Imported(module.dotted, name)  # it is made when it is asked for
        star = module.imports.get("*")
        source = self.module(star.module) if star else None
        return self.resolve(source, name) if source is not None else star

    def _parse(self, dotted: str, path: str) -> Module:
        data = self.tree.read(path) or b""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about the escapes in other people's strings
                body = ast.parse(data, path)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return Module(dotted, path, ast.Module([], []), error=str(error) or repr(error))
        return Module(dotted, path, body)


def imports_of(statements: list[ast.stmt], package: str) -> Iterator[tuple[str, Imported]]:
    """The names that import statements bind."""
    for node in statements:
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                yield bound, Imported(alias.name if alias.asname else bound, None)
        elif isinstance(node, ast.ImportFrom):
            base = package
            for _ in range(node.level - 1):
                base = _parent(base)
            source = ".".join(filter(None, (base if node.level else "", node.module)))
            for alias in node.names:
                yield alias.asname or alias.name, Imported(source, alias.name)


def _own(module: Module, name: str) -> Defined | None:
    if name in module.classes:
        return Defined(module, module.classes[name])
    if name in module.functions:
        return Defined(module, module.functions[name])
    if name in module.assigned:
        return Defined(module, module.assigned[name])
    return None


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If) and _is_for_types(node.test):
            # Values stay: envs.py has its defaults there.
            yield from (e for e in node.body if not isinstance(e, (ast.ClassDef, Function)))
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            yield from _flat(node.body)
        if isinstance(node, (ast.If, ast.Try)):
            yield from _flat(node.orelse)
        if isinstance(node, ast.Try):
            for handler in node.handlers:
                yield from _flat(handler.body)


def _is_for_types(test: ast.expr) -> bool:
    """Whether a branch is for type checkers: what it defines is not there when it runs."""
    return getattr(test, "attr", getattr(test, "id", "")) == "TYPE_CHECKING"


def _assignments(statements: list[ast.stmt]) -> Iterator[tuple[str, ast.expr | None]]:
    for node in statements:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value
                elif isinstance(target, (ast.Tuple, ast.List)):
                    yield from ((e.id, None) for e in target.elts if isinstance(e, ast.Name))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, None
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if node.value is not None:
                yield node.target.id, node.value
        elif isinstance(node, (ast.For, ast.With)):
            yield from _bound_by(node)


def _bound_by(node: ast.For | ast.With) -> Iterator[tuple[str, None]]:
    targets = [node.target] if isinstance(node, ast.For) else [i.optional_vars for i in node.items]
    yield from (
        (name.id, None)
        for target in targets
        if target is not None
        for name in walk(target)
        if isinstance(name, ast.Name)
    )


def _parent(dotted: str) -> str:
    return dotted.rpartition(".")[0]
