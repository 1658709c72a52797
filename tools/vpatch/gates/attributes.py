"""Attributes, for code that is read as if it ran."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from vpatch.gates.classes import NN_MODULE, Class
from vpatch.gates.modules import Function
from vpatch.gates.scope import MISSING, Scope
from vpatch.gates.values import (
    UNKNOWN,
    Bound,
    ClassValue,
    Code,
    Foreign,
    ModuleValue,
    Native,
    Obj,
    Super,
    Tensor,
    Thrown,
    Unknown,
    Value,
    show,
    type_name,
)

_CONTAINERS = (str, list, tuple, dict, set, frozenset)
_PROPERTIES = {"property", "cached_property"}
# What every instance answers, whatever its class.
_EVERYWHERE = {"__dict__", "__doc__", "__module__", "__init__", "__eq__", "__hash__"}


class Attributes(Scope):
    """Looks up what attributes stand for."""

    def attribute(self, value: Value, name: str) -> Value:
        """``value.name``."""
        found = self.find_attribute(value, name)
        if found is not MISSING:
            return found
        if isinstance(value, Obj) and not value.strict and self._may_have(value, name):
            return Unknown(f"{value.name}.{name}")
        kind = (
            f"type object '{value.of.name}'"
            if isinstance(value, ClassValue)
            else (f"'{type_name(value)}' object")
        )
        raise self.throw("AttributeError", f"{kind} has no attribute '{name}'")

    def _may_have(self, value: Obj, name: str) -> bool:
        """A config of a checkpoint may have whatever another file of the tree names."""
        if value.of is not None or not value.name.endswith("Config"):
            return True
        return self.program.tree.has_word(name.encode(), but=self.module.path)

    def attribute_or(self, value: Value, name: str, default: Value) -> Value:
        """``getattr(value, name, default)``."""
        try:
            found = self.find_attribute(value, name)
        except Thrown as thrown:
            if thrown.kind != "AttributeError":
                raise
            return default
        return default if found is MISSING else found

    def has_attribute(self, value: Value, name: str) -> bool | None:
        """``hasattr``; None where that cannot be known."""
        if isinstance(value, Obj) and name in value.attrs:
            return True  # whatever it is
        found = self.attribute_or(value, name, MISSING)
        if isinstance(found, Unknown):
            return None
        return found is not MISSING

    def find_attribute(self, value: Value, name: str) -> Any:
        """An attribute, or a marker where there is none."""
        finder = next((f for kind, f in _FINDERS.items() if isinstance(value, kind)), None)
        if finder is not None:
            return finder(self, value, name)
        return MISSING if value is None else UNKNOWN

    def of_class_value(self, value: ClassValue, name: str) -> Any:
        """An attribute of a class."""
        return self._of_class(value.of, name, value)

    def of_foreign(self, value: Foreign, name: str) -> Any:
        """An attribute of something of another package."""
        dotted = f"{value.dotted}.{name}"
        return self.known.get(dotted, Foreign(dotted))

    def of_instance(self, value: Obj, name: str) -> Any:
        """An attribute of an instance."""
        if name in value.attrs:
            return value.attrs[name]
        if name == "__class__":
            return ClassValue(value.of) if value.of else Foreign(value.name)
        found = MISSING if value.of is None else self._of_class(value.of, name, value)
        return found if found is not MISSING else _maybe_set(value, name)

    def _of_class(self, of: Class, name: str, to: Value) -> Any:
        if name == "__name__":
            return of.name
        for each in of.mro:
            if name in each.methods:
                return self._method(each, each.methods[name], to)
            expression = each.values.get(name)
            if expression is not None:
                return self.in_module(each.module, expression)
        return MISSING

    def of_super(self, value: Super, name: str) -> Any:
        """An attribute behind a class."""
        of = value.to.of if isinstance(value.to, (Obj, ClassValue)) else None
        order = of.mro if of else value.behind.mro
        behind = order[order.index(value.behind) + 1 :] if value.behind in order else ()
        for each in behind:
            if name in each.methods:
                return self._method(each, each.methods[name], value.to)
        return Foreign(f"object.{name}")

    def _method(self, owner: Class, node: Function, to: Value) -> Value:
        stand_in = self.known.get(f"{owner.name}.{node.name}")
        if stand_in is not None:
            return Native(
                node.name, lambda run, *args, **kwargs: stand_in(run, to, *args, **kwargs)
            )
        code = Code(owner.module, node, owner)
        decorators = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
        if "staticmethod" in decorators:
            return code
        if "classmethod" in decorators:
            return Bound(code, ClassValue(to.of) if isinstance(to, Obj) and to.of else to)
        if isinstance(to, ClassValue):
            return code
        if decorators & _PROPERTIES:
            return self.call(Bound(code, to), [], {})
        return Bound(code, to)

    def of_module(self, value: ModuleValue, name: str) -> Any:
        """An attribute of a module."""
        module = value.module
        found = self.global_name(module, name)
        if found is MISSING:
            inner = self.program.module(f"{module.dotted}.{name}")
            if inner is not None:
                return ModuleValue(inner)
            return UNKNOWN if "__getattr__" in module.functions else MISSING
        return found

    def of_tensor(self, value: Tensor, name: str) -> Value:
        """An attribute of a tensor."""
        if name == "shape":
            return value.shape or UNKNOWN
        if name == "dtype":
            return Foreign(value.dtype)
        method = self.known.get(f"tensor.{name}")
        if method is None:
            return Unknown(f"tensor.{name}")
        return Native(name, lambda run, *args, **how: method(run, value, *args, **how))

    def text(self, value: Value) -> str:
        """A value as a message shows it."""
        return f"{value.kind}: {value.text}" if isinstance(value, Thrown) else show(value)


def _maybe_set(value: Obj, name: str) -> Any:
    """An attribute that has not been set: unknown where something might have set it."""
    if value.of is None:
        return MISSING
    set_somewhere = any({name, "*"} & each.assigned for each in value.of.mro)
    annotated = not value.strict and any(name in each.values for each in value.of.mro)
    if set_somewhere or annotated or value.of.is_opaque or name in _EVERYWHERE:
        return Unknown(f"{value.name}.{name}")
    if "torch.nn.Module" in value.of.all_foreign and name in NN_MODULE:
        return Foreign(f"torch.nn.Module.{name}")
    return MISSING


def _of_container(_run: Attributes, value: Value, name: str) -> Any:
    method = getattr(value, name, None)
    if name.startswith("__") or method is None:
        return MISSING

    def called(_run: object, *args: Value, **kwargs: Value) -> Value:
        result = method(*args, **kwargs)
        return list(result) if name in {"items", "values"} else result

    return Native(name, called)


_FINDERS: dict[Any, Callable[..., Any]] = {
    Obj: Attributes.of_instance,
    ClassValue: Attributes.of_class_value,
    Super: Attributes.of_super,
    ModuleValue: Attributes.of_module,
    Foreign: Attributes.of_foreign,
    Tensor: Attributes.of_tensor,
    _CONTAINERS: _of_container,
}
