"""Do calls still fit what they call, and does each argument still say what it said?

A function that takes the same number of arguments in another order is called as before, and does
something else: nothing conflicts, and nothing fails.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from vpatch.gates.modules import Function, Module
from vpatch.gates.walk import walk
from vpatch.rebase.guard.callees import Callee, Place, same_parameter
from vpatch.rebase.guard.change import CALL_MISFIT, Doubt
from vpatch.rebase.guard.library import Library
from vpatch.rebase.guard.names import Used
from vpatch.rebase.guard.outline import Outline
from vpatch.rebase.guard.pieces import Piece, pieces
from vpatch.rebase.guard.tables import fresh_pieces


@dataclass(frozen=True, eq=False)
class FileSide:
    """The file in a tree."""

    library: Library
    module: Module
    outline: Outline
    data: bytes

    def at(self, line: int) -> Place:
        """A line of it."""
        return self._place(self.outline.at(line), line)

    def inside(self, key: str) -> Place:
        """A scope of it."""
        scope = self.outline.by_key.get(key)
        return self._place(key, scope.end if scope else 0)

    def _place(self, key: str, line: int) -> Place:
        owner = key.partition(".")[0].partition("#")[0]
        owner = owner if owner in self.module.classes else ""
        return Place(self.library, self.module, owner, self._around(line))

    def _around(self, line: int) -> tuple[Function, ...]:
        """The functions that have a line, from the outside."""
        found = bisect_right(self._firsts, line)
        if not found:
            return ()
        piece = pieces(self.data)[found - 1]
        nodes = (node for body in piece.body for node in walk(body) if isinstance(node, Function))
        inside = (node for node in nodes if _has(piece, node, line))
        return tuple(sorted(inside, key=lambda node: (node.lineno, -(node.end_lineno or 0))))

    @cached_property
    def _firsts(self) -> list[int]:
        return [piece.first for piece in pieces(self.data)]


def calls_misfit(of: Used) -> Iterator[Doubt]:
    """Calls on the patch's lines that do not fit any more, or that say something else now."""
    change, corners = of.corners.change, of.corners
    known = _stripped(change.after)
    old = FileSide(of.old, of.then, corners.after, change.after)
    new = FileSide(of.new, of.now, corners.result, change.result)
    for call, line, lines in calls_on(of.fresh, of.added):
        was, now = _both(of, call, line, old, new)
        if was is None or now is None:
            continue
        why = now.unfit(of.new, call)
        if why:
            yield Doubt(CALL_MISFIT, of.scope(line), line, f"a call does not fit any more: {why}")
        elif all(corners.result.lines[n - 1].strip() in known for n in lines & of.added):
            # What a person wrote anew, they wrote for what is called now.
            yield from _said(of, line, "a call", said_otherwise(call, was, now))
    yield from _calls_of_upstream(of, new)


def _calls_of_upstream(of: Used, new: FileSide) -> Iterator[Doubt]:
    """Calls that upstream has added to a file in which the patch declares functions otherwise."""
    change = of.corners.change
    if not _declares_otherwise(of):
        return
    library = Library(read=of.new.read)
    module = library.of(change.path, change.upstream)
    if module is None:
        return
    old = FileSide(library, module, of.corners.upstream, change.upstream)
    known = _stripped(change.after)
    numbered = enumerate(of.corners.result.lines, start=1)
    theirs = frozenset(n for n, text in numbered if text.strip() not in known) - of.added
    for call, line, _ in calls_on(fresh_pieces(change.result, change.after), theirs):
        was, now = _both(of, call, line, old, new)
        if was is not None and now is not None:
            why = said_otherwise(call, was, now) or now.unfit(of.new, call)
            yield from _said(of, line, "upstream's call", why)


def _both(
    of: Used, call: ast.Call, line: int, old: FileSide, new: FileSide
) -> tuple[Callee | None, Callee | None]:
    """What a call on a line of the result calls: before, where it fitted, and now."""
    now = new.at(line).callee(call.func)
    if now is None:
        return None, None
    name = of.corners.name(old.outline, of.corners.key(of.scope(line)))
    was = old.inside(name).callee(call.func)
    return (None if was is None or was.unfit(old.library, call) else was), now


def _said(of: Used, line: int, what: str, why: str) -> Iterator[Doubt]:
    if why:
        yield Doubt(CALL_MISFIT, of.scope(line), line, f"{what} says something else now: {why}")


def said_otherwise(call: ast.Call, old: Callee, new: Callee) -> str:
    """Which argument is taken by another parameter than before; empty where none is."""
    star = next((n for n, each in enumerate(call.args) if isinstance(each, ast.Starred)), None)
    count = len(call.args) if star is None else max(len(old.places), len(new.places))
    for number in range(count):
        was, now = old.place(number), new.place(number)
        if was == now or not (was and now) or was[0] == now[0] == "*":
            continue
        kept = was in new.names or now in old.names
        if kept or not same_parameter(was, now, old, new):
            return f"`{now}` is given where `{was}` was: {new}, before {old}"
    return ""


def calls_on(
    chosen: Iterable[Piece], lines: frozenset[int]
) -> Iterator[tuple[ast.Call, int, frozenset[int]]]:
    """Calls of which a part stands on some lines of a file: (call, its line, all its lines)."""
    for piece in chosen:
        for body in piece.body:
            for node in walk(body):
                if isinstance(node, ast.Call):
                    own = frozenset(piece.line(each.lineno) for each in (node, *node.args))
                    if own & lines:
                        yield node, piece.line(node.lineno), own


def _has(piece: Piece, node: Function, line: int) -> bool:
    return piece.line(node.lineno) <= line <= piece.line(node.end_lineno or node.lineno)


def _declares_otherwise(of: Used) -> bool:
    """Whether the patch gives a function of this file other parameters than upstream does."""
    change = of.corners.change
    if not change.upstream:
        return False
    gone = _declared(fresh_pieces(change.upstream, change.result))
    come = _declared(of.fresh)
    return any(name in come and come[name] != gone[name] for name in gone)


def _declared(chosen: Iterable[Piece]) -> dict[str, set[tuple[str, ...]]]:
    found: dict[str, set[tuple[str, ...]]] = {}
    for piece in chosen:
        for node in (each for body in piece.body for each in walk(body)):
            if isinstance(node, Function):
                found.setdefault(node.name, set()).add(Callee(node.name, node).places)
    return found


def _stripped(data: bytes) -> frozenset[bytes]:
    return frozenset(line.strip() for line in data.split(b"\n"))
