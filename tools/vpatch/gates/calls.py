"""Calls, for code that is read as if it ran: functions of the tree, classes, stand-ins."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable
from typing import Any

from vpatch.gates.attributes import Attributes
from vpatch.gates.classes import Class
from vpatch.gates.values import (
    UNKNOWN,
    Bound,
    ClassValue,
    Code,
    Foreign,
    Native,
    Obj,
    Super,
    Thrown,
    Unknown,
    Value,
)

_MAX_DEPTH = 24
_LOG = {"debug", "info", "warning", "error", "exception", "critical"}


class Calls(Attributes):
    """Calls what values stand for."""

    depth = 0

    def run_body(self, code: Code, names: dict[str, Value]) -> Value:
        raise NotImplementedError

    def call(self, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """``function(*args, **kwargs)``."""
        if isinstance(function, Bound):
            return self._function(function.code, [function.to, *args], kwargs)
        if isinstance(function, ClassValue):
            return self._make(function.of, args, kwargs)
        if function is None:
            raise self.throw("TypeError", "'NoneType' object is not callable")
        kinds: dict[type[Any], Callable[..., Value]] = {
            Native: self._native,
            Code: self._function,
            Foreign: self._foreign,
            Obj: self._instance,
        }
        how = kinds.get(type(function))
        return UNKNOWN if how is None else how(function, args, kwargs)

    def _native(self, function: Native, args: list[Value], kwargs: dict[str, Value]) -> Value:
        try:
            return function.call(self, *args, **kwargs)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            if any(isinstance(each, Unknown) for each in [*args, *kwargs.values()]):
                return UNKNOWN
            raise self.throw(type(error).__name__, str(error)) from error

    def _function(self, code: Code, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if self.depth >= _MAX_DEPTH or isinstance(code.node, ast.AsyncFunctionDef):
            return UNKNOWN
        names = {**(code.outer or {}), **self._bind(code, args, kwargs)}
        before = self.module, self.owner, self.at
        self.module, self.owner = code.module, code.owner
        if code.owner is not None and args:
            names["*self"] = args[0]
        self.depth += 1
        try:
            return self.run_body(code, names)
        finally:
            self.depth -= 1
            self.module, self.owner, self.at = before

    def _bind(self, code: Code, args: list[Value], kwargs: dict[str, Value]) -> dict[str, Value]:
        """Arguments to parameters, as Python does it, with its complaints."""
        given = code.node.args
        places = [*given.posonlyargs, *given.args]
        names = {each.arg: value for each, value in zip(places, args, strict=False)}
        extra = args[len(places) :]
        name = getattr(code.node, "name", "<lambda>")
        if given.vararg is not None:
            names[given.vararg.arg] = tuple(extra)
        elif extra:
            raise self.throw(
                "TypeError",
                f"{name}() takes {len(places)} positional arguments but {len(args)} were given",
            )
        allowed = {each.arg for each in [*given.args, *given.kwonlyargs]}
        rest = {key: value for key, value in kwargs.items() if key not in allowed}
        if "*" in rest:  # **unknown
            names.update({each: UNKNOWN for each in allowed if each not in names})
            rest.pop("*")
        if rest and given.kwarg is None:
            text = f"{name}() got an unexpected keyword argument '{next(iter(rest))}'"
            raise self.throw("TypeError", text)
        if given.kwarg is not None:
            names[given.kwarg.arg] = rest
        names.update({key: value for key, value in kwargs.items() if key in allowed})
        self._defaults(code, places, names, name)
        return names

    def _defaults(
        self, code: Code, places: list[ast.arg], names: dict[str, Value], name: str
    ) -> None:
        given = code.node.args
        without = len(places) - len(given.defaults)
        defaults: dict[str, Any] = {
            each.arg: value for each, value in zip(places[without:], given.defaults, strict=True)
        }
        for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
            if default is not None:
                defaults[each.arg] = default
        for each in [*places, *given.kwonlyargs]:
            if each.arg in names:
                continue
            if each.arg not in defaults:
                text = f"{name}() missing 1 required positional argument: '{each.arg}'"
                raise self.throw("TypeError", text)
            names[each.arg] = self.in_module(code.module, defaults[each.arg])

    def _make(self, of: Class, args: list[Value], kwargs: dict[str, Value]) -> Value:
        made = Obj(of, of.name)
        found = of.method("__init__")
        if is_language_model(of):
            made.strict = True
            if found is not None:
                self._function(Code(found[0].module, found[1], found[0]), [made, *args], kwargs)
        else:
            made.attrs.update({key: value for key, value in kwargs.items() if key != "*"})
        return made

    def _instance(self, value: Obj, args: list[Value], kwargs: dict[str, Value]) -> Value:
        for name in ("__call__", "forward"):
            called = value.attrs.get(name)
            if called is None and value.of is not None:
                found = value.of.method(name)
                called = Bound(Code(found[0].module, found[1], found[0]), value) if found else None
            if called is not None:
                runs = isinstance(called, Native) or value.strict or name == "__call__"
                return self.call(called, args, kwargs) if runs else UNKNOWN
        return UNKNOWN

    def _foreign(self, function: Foreign, args: list[Value], kwargs: dict[str, Value]) -> Value:
        last = function.dotted.rpartition(".")[2]
        if last.endswith(("Error", "Exception", "Exit")) or last == "StopIteration":
            return Thrown(last, self.text(args[0]) if args else "", self.place)
        if function.dotted.startswith("logger."):
            self._log(last, args)
            return None
        if function.dotted == "pydantic.Field":
            return kwargs.get("default", args[0] if args else UNKNOWN)
        if function.dotted.startswith("object."):
            return None
        return Unknown(f"{function.dotted}()")

    def _log(self, method: str, args: list[Value]) -> None:
        level = method.removesuffix("_once")
        if level not in _LOG or not args:
            return
        text = self.text(args[0])
        with contextlib.suppress(TypeError, ValueError):
            text %= tuple(self.text(each) for each in args[1:])
        self.said.append((level, text))

    def super_of(self, names: dict[str, Value]) -> Value:
        """``super()`` in a method."""
        if self.owner is None:
            return UNKNOWN
        return Super(self.owner, names.get("*self"))


def is_language_model(of: Class) -> bool:
    """Whether a class is a language model or one's decoder: what is followed in full."""
    return "torch.nn.Module" in of.all_foreign and of.has("embed_input_ids")
