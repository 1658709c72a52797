"""Classes across modules: bases, methods, attributes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from vpatch.gates.modules import Defined, Function, Imported, Module, Program
from vpatch.gates.walk import walk

# Bases that add nothing that a check asks for.
_PLAIN = {"object", "Protocol", "Generic", "ABC", "Enum", "NamedTuple", "TypedDict"}
_MAX_BASES = 200
# What every torch.nn.Module has.
NN_MODULE = frozenset(
    [
        *("add_module", "apply", "bfloat16", "buffers", "children", "compile", "cpu", "cuda"),
        *("double", "eval", "extra_repr", "float", "forward", "get_buffer", "get_extra_state"),
        *("get_parameter", "get_submodule", "half", "load_state_dict", "modules"),
        *("named_buffers", "named_children", "named_modules", "named_parameters", "parameters"),
        *("register_backward_hook", "register_buffer", "register_forward_hook"),
        *("register_forward_pre_hook", "register_full_backward_hook"),
        *("register_load_state_dict_post_hook", "register_load_state_dict_pre_hook"),
        *("register_module", "register_parameter", "register_state_dict_post_hook"),
        *("requires_grad_", "set_extra_state", "set_submodule", "share_memory", "state_dict"),
        *("to", "to_empty", "train", "training", "type", "xpu", "zero_grad"),
        *("_parameters", "_modules", "_buffers", "__call__"),
    ]
)


@dataclass(frozen=True, eq=False)
class Class:
    """A class of the tree.

    Attributes:
        bases: Those that the tree has.
        foreign: Dotted names of those that it does not have: ``torch.nn.Module``.
    """

    name: str
    module: Module
    node: ast.ClassDef
    bases: tuple[Class, ...]
    foreign: tuple[str, ...]

    @cached_property
    def methods(self) -> dict[str, Function]:
        """Its own methods; of overloads the last."""
        return {n.name: n for n in _members(self.node.body) if isinstance(n, Function)}

    @cached_property
    def values(self) -> dict[str, ast.expr | None]:
        """Its own class attributes, with their value; None where there is only a type."""
        found: dict[str, ast.expr | None] = {}
        for node in _members(self.node.body):
            if isinstance(node, ast.Assign):
                found.update((t.id, node.value) for t in node.targets if isinstance(t, ast.Name))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found[node.target.id] = node.value
        return found

    @cached_property
    def assigned(self) -> frozenset[str]:
        """Attributes that its methods set on their first argument, or by ``setattr``."""
        return frozenset(name for method in self.methods.values() for name in _set_in(method))

    @cached_property
    def mro(self) -> tuple[Class, ...]:
        """Itself and all bases, the nearest first; close enough to Python's order."""
        order: list[Class] = []
        for base in self.bases:
            order += base.mro
        # A class that several have as a base stands behind all of them.
        kept = [c for n, c in enumerate(order) if c not in order[n + 1 :]]
        return (self, *kept[:_MAX_BASES])

    @cached_property
    def all_foreign(self) -> frozenset[str]:
        """Bases of its bases that are not in the tree, without those that add nothing."""
        found = {name for each in self.mro for name in each.foreign}
        return frozenset(n for n in found if n.rpartition(".")[2] not in _PLAIN)

    @property
    def is_protocol(self) -> bool:
        """Whether it is itself a protocol."""
        return any(name.rpartition(".")[2] == "Protocol" for name in self.foreign)

    @property
    def is_opaque(self) -> bool:
        """Whether it may have attributes that nobody can see here."""
        return bool(self.all_foreign - {"torch.nn.Module"}) or any(
            "__getattr__" in each.methods for each in self.mro
        )

    def method(self, name: str) -> tuple[Class, Function] | None:
        """A method, and the class that has it."""
        return next(((c, c.methods[name]) for c in self.mro if name in c.methods), None)

    def value(self, name: str) -> tuple[Class, ast.expr | None] | None:
        """A class attribute with a value, and the class that has it."""
        return next(((c, c.values[name]) for c in self.mro if c.values.get(name) is not None), None)

    def has(self, name: str) -> bool:
        """Whether any class of its order has it, as method, class attribute or by ``self.``."""
        return any(
            name in each.methods or name in each.values or name in each.assigned
            for each in self.mro
        )

    def is_a(self, name: str) -> bool:
        """Whether a class of this name is in its order."""
        return any(each.name == name for each in self.mro)


def class_of(program: Program, module: Module, name: str) -> Class | None:
    """The class that a name of a module stands for."""
    found = program.resolve(module, name)
    if isinstance(found, Defined) and isinstance(found.node, ast.ClassDef):
        return make_class(program, found.module, found.node)
    return None


def make_class(program: Program, module: Module, node: ast.ClassDef, depth: int = 0) -> Class:
    """A class with its bases, each once in a program."""
    key = (module.dotted, node.name)
    cache: dict[tuple[str, str], Class] = program.made
    if key not in cache or cache[key].node is not node:
        bases, foreign = [], []
        for expression in node.bases if depth < _MAX_BASES else ():
            base = _base(program, module, expression, depth, node)
            if isinstance(base, Class):
                bases.append(base)
            else:
                foreign.append(base)
        cache[key] = Class(node.name, module, node, tuple(bases), tuple(foreign))
    return cache[key]


def _base(
    program: Program, module: Module, expression: ast.expr, depth: int, of: ast.ClassDef
) -> Class | str:
    if isinstance(expression, ast.Subscript):  # Generic[T], Base[T]
        expression = expression.value
    dotted = ast.unparse(expression)
    first, _, rest = dotted.partition(".")
    found = program.resolve(module, first)
    for part in filter(None, rest.split(".")):
        if not (isinstance(found, Defined) and found.node is None):
            break
        found = program.resolve(found.module, part)
    if isinstance(found, Defined) and isinstance(found.node, ast.ClassDef) and found.node is not of:
        return make_class(program, found.module, found.node, depth + 1)
    if isinstance(found, Imported):
        return ".".join(filter(None, (found.module, found.name, rest)))
    return dotted


def _members(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from _members(node.body)
            yield from _members(node.orelse)


def _set_in(method: Function) -> Iterator[str]:
    arguments = [*method.args.posonlyargs, *method.args.args]
    if not arguments:
        return
    own = arguments[0].arg
    for node in walk(method):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id == own:
                yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
            yield from _set_by_call(node, own)


def _set_by_call(node: ast.Call, own: str) -> Iterator[str]:
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    texts = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    first = node.args[0] if node.args else None
    if name == "setattr" and isinstance(first, ast.Name) and first.id == own:
        yield from texts or ["*"]
    elif name in {"register_buffer", "register_parameter", "add_module"}:
        yield from texts[:1]
