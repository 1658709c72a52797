"""Python's builtins, and stand-ins for what models and runners call, for code that is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vpatch.gates.classes import Class
from vpatch.gates.truth import truth_of
from vpatch.gates.values import (
    UNKNOWN,
    ClassValue,
    Foreign,
    Native,
    Obj,
    Tensor,
    Unknown,
    Value,
    show,
    show_repr,
)

if TYPE_CHECKING:
    from vpatch.gates.machine import Machine

_PYTHON = {"int": int, "str": str, "list": list, "tuple": tuple, "dict": dict, "bool": bool,
           "float": float, "set": set}  # fmt: skip
_BASIC = (bool, int, float, str, list, tuple, dict, set, type(None))


def _isinstance(run: Machine, value: Value, kinds: Value) -> Value:
    answers = [_is_a(run, value, kind) for kind in _flat(kinds)]
    return True if True in answers else (UNKNOWN if None in answers else False)


def _is_a(run: Machine, value: Value, kind: Value) -> bool | None:
    if isinstance(value, Unknown) or isinstance(kind, Unknown):
        return None
    if isinstance(kind, ClassValue):
        return isinstance(value, Obj) and _is_instance(run, value, kind.of)
    if isinstance(kind, Native):
        if kind.name in _PYTHON:
            return isinstance(value, _PYTHON[kind.name])
        return isinstance(value, ClassValue) if kind.name == "type" else None
    return _is_foreign(value, kind.dotted if isinstance(kind, Foreign) else "")


def _is_foreign(value: Value, name: str) -> bool | None:
    if name == "torch.Tensor" or isinstance(value, Tensor):
        return isinstance(value, Tensor) and name == "torch.Tensor"
    if isinstance(value, Obj) and value.of is not None:
        return True if name in value.of.all_foreign else None
    return False if isinstance(value, _BASIC) else None


def _is_instance(run: Machine, value: Obj, of: Class) -> bool | None:
    if value.of is None:
        return value.name == of.name
    if any(each is of for each in value.of.mro):
        return True
    if not (of.is_protocol and _is_checked(of)):
        return False
    members = {
        name
        for each in of.mro
        if each.is_protocol
        for name in (*each.methods, *each.values)
        if not name.startswith("_")
    }
    return all(run.has_attribute(value, name) is not False for name in members)


def _is_checked(of: Class) -> bool:
    return any("runtime_checkable" in ast_name(each) for each in of.node.decorator_list)


def ast_name(node: Any) -> str:
    """The last part of a decorator's name."""
    return getattr(node, "attr", getattr(node, "id", ""))


def _flat(kinds: Value) -> list[Value]:
    return [e for k in kinds for e in _flat(k)] if isinstance(kinds, tuple) else [kinds]


def _hasattr(run: Machine, value: Value, name: Value) -> Value:
    found = run.has_attribute(value, name) if isinstance(name, str) else None
    return UNKNOWN if found is None else found


def _getattr(run: Machine, value: Value, name: Value, *default: Value) -> Value:
    if not isinstance(name, str):
        return UNKNOWN
    if default:
        return run.attribute_or(value, name, default[0])
    return run.attribute(value, name)


def _setattr(_run: Machine, value: Value, name: Value, to: Value) -> Value:
    if isinstance(value, Obj) and isinstance(name, str):
        value.attrs[name] = to


def _any(_run: Machine, values: Value) -> Value:
    return _all_or_any(values, stops=True)


def _all(_run: Machine, values: Value) -> Value:
    return _all_or_any(values, stops=False)


def _all_or_any(values: Value, *, stops: bool) -> Value:
    if not isinstance(values, (list, tuple, set)):
        return UNKNOWN
    truths = [truth_of(each) for each in values]
    return stops if stops in truths else (UNKNOWN if None in truths else not stops)


def _type(_run: Machine, value: Value) -> Value:
    if isinstance(value, Obj):
        return ClassValue(value.of) if value.of else Obj(None, value.name, {"__name__": value.name})
    if isinstance(value, _BASIC) and type(value).__name__ in _PYTHON:
        return _BUILTINS[type(value).__name__]
    return UNKNOWN


def _len(_run: Machine, value: Value) -> Value:
    return len(value) if isinstance(value, (str, list, tuple, dict, set)) else UNKNOWN


def _next(_run: Machine, values: Value, *default: Value) -> Value:
    if not isinstance(values, (list, tuple)):
        return UNKNOWN
    return values[0] if values else (default[0] if default else UNKNOWN)


def _islice(_run: Machine, values: Value, *ends: Value) -> Value:
    if not isinstance(values, (list, tuple)) or not all(type(each) is int for each in ends):
        return UNKNOWN
    return list(values)[slice(*ends)]


