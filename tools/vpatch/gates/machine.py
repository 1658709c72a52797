"""Reads code as if it ran, with the values that a check puts in.

Nothing is executed: statements are followed in the syntax tree, tensors are the names of what they
are made of, and what cannot be known is ``Unknown``. Where a condition is unknown, both ways are
followed, one run after the other (``paths``).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from vpatch.gates.expressions import EXPRESSIONS, Expressions, Kinds
from vpatch.gates.literals import LITERALS
from vpatch.gates.modules import Function, Program
from vpatch.gates.values import (
    UNKNOWN,
    Code,
    Obj,
    Place,
    Thrown,
    TooMuch,
    Value,
)
from vpatch.gates.walk import walk

_MAX_PATHS = 48
_MAX_LOOP = 200


class _Returned(Exception):  # noqa: N818
    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


class _Broken(Exception):  # noqa: N818
    pass


class _Continued(Exception):  # noqa: N818
    pass


@dataclass(frozen=True)
class Path:
    """One way through the code.

    Attributes:
        value: What it returns.
        thrown: What it raises instead.
        said: Levels and texts of what it logs.
    """

    value: Value
    thrown: Thrown | None
    said: tuple[tuple[str, str], ...]


class Machine(Expressions):
    """One run.

    Args:
        program: The tree.
        choices: Which way to go at unknown conditions, in the order in which they come; those
            behind them are taken as false.
        known: Stand-ins for functions of the tree and for names of other packages.
    """

    kinds: ClassVar[Kinds] = {**EXPRESSIONS, **LITERALS}

    def __init__(
        self,
        program: Program,
        choices: tuple[bool, ...] = (),
        known: Mapping[str, Value] | None = None,
    ) -> None:
        super().__init__(program, known or {})
        self.choices = choices
        self.taken: list[bool] = []

    def decide(self) -> bool:
        """Goes one way at an unknown condition."""
        number = len(self.taken)
        way = self.choices[number] if number < len(self.choices) else False
        self.taken.append(way)
        return way

    def run_body(self, code: Code, names: dict[str, Value]) -> Value:
        """A function's body, with its variables."""
        node = code.node
        if isinstance(node, ast.Lambda):
            return self.expression(node.body, names)
        if isinstance(node, ast.AsyncFunctionDef) or _yields(node):
            return UNKNOWN
        try:
            self.block(node.body, names)
        except _Returned as done:
            return done.value
        return None

    def block(self, body: list[ast.stmt], names: dict[str, Value]) -> None:
        """Statements, one after the other."""
        for node in body:
            self.step(node)
            handler = _STATEMENTS.get(type(node))
            if handler is not None:
                handler(self, node, names)

    def do_expression_statement(self, node: ast.Expr, names: dict[str, Value]) -> None:
        if not isinstance(node.value, ast.Constant):
            self.expression(node.value, names)

    def do_assign(self, node: ast.Assign, names: dict[str, Value]) -> None:
        value = self.expression(node.value, names)
        for target in node.targets:
            self.store(target, value, names)

    def do_annotated(self, node: ast.AnnAssign, names: dict[str, Value]) -> None:
        if node.value is not None:
            self.store(node.target, self.expression(node.value, names), names)

    def do_augmented(self, node: ast.AugAssign, names: dict[str, Value]) -> None:
        before = self.expression(node.target, names)
        after = self.binary(node.op, before, self.expression(node.value, names), node)
        self.store(node.target, after, names)

    def do_if(self, node: ast.If, names: dict[str, Value]) -> None:
        self.block(node.body if self.truth(node.test, names) else node.orelse, names)

    def do_for(self, node: ast.For, names: dict[str, Value]) -> None:
        items = self.items(self.expression(node.iter, names))
        if items is None:
            items = [UNKNOWN] if self.decide() else []
        for item in items[:_MAX_LOOP]:
            self.store(node.target, item, names)
            try:
                self.block(node.body, names)
            except _Broken:
                return
            except _Continued:
                continue
        self.block(node.orelse, names)

    def do_while(self, node: ast.While, names: dict[str, Value]) -> None:
        for _ in range(_MAX_LOOP):
            if not self.truth(node.test, names):
                self.block(node.orelse, names)
                return
            try:
                self.block(node.body, names)
            except _Broken:
                return
            except _Continued:
                continue

    def do_return(self, node: ast.Return, names: dict[str, Value]) -> None:
        raise _Returned(None if node.value is None else self.expression(node.value, names))

    def do_raise(self, node: ast.Raise, names: dict[str, Value]) -> None:
        if node.exc is None:
            held = names.get("*caught")
            raise held if isinstance(held, Thrown) else Thrown("Exception", "", self.place)
        value = self.expression(node.exc, names)
        place = Place(self.module.path, node.lineno)
        if isinstance(value, Thrown):
            raise Thrown(value.kind, value.text, place)
        raise Thrown(value.name if isinstance(value, Obj) else "Exception", "...", place)

    def do_assert(self, node: ast.Assert, names: dict[str, Value]) -> None:
        truth = self.known_truth(node.test, names)
        if truth is not None and not truth:
            text = "" if node.msg is None else self.text(self.expression(node.msg, names))
            raise Thrown("AssertionError", text, Place(self.module.path, node.lineno))

    def do_with(self, node: ast.With, names: dict[str, Value]) -> None:
        for item in node.items:
            value = self.expression(item.context_expr, names)
            if item.optional_vars is not None:
                self.store(item.optional_vars, UNKNOWN if value is None else value, names)
        self.block(node.body, names)

    def do_try(self, node: ast.Try, names: dict[str, Value]) -> None:
        try:
            self.block(node.body, names)
            self.block(node.orelse, names)
        except Thrown as thrown:
            handler = next((h for h in node.handlers if _catches(h, thrown.kind)), None)
            if handler is None:
                raise
            if handler.name:
                names[handler.name] = thrown
            names["*caught"] = thrown
            self.block(handler.body, names)
        finally:
            self.block(node.finalbody, names)

    def do_function(self, node: Function, names: dict[str, Value]) -> None:
        names[node.name] = Code(self.module, node, None, names)

    def do_import(self, node: ast.Import | ast.ImportFrom, names: dict[str, Value]) -> None:
        names.update(self.imported(node))

    def do_break(self, _node: ast.Break, _names: dict[str, Value]) -> None:
        raise _Broken

    def do_continue(self, _node: ast.Continue, _names: dict[str, Value]) -> None:
        raise _Continued

    def do_delete(self, node: ast.Delete, names: dict[str, Value]) -> None:
        for target in node.targets:
            if isinstance(target, ast.Attribute):
                owner = self.expression(target.value, names)
                if isinstance(owner, Obj):
                    owner.attrs.pop(target.attr, None)


