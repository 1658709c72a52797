"""The modules of a tree, for the files of a patch: where the names that they import come from."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from vpatch.gates.modules import Defined, Imported, Module, Program, imports_of
from vpatch.gates.tree import Tree
from vpatch.rebase.guard.change import Reader
from vpatch.rebase.guard.pieces import Unreadable, pieces

# Folders that Python's path leads into, where a repository does not start with its package.
_ROOTS = ("src/", "lib/", "python/")
Found = Defined | Imported | tuple[Module, str] | None


def _nothing(path: str) -> bytes | None:  # noqa: ARG001
    return None


@dataclass(frozen=True, eq=False)
class Library(Program):
    """A program whose modules are read from any tree, and followed wherever they are in it.

    Attributes:
        read: Reads a file of the tree.
        roots: The folder that the package of the file at hand is found from.
    """

    tree: Tree = field(default_factory=lambda: Tree("", frozenset(), {}, Path(), {}))
    read: Reader = _nothing
    roots: list[str] = field(default_factory=list)

    def of(self, path: str, data: bytes) -> Module | None:
        """A file of the tree, as it is given; None where it does not parse."""
        root = next((each for each in _ROOTS if path.startswith(each)), "")
        self.roots[:] = [root]
        dotted = path.removeprefix(root).removesuffix(".py").removesuffix("/__init__")
        dotted = dotted.replace("/", ".")
        self._modules[dotted] = module_of(dotted, path, data)
        return self._modules[dotted]

    def module(self, dotted: str) -> Module | None:
        """A module by its dotted name; None where the tree has none."""
        if dotted not in self._modules:
            self._modules[dotted] = next(self._found(dotted), None)
        return self._modules[dotted]

    def source(self, dotted: str) -> bytes | None:
        """The bytes of a module; None where the tree has none."""
        return next((data for _, data in self._files(dotted)), None)

    def find(self, imported: Imported) -> Found:
        """Follows an import by one step: to a module, to a module's name, or out of the tree."""
        source = self.module(imported.module)
        if imported.name is None:
            return Defined(source, None) if source else imported
        if source is not None and source.defines(imported.name):
            return source, imported.name
        inner = self.module(f"{imported.module}.{imported.name}")
        if inner is not None:
            return Defined(inner, None)
        return imported if source is None else None

    def _found(self, dotted: str) -> Iterator[Module]:
        for path, data in self._files(dotted):
            module = module_of(dotted, path, data)
            if module is not None:
                yield module

    def _files(self, dotted: str) -> Iterator[tuple[str, bytes]]:
        stem = dotted.replace(".", "/")
        for root in dict.fromkeys((*self.roots, "", "src/")):
            for path in (f"{root}{stem}.py", f"{root}{stem}/__init__.py"):
                data = self.read(path)
                if data is not None:
                    yield path, data


@lru_cache(maxsize=1024)
def module_of(dotted: str, path: str, data: bytes) -> Module | None:
    """A file as a module, its cut classes whole; lines of its nodes are those of its pieces."""
    try:
        parts = pieces(data)
    except Unreadable:
        return None
    body: list[ast.stmt] = []
    for piece in parts:
        if piece.owner and not piece.head:
            around, *behind = piece.body
            body[-1] = _joined(body[-1], around)
            body += behind
        else:
            body += piece.body
    return Module(dotted, path, ast.Module(body, []))


def _joined(of: ast.stmt, part: ast.stmt) -> ast.stmt:
    if not (isinstance(of, ast.ClassDef) and isinstance(part, ast.ClassDef)):
        return of
    whole = ast.ClassDef(of.name, of.bases, of.keywords, [*of.body, *part.body], of.decorator_list)
    return ast.copy_location(whole, of)


def wanted(path: str, data: bytes) -> Iterator[str]:
    """Files that a file's imports may lead to, for a tree that reads many at once."""
    module = Library().of(path, data)
    root = next((each for each in _ROOTS if path.startswith(each)), "")
    for imported in module.imports.values() if module else ():
        whole = imported.module.replace(".", "/")
        for stem in (whole, f"{whole}/{imported.name}") if imported.name else (whole,):
            yield from (f"{root}{stem}.py", f"{root}{stem}/__init__.py")


def is_same(imported: Imported, old: Library, new: Library) -> bool:
    """Whether both trees have the same module for an import, or have none: nothing changed."""
    return old.source(imported.module) == new.source(imported.module) and (
        imported.name is None
        or all(each.source(f"{imported.module}.{imported.name}") is None for each in (old, new))
    )


def leads(imported: Imported, found: Found) -> bool:
    """Whether an import leads to something that the tree has."""
    return found is not None and found != imported


def imports_at(node: ast.AST, package: str) -> Iterator[tuple[int, Imported]]:
    """(line of the node's piece, what is imported there)."""
    if isinstance(node, ast.Import):
        yield from ((alias.lineno, Imported(alias.name, None)) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        named = [imported for _, imported in imports_of([node], package)]
        yield from zip((alias.lineno for alias in node.names), named, strict=True)
