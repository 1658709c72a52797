"""What expressions stand for when code is read as if it ran: known values, and what is unknown.

Numbers, texts, tuples, lists, dicts and sets are Python's own.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vpatch.gates.classes import Class
from vpatch.gates.modules import Function, Module

Value = Any


@dataclass(frozen=True)
class Place:
    """A line of the tree."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, eq=False)
class Unknown:
    """A value that cannot be known from the source."""

    what: str = ""


UNKNOWN = Unknown()


@dataclass(eq=False)
class Obj:
    """An instance.

    Attributes:
        of: Its class; None for one that is made up here.
        name: What messages call its type.
        attrs: What has been set.
        strict: An attribute that nothing sets is an AttributeError; else it is unknown, unless
            somebody asks whether it is there: then it is not.
    """

    of: Class | None
    name: str
    attrs: dict[str, Value] = field(default_factory=dict)
    strict: bool = False


@dataclass(frozen=True)
class Tensor:
    """A tensor, as the sum of what it was made of."""

    text: str
    shape: tuple[Value, ...] = ()
    dtype: str = "torch.bfloat16"


@dataclass(frozen=True)
class Foreign:
    """Something of another package, by its dotted name."""

    dotted: str


@dataclass(frozen=True, eq=False)
class ClassValue:
    """A class of the tree, as a value."""

    of: Class


@dataclass(frozen=True, eq=False)
class ModuleValue:
    """A module of the tree, as a value."""

    module: Module


@dataclass(frozen=True, eq=False)
class Code:
    """A function of the tree.

    Attributes:
        owner: The class whose body it stands in.
        outer: The variables around a nested function or lambda.
    """

    module: Module
    node: Function | ast.Lambda
    owner: Class | None = None
    outer: dict[str, Value] | None = None


@dataclass(frozen=True, eq=False)
class Bound:
    """A method with its instance or class."""

    code: Code
    to: Value


@dataclass(frozen=True, eq=False)
class Super:
    """``super()``: what stands behind a class in the order of an instance's class."""

    behind: Class
    to: Value


@dataclass(frozen=True, eq=False)
class Native:
    """A function that is known here: builtins, and stand-ins for what the tree calls."""

    name: str
    call: Callable[..., Value]


class Thrown(Exception):  # noqa: N818 - the code's exception, not ours
    """The code that is read raises.

    Attributes:
        kind: The exception's class name.
        text: Its message, as far as it is known.
        place: The line that raises.
    """

    def __init__(self, kind: str, text: str, place: Place) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.text = text
        self.place = place


class TooMuch(Exception):  # noqa: N818
    """More steps than a check may take: nothing is said."""


def show(value: Value) -> str:
    """A value as an f-string would write it; what is unknown as an ellipsis."""
    if isinstance(value, Unknown):
        return "..."
    if isinstance(value, (ClassValue,)):
        return value.of.name
    if isinstance(value, (Obj, Foreign, Code, Bound, Native, ModuleValue, Super)):
        return str(getattr(value, "name", None) or getattr(value, "dotted", "..."))
    if isinstance(value, (list, tuple)):
        inner = ", ".join(show_repr(each) for each in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return str(value)


def show_repr(value: Value) -> str:
    """The same, as ``repr`` would."""
    return repr(value) if isinstance(value, str) else show(value)


def type_name(value: Value) -> str:
    """What an error message calls a value's type."""
    if isinstance(value, (Obj, Tensor)):
        return value.name if isinstance(value, Obj) else "Tensor"
    return "NoneType" if value is None else type(value).__name__
