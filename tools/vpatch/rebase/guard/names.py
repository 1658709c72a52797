"""Does the new tree still have what a patch uses: names, attributes, imports?"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from vpatch.gates.classes import Class, class_of
from vpatch.gates.modules import Defined, Module
from vpatch.gates.walk import walk
from vpatch.rebase.guard.change import NAME_GONE, Doubt
from vpatch.rebase.guard.corners import Corners
from vpatch.rebase.guard.library import Library, imports_at, is_same, leads
from vpatch.rebase.guard.pieces import Piece
from vpatch.rebase.guard.tables import bound, fresh_pieces, named_at, unbound


@dataclass(frozen=True, eq=False)
class Used:
    """A Python file of a patch in both trees, and the parts that differ from upstream's.

    Attributes:
        corners: The change.
        old, new: Both trees behind the patch.
        then, now: The file in them.
    """

    corners: Corners
    old: Library
    new: Library
    then: Module
    now: Module

    @cached_property
    def fresh(self) -> tuple[Piece, ...]:
        """The pieces of the result that upstream does not have."""
        change = self.corners.change
        return tuple(fresh_pieces(change.result, change.upstream))

    @cached_property
    def added(self) -> frozenset[int]:
        """Lines of the result that the patch put there."""
        landed = [placed.landed for placed in self.corners.change.runs]
        return frozenset(
            line
            for run in landed
            if run is not None
            for line in range(run.new, run.new + len(run.added))
        )

    def scope(self, line: int) -> str:
        """The scope of a line of the result."""
        return self.corners.result.at(line)

    def nodes(self) -> Iterator[tuple[Piece, ast.AST, int]]:
        """The nodes of lines that the patch added: (piece, node, line)."""
        for piece in self.fresh:
            for body in piece.body:
                for node in walk(body):
                    line = piece.line(getattr(node, "lineno", -1))
                    if line in self.added:
                        yield piece, node, line


def used(corners: Corners, old: Library, new: Library) -> Used | None:
    """The file in both trees; None where it is no Python, or is not there."""
    change = corners.change
    if not (corners.result.python and corners.after.python):
        return None
    then, now = old.of(change.was, change.after), new.of(change.path, change.result)
    return Used(corners, old, new, then, now) if then and now else None


def names_gone(of: Used) -> Iterator[Doubt]:
    """Names that the result asks for, and that nothing binds any more."""
    change = of.corners.change
    gone = unbound(change.result, of.fresh)
    lost = bound(change.upstream) - bound(change.result) if change.upstream else frozenset()
    if lost:
        # The patch takes them away, and upstream may use them in more places than it did.
        every = unbound(change.result, fresh_pieces(change.result, b""))
        gone |= {name: piece for name, piece in every.items() if name in lost}
    if not gone:
        return
    known = set(unbound(change.after, fresh_pieces(change.after, b"")))
    if change.upstream:
        known |= set(unbound(change.upstream, fresh_pieces(change.upstream, b"")))
    for name, piece in gone.items():
        if name not in known:
            line = named_at(piece, name)
            yield Doubt(NAME_GONE, of.scope(line), line, f"`{name}` is used, and bound nowhere now")


def imports_gone(of: Used) -> Iterator[Doubt]:
    """What the patch's lines import, and the new tree does not have."""
    for piece in of.fresh:
        for node in (each for body in piece.body for each in walk(body)):
            for at, imported in imports_at(node, of.now.package):
                line = piece.line(at)
                if line not in of.added or is_same(imported, of.old, of.new):
                    continue
                if leads(imported, of.new.find(imported)):
                    continue
                if leads(imported, of.old.find(imported)):
                    name = f"{imported.module}.{imported.name}" if imported.name else ""
                    text = f"`{name or imported.module}` is imported, and is not there any more"
                    yield Doubt(NAME_GONE, of.scope(line), line, text)


def attributes_gone(of: Used) -> Iterator[Doubt]:
    """Attributes of ``self`` and of modules that the patch's lines use, and nobody has now."""
    for _, node, line in of.nodes():
        if not (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)):
            continue
        if not isinstance(node.value, ast.Name):
            continue
        owner, name = node.value.id, node.attr
        if owner == "self":
            both = _classes(of, line)
            gone = both is not None and _had(*both, name)
        else:
            gone = _module_has(of.old, of.then, owner, name) is True and (
                _module_has(of.new, of.now, owner, name) is False
            )
        if gone:
            text = f"`{owner}.{name}` is used, and is not there any more"
            yield Doubt(NAME_GONE, of.scope(line), line, text)


def _classes(of: Used, line: int) -> tuple[Class, Class] | None:
    """The class around a line of the result, in both trees."""
    name = of.scope(line).partition(".")[0].partition("#")[0]
    old_name = of.corners.key(name)
    then = class_of(of.old, of.then, old_name) if old_name in of.then.classes else None
    now = class_of(of.new, of.now, name) if name in of.now.classes else None
    return (then, now) if then and now else None


def _had(then: Class, now: Class, name: str) -> bool:
    """Whether a class had an attribute and has it no more."""
    if not then.has(name) or now.has(name):
        return False
    unseen = now.all_foreign - then.all_foreign
    made = any("*" in each.assigned or "__getattr__" in each.methods for each in now.mro)
    return not (unseen or made)


def _module_has(library: Library, module: Module, owner: str, name: str) -> bool | None:
    """Whether a module that a name stands for has something; None where it stands for none."""
    found = library.resolve(module, owner) if owner in module.imports else None
    if not (isinstance(found, Defined) and found.node is None):
        return None
    inside = library.module(f"{found.module.dotted}.{name}")
    return inside is not None or found.module.defines(name)
