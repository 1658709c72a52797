"""Truth and equality of values, as far as they can be known."""

from __future__ import annotations

from vpatch.gates.values import (
    ClassValue,
    Foreign,
    ModuleValue,
    Obj,
    Tensor,
    Unknown,
    Value,
)

KEYS = type(dict[str, None]().keys())
PLAIN = (bool, int, float, str, bytes, list, tuple, dict, set, frozenset, KEYS, type(None))


def truth_of(value: Value) -> bool | None:
    """Whether a value counts as true; None where that is unknown."""
    if isinstance(value, (Unknown, Tensor, Foreign)):
        return None
    if isinstance(value, Obj):
        return None if value.of and value.of.has("__len__") else True
    return bool(value) if isinstance(value, PLAIN) else True


def is_same(left: Value, right: Value) -> bool | None:
    """``is``."""
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        return None
    if isinstance(left, (ClassValue, ModuleValue, Foreign)):
        return is_equal(left, right)
    return left is right if not isinstance(left, (str, int, tuple)) else is_equal(left, right)


def is_equal(left: Value, right: Value) -> bool | None:
    """``==``; None where that is unknown."""
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        return None
    if isinstance(left, ClassValue) and isinstance(right, ClassValue):
        return left.of is right.of
    if isinstance(left, Foreign) != isinstance(right, Foreign):
        other = right if isinstance(left, Foreign) else left
        return None if not isinstance(other, (ClassValue, type(None))) else False
    if has_unknown(left) or has_unknown(right):
        return None
    return bool(left == right)


def has_unknown(value: Value) -> bool:
    """Whether something in a value is unknown."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(has_unknown(each) for each in value)
    if isinstance(value, dict):
        return any(has_unknown(each) for each in value.values())
    return isinstance(value, Unknown)