def _enumerate(_run: Machine, values: Value, start: Value = 0) -> Value:
    if not isinstance(values, (list, tuple)) or type(start) is not int:
        return UNKNOWN
    return list(enumerate(values, start))


def _zip(_run: Machine, *values: Value, **_how: Value) -> Value:
    known = all(isinstance(each, (list, tuple)) for each in values)
    return list(zip(*values, strict=False)) if known else UNKNOWN


def _cat(_run: Machine, tensors: Value, *_args: Value, **_kwargs: Value) -> Value:
    if not isinstance(tensors, (list, tuple)) or not tensors:
        return UNKNOWN
    if not all(isinstance(each, Tensor) for each in tensors):
        return UNKNOWN
    texts = ", ".join(each.text for each in tensors)
    return Tensor(f"[{texts}]", tensors[0].shape, tensors[0].dtype)


def _same(_run: Machine, tensor: Tensor, *_args: Value, **_kwargs: Value) -> Value:
    return tensor


def _copied(_run: Machine, tensor: Tensor, *_args: Value, **_kwargs: Value) -> Value:
    return replace(tensor)  # another one: what is written to the first is not in it


def _cast(_run: Machine, _kind: Value, value: Value) -> Value:
    return value


def _identity(_run: Machine, value: Value = UNKNOWN, *_args: Value, **_kwargs: Value) -> Value:
    return value


def _plain(function: Callable[..., Any]) -> Callable[..., Value]:
    """A builtin of Python's, where all that it gets is known."""

    def called(_run: Machine, *args: Value, **kwargs: Value) -> Value:
        deep = [e for a in args for e in (a if isinstance(a, (list, tuple, set)) else [a])]
        if not all(isinstance(each, _BASIC) for each in deep) or kwargs:
            return UNKNOWN
        return function(*args)

    return called


def _container(kind: type[Any]) -> Callable[..., Value]:
    def called(run: Machine, *args: Value, **kwargs: Value) -> Value:
        if kind is dict:
            return dict(*args, **kwargs) if not args or _is_pairs(args[0]) else UNKNOWN
        if args and run.items(args[0]) is None:  # None and numbers are a TypeError
            return UNKNOWN
        return kind(*args)

    return called


def _is_pairs(value: Value) -> bool:
    """Whether a dict can be made of it."""
    if isinstance(value, list):
        return all(isinstance(e, tuple) and len(e) == 2 and isinstance(e[0], str) for e in value)  # noqa: PLR2004
    return isinstance(value, dict)


_CALLS: dict[str, Callable[..., Value]] = {
    "isinstance": _isinstance,
    "hasattr": _hasattr,
    "getattr": _getattr,
    "setattr": _setattr,
    "any": _any,
    "all": _all,
    "type": _type,
    "len": _len,
    "next": _next,
    "iter": _identity,
    "enumerate": _enumerate,
    "zip": _zip,
    "tuple": _container(tuple),
    "list": _container(list),
    "set": _container(set),
    "frozenset": _container(set),
    "dict": _container(dict),
    "sorted": _plain(sorted),
    "range": _plain(lambda *args: list(range(*args))[:10_000]),
    "min": _plain(min),
    "max": _plain(max),
    "sum": _plain(sum),
    "abs": _plain(abs),
    "int": _plain(int),
    "float": _plain(float),
    "bool": lambda _run, value=False: UNKNOWN if truth_of(value) is None else truth_of(value),
    "str": lambda _run, value="": UNKNOWN if isinstance(value, Unknown) else show(value),
    "repr": lambda _run, value: UNKNOWN if isinstance(value, Unknown) else show_repr(value),
}
_BUILTINS = {name: Native(name, call) for name, call in _CALLS.items()}

KNOWN: dict[str, Value] = {
    **{f"builtins.{name}": native for name, native in _BUILTINS.items()},
    "typing.cast": Native("cast", _cast),
    "itertools.islice": Native("islice", _islice),
    "typing.get_args": Native("get_args", lambda _run, _kind: UNKNOWN),
    "copy.deepcopy": Native("deepcopy", _identity),
    "copy.copy": Native("copy", _identity),
    "torch.cat": Native("cat", _cat),
    **{
        f"tensor.{name}": same
        for name, same in dict.fromkeys(
            ("contiguous", "to", "view", "detach", "clamp", "clamp_", "flatten"), _same
        ).items()
    },
    "tensor.clone": _copied,
    "logger": Foreign("logger"),
    "init_logger": Native("init_logger", lambda _run, *_args: Foreign("logger")),
}
