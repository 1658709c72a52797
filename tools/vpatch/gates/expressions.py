"""Expressions, for code that is read as if it ran."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any, ClassVar

from vpatch.gates.calls import Calls
from vpatch.gates.truth import KEYS, PLAIN, has_unknown, is_equal, is_same, truth_of
from vpatch.gates.values import (
    UNKNOWN,
    Code,
    Obj,
    Tensor,
    Unknown,
    Value,
    show_repr,
    type_name,
)

_MAX_ITEMS = 10_000
Kinds = dict[type[ast.expr], Callable[..., Value]]
_OPERATORS: dict[type[ast.AST], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.BitOr: ("|", operator.or_),
    ast.BitAnd: ("&", operator.and_),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}


class Expressions(Calls):
    """Works out what expressions stand for."""

    kinds: ClassVar[Kinds] = {}

    def decide(self) -> bool:
        raise NotImplementedError

    def expression(self, node: ast.expr, names: dict[str, Value]) -> Value:
        """What an expression stands for."""
        self.steps += 1
        handler = self.kinds.get(type(node))
        return UNKNOWN if handler is None else handler(self, node, names)

    def truth(self, node: ast.expr, names: dict[str, Value]) -> bool:
        """Whether a condition holds; an unknown one is decided."""
        known = self.known_truth(node, names)
        return self.decide() if known is None else known

    def known_truth(self, node: ast.expr, names: dict[str, Value]) -> bool | None:
        """Whether a condition holds; None where that is unknown."""
        return truth_of(self.expression(node, names))

    def items(self, value: Value) -> list[Value] | None:
        """What a loop over a value meets; None where that is unknown."""
        if isinstance(value, (list, tuple, set, frozenset, dict, str, KEYS)):
            return list(value)[:_MAX_ITEMS]
        if value is None or isinstance(value, (bool, int, float)):
            raise self.throw("TypeError", f"'{type_name(value)}' object is not iterable")
        return None

    def store(self, target: ast.expr, value: Value, names: dict[str, Value]) -> None:
        """Assigns to a name, an attribute, an item, or several of them."""
        if isinstance(target, ast.Name):
            names[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self.expression(target.value, names)
            if isinstance(owner, Obj):
                owner.attrs[target.attr] = value
        elif isinstance(target, ast.Subscript):
            owner = self.expression(target.value, names)
            key = self.expression(target.slice, names)
            if isinstance(owner, (dict, list)) and isinstance(key, (str, int, tuple)):
                self._set_item(owner, key, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target.elts, value, names)

    def _set_item(self, owner: Any, key: Any, value: Value) -> None:
        try:
            owner[key] = value
        except (IndexError, TypeError) as error:
            raise self.throw(type(error).__name__, str(error)) from error

    def _unpack(self, targets: list[ast.expr], value: Value, names: dict[str, Value]) -> None:
        if isinstance(value, Tensor):
            self._unpack_tensor(len(targets))
        items = self.items(value)
        if items is None or any(isinstance(each, ast.Starred) for each in targets):
            items = [UNKNOWN] * len(targets)
        if len(items) != len(targets):
            few = len(items) < len(targets)
            text = (
                f"not enough values to unpack (expected {len(targets)}, got {len(items)})"
                if few
                else f"too many values to unpack (expected {len(targets)})"
            )
            raise self.throw("ValueError", text)
        for target, item in zip(targets, items, strict=True):
            inner = target.value if isinstance(target, ast.Starred) else target
            self.store(inner, item, names)

    def _unpack_tensor(self, wanted: int) -> None:
        # One row a token, so the number of rows is the number of parts: silent if it fits.
        text = f"too many values to unpack (expected {wanted})"
        raise self.throw("ValueError", text)

    def binary(self, op: ast.AST, left: Value, right: Value, node: ast.AST) -> Value:
        """``left OP right``."""
        sign, function = _OPERATORS.get(type(op), ("", None))
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            return self._of_tensors(sign, left, right)
        if function is None or not (isinstance(left, PLAIN) and isinstance(right, PLAIN)):
            return UNKNOWN
        if isinstance(op, ast.Mod) and isinstance(left, str):
            return UNKNOWN
        if isinstance(op, ast.Mult) and max(_size(left), _size(right)) > _MAX_ITEMS:
            return UNKNOWN
        try:
            return function(left, right)
        except (TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
            if has_unknown(left) or has_unknown(right):
                return UNKNOWN
            self.step(node)
            raise self.throw(type(error).__name__, str(error)) from error

    def _of_tensors(self, sign: str, left: Value, right: Value) -> Value:
        for each in (left, right):
            if isinstance(each, Unknown):
                return UNKNOWN
            if each is None:
                text = (
                    f"unsupported operand type(s) for {sign}: "
                    f"'{type_name(left)}' and '{type_name(right)}'"
                )
                raise self.throw("TypeError", text)
        tensor = left if isinstance(left, Tensor) else right
        names = [e.text if isinstance(e, Tensor) else show_repr(e) for e in (left, right)]
        return Tensor(f"({names[0]} {sign} {names[1]})", tensor.shape, tensor.dtype)

    def _binary_node(self, node: ast.BinOp, names: dict[str, Value]) -> Value:
        left = self.expression(node.left, names)
        return self.binary(node.op, left, self.expression(node.right, names), node)

    def _compare(self, node: ast.Compare, names: dict[str, Value]) -> Value:
        left = self.expression(node.left, names)
        result: Value = True
        for op, each in zip(node.ops, node.comparators, strict=True):
            right = self.expression(each, names)
            result = self._compared(op, left, right, node)
            if truth_of(result) is not True:
                return result
            left = right
        return result

    def _compared(self, op: ast.cmpop, left: Value, right: Value, node: ast.AST) -> Value:
        if isinstance(op, (ast.Is, ast.IsNot)):
            same = is_same(left, right)
            return UNKNOWN if same is None else same is isinstance(op, ast.Is)
        if isinstance(op, (ast.In, ast.NotIn)):
            found = self._contains(right, left)
            return UNKNOWN if found is None else found is isinstance(op, ast.In)
        if isinstance(op, (ast.Eq, ast.NotEq)):
            equal = is_equal(left, right)
            return UNKNOWN if equal is None else equal is isinstance(op, ast.Eq)
        return self.binary(op, left, right, node)

    def _contains(self, container: Value, item: Value) -> bool | None:
        if isinstance(container, str):
            return item in container if isinstance(item, str) else None
        if not isinstance(container, (list, tuple, set, frozenset, dict, KEYS)):
            if container is None:
                raise self.throw("TypeError", "argument of type 'NoneType' is not iterable")
            return None
        answers = [is_equal(each, item) for each in container]
        return True if True in answers else (None if None in answers else False)

    def _bool(self, node: ast.BoolOp, names: dict[str, Value]) -> Value:
        stops = isinstance(node.op, ast.Or)
        value: Value = None
        for each in node.values:
            value = self.expression(each, names)
            truth = truth_of(value)
            if truth is None and each is not node.values[-1]:
                if self.decide() == stops:
                    return stops if isinstance(each, ast.Compare) else value
                continue
            if truth is stops:
                return value
        return value

    def _unary(self, node: ast.UnaryOp, names: dict[str, Value]) -> Value:
        value = self.expression(node.operand, names)
        if isinstance(node.op, ast.Not):
            truth = truth_of(value)
            return UNKNOWN if truth is None else not truth
        if isinstance(node.op, ast.USub) and isinstance(value, (int, float)):
            return -value
        return UNKNOWN

    def _if_expression(self, node: ast.IfExp, names: dict[str, Value]) -> Value:
        chosen = node.body if self.truth(node.test, names) else node.orelse
        return self.expression(chosen, names)

    def _name(self, node: ast.Name, names: dict[str, Value]) -> Value:
        return self.name(node.id, names)

    def _attribute(self, node: ast.Attribute, names: dict[str, Value]) -> Value:
        value = self.expression(node.value, names)
        if value is not None or node.attr.startswith("__"):
            self.at = (self.module.path, node.lineno)
        return self.attribute(value, node.attr)

    def _call_node(self, node: ast.Call, names: dict[str, Value]) -> Value:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            return self.super_of(names)
        function = self.expression(node.func, names)
        args: list[Value] = []
        for each in node.args:
            value = self.expression(each.value if isinstance(each, ast.Starred) else each, names)
            if isinstance(each, ast.Starred):
                items = self.items(value)
                if items is None:
                    return UNKNOWN
                args += items
            else:
                args.append(value)
        kwargs: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.expression(keyword.value, names)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
            elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
                kwargs.update(value)
            else:
                kwargs["*"] = UNKNOWN
        self.step(node)
        return self.call(function, args, kwargs)

    def _walrus(self, node: ast.NamedExpr, names: dict[str, Value]) -> Value:
        names[node.target.id] = self.expression(node.value, names)
        return names[node.target.id]

    def _lambda(self, node: ast.Lambda, names: dict[str, Value]) -> Value:
        return Code(self.module, node, None, names)


def _size(value: Value) -> int:
    return value if isinstance(value, int) else len(value) if hasattr(value, "__len__") else 0


EXPRESSIONS: Kinds = {
    ast.BinOp: Expressions._binary_node,
    ast.Compare: Expressions._compare,
    ast.BoolOp: Expressions._bool,
    ast.UnaryOp: Expressions._unary,
    ast.IfExp: Expressions._if_expression,
    ast.Name: Expressions._name,
    ast.Attribute: Expressions._attribute,
    ast.Call: Expressions._call_node,
    ast.NamedExpr: Expressions._walrus,
    ast.Lambda: Expressions._lambda,
}