_STATEMENTS: dict[type[ast.stmt], Callable[..., None]] = {
    ast.Expr: Machine.do_expression_statement,
    ast.Assign: Machine.do_assign,
    ast.AnnAssign: Machine.do_annotated,
    ast.AugAssign: Machine.do_augmented,
    ast.If: Machine.do_if,
    ast.For: Machine.do_for,
    ast.While: Machine.do_while,
    ast.Return: Machine.do_return,
    ast.Raise: Machine.do_raise,
    ast.Assert: Machine.do_assert,
    ast.With: Machine.do_with,
    ast.Try: Machine.do_try,
    ast.FunctionDef: Machine.do_function,
    ast.Import: Machine.do_import,
    ast.ImportFrom: Machine.do_import,
    ast.Break: Machine.do_break,
    ast.Continue: Machine.do_continue,
    ast.Delete: Machine.do_delete,
}


def paths(
    program: Program,
    start: Callable[[Machine], Value],
    known: Mapping[str, Value] | None = None,
    limit: int = _MAX_PATHS,
) -> list[Path]:
    """All ways through some code, one for each way to answer unknown conditions.

    Args:
        start: Makes its values anew and calls what is asked about; it is run once for each way.
        limit: How many ways at most.

    Raises:
        TooMuch: It cannot be followed to its end.
    """
    waiting: list[tuple[bool, ...]] = [()]
    found: list[Path] = []
    while waiting and len(found) < limit:
        choices = waiting.pop(0)
        machine = Machine(program, choices, known)
        try:
            value, thrown = start(machine), None
        except Thrown as error:
            value, thrown = None, error
        except RecursionError as error:
            raise TooMuch from error
        found.append(Path(value, thrown, tuple(machine.said)))
        taken = tuple(machine.taken)
        waiting += [(*taken[:n], True) for n in range(len(choices), len(taken))]
    return found


def _yields(node: Function) -> bool:
    known: bool | None = getattr(node, "_yields", None)
    if known is None:
        known = any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in walk(node))
        node._yields = known  # type: ignore[union-attr]
    return known


def _catches(handler: ast.ExceptHandler, kind: str) -> bool:
    if handler.type is None:
        return True
    names = {n.id for n in walk(handler.type) if isinstance(n, ast.Name)}
    return bool(names & {kind, "Exception", "BaseException"})
