"""What a call calls, and which of its parameters takes which of the arguments."""

from __future__ import annotations

import ast
import difflib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from vpatch.gates.arguments import misfit, misfit_of
from vpatch.gates.classes import Class, class_of, make_class
from vpatch.gates.modules import Defined, Function, Module
from vpatch.gates.walk import walk
from vpatch.rebase.guard import kinds
from vpatch.rebase.guard.identity import alike
from vpatch.rebase.guard.library import Library
from vpatch.rebase.guard.override import signature
from vpatch.rebase.guard.tables import BUILTINS

_ALIKE = 0.6
_VALUES = ("property", "cached_property", "setter", "getter", "deleter")
_FIELDS = ("dataclass", "NamedTuple")


@dataclass(frozen=True, eq=False)
class Callee:
    """A function, or a class as a call makes it.

    Attributes:
        name: As a person knows it.
        function: What takes the arguments; None where a class's fields do.
        bound: The first parameter is given by what stands in front of the name.
        fields: Of a class without a function of its own, in order.
        target: What its name stands for, where that is a class or a module's function.
    """

    name: str
    function: Function | None = None
    bound: bool = False
    fields: tuple[str, ...] = ()
    target: Defined | None = None

    @cached_property
    def places(self) -> tuple[str, ...]:
        """The parameters that take arguments by their place; ``*rest`` is the last."""
        if self.function is None:
            return self.fields
        given = self.function.args
        names = [each.arg for each in (*given.posonlyargs, *given.args)][self.bound :]
        return (*names, *([f"*{given.vararg.arg}"] if given.vararg else []))

    @cached_property
    def names(self) -> frozenset[str]:
        """All parameters that have a name."""
        only = self.function.args.kwonlyargs if self.function else []
        return frozenset((*self.places, *(each.arg for each in only)))

    def place(self, number: int) -> str:
        """What takes the argument at a place, from 0; empty where nothing does."""
        last = self.places[-1] if self.places else ""
        if number < len(self.places):
            return self.places[number]
        return last if last.startswith("*") else ""

    def unfit(self, program: Library, call: ast.Call) -> str:
        """Why a call does not fit; empty where it does, or where that cannot be said."""
        if self.target is not None:
            return misfit_of(program, self.target, call)
        return misfit(call, self.function, bound=self.bound) if self.function else ""

    def __str__(self) -> str:
        shown = signature(self.function) if self.function else f"({', '.join(self.fields)})"
        return f"{self.name}{shown.removeprefix('async ').partition(' as ')[0]}"


@dataclass(frozen=True, eq=False)
class Place:
    """A line of a file in a tree, as what stands there sees its surroundings.

    Attributes:
        library, module: The tree, and the file in it.
        owner: Name of the class around it; empty where there is none.
        around: The functions around it, from the outside.
    """

    library: Library
    module: Module
    owner: str
    around: tuple[Function, ...] = ()
    _known: dict[str, Function | None] = field(default_factory=dict, repr=False)

    def callee(self, called: ast.expr) -> Callee | None:
        """What is called; None where nobody can say."""
        if isinstance(called, ast.Subscript):  # a kernel[grid](...)
            found = self.callee(called.value)
            return found if found and found.function and found.function.decorator_list else None
        if isinstance(called, ast.Name):
            return self._named(called.id)
        if not isinstance(called, ast.Attribute):
            return None
        if _is_own(called.value):
            return self._method(called.attr, above=isinstance(called.value, ast.Call))
        return self._of(called.value, called.attr) or self._of_object(called.value, called.attr)

    def _named(self, name: str) -> Callee | None:
        inner = self._inner(name)
        if inner is not None:
            return Callee(name, inner)
        if name in BUILTINS or name in self._locals:
            return None
        return self._made_of(name, self.library.resolve(self.module, name))

    def _made_of(self, name: str, found: object) -> Callee | None:
        if not isinstance(found, Defined):
            return None
        if isinstance(found.node, Function):
            return Callee(name, found.node, target=found)
        if not isinstance(found.node, ast.ClassDef):
            return None
        of = make_class(self.library, found.module, found.node)
        made = of.method("__init__")
        if made is not None:
            return Callee(name, made[1], bound=True, target=found)
        return Callee(name, fields=tuple(_fields(of))) if _has_fields(of) else None

    def _method(self, name: str, *, above: bool) -> Callee | None:
        of = class_of(self.library, self.module, self.owner) if self.owner else None
        for each in of.mro[above:] if of else ():
            if name in each.methods:
                return _bound(f"{each.name}.{name}", each.methods[name], through_class=False)
        return None

    def _of(self, value: ast.expr, name: str) -> Callee | None:
        """What an attribute of a module or a class is."""
        owner = self._found(value)
        if owner is None:
            return None
        if owner.node is None:
            return self._made_of(name, self.library.resolve(owner.module, name))
        if not isinstance(owner.node, ast.ClassDef):
            return None
        found = make_class(self.library, owner.module, owner.node).method(name)
        if found is None:
            return None
        return _bound(f"{found[0].name}.{name}", found[1], through_class=True)

    def _of_object(self, value: ast.expr, name: str) -> Callee | None:
        """The method of an object whose class is told."""
        told: kinds.Told | None = None
        if isinstance(value, ast.Call):
            told = self.module, value.func
        elif isinstance(value, ast.Name):
            told = kinds.of_name(value.id, self.around, self.module)
        elif isinstance(value, ast.Attribute) and _is_own(value.value) and self.owner:
            owner = class_of(self.library, self.module, self.owner)
            told = kinds.of_attribute(value.attr, owner) if owner else None
        owner_of = Place(self.library, told[0], "")._found(told[1]) if told else None
        if owner_of is None or not isinstance(owner_of.node, ast.ClassDef):
            return None
        found = make_class(self.library, owner_of.module, owner_of.node).method(name)
        if found is None:
            return None
        return _bound(f"{found[0].name}.{name}", found[1], through_class=False)

    def _found(self, value: ast.expr) -> Defined | None:
        """The module or class that an expression stands for."""
        found: object = None
        if isinstance(value, ast.Name) and value.id not in self._locals:
            found = self.library.resolve(self.module, value.id)
        elif isinstance(value, ast.Attribute):
            outer = self._found(value.value)
            if outer is not None and outer.node is None:
                inner = self.library.module(f"{outer.module.dotted}.{value.attr}")
                found = self.library.resolve(outer.module, value.attr)
                found = Defined(inner, None) if inner is not None else found
        return found if isinstance(found, Defined) else None

    def _inner(self, name: str) -> Function | None:
        """A function that the functions around it define."""
        if name not in self._known:
            nodes = [each for node in self.around for each in walk(node) if each is not node]
            found = [each for each in nodes if isinstance(each, Function) and each.name == name]
            self._known[name] = found[0] if len(found) == 1 else None
        return self._known[name]

    @cached_property
    def _locals(self) -> frozenset[str]:
        """Names that the functions around it bind: a call of one is a call of anything."""
        return frozenset(name for node in self.around for name in _bound_in(node))


def same_parameter(was: str, now: str, old: Callee, new: Callee) -> bool:
    """Whether a parameter got another name and nothing else: it is used as the old one was."""
    if old.function is None or new.function is None:
        return False
    pairs = zip(old.places, new.places, strict=False)
    names = {one: other for one, other in pairs if one not in new.names and other not in old.names}
    before = Counter(_told(old.function, was, names))
    if not before:
        return difflib.SequenceMatcher(None, was, now).ratio() >= _ALIKE or was in now or now in was
    return alike(before, Counter(_told(new.function, now, {}))) >= _ALIKE


def _told(function: Function, name: str, names: dict[str, str]) -> Iterator[bytes]:
    """The lines of a function that name a parameter, with other names for some."""
    word = re.compile(rf"\b{re.escape(name.lstrip('*'))}\b")
    for statement in function.body:
        for line in ast.unparse(statement).splitlines():
            if word.search(line):
                yield re.sub(r"\w+", lambda at: names.get(at[0], at[0]), line).strip().encode()


def _bound_in(node: ast.AST) -> set[str]:
    """The names that a function binds."""
    found = set()
    for each in walk(node):
        if isinstance(each, ast.arg):
            found.add(each.arg)
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            found.add(each.id)
        elif isinstance(each, (ast.Import, ast.ImportFrom)):
            found.update(alias.asname or alias.name for alias in each.names)
        elif isinstance(each, (*_FUNCTIONS, ast.ClassDef)) and each is not node:
            found.add(each.name)
    return found


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _bound(name: str, function: Function, *, through_class: bool) -> Callee | None:
    marks = [ast.unparse(each).rpartition(".")[2] for each in function.decorator_list]
    if any(mark in _VALUES for mark in marks):
        return None
    given = "staticmethod" not in marks and (not through_class or "classmethod" in marks)
    return Callee(name, function, bound=given)


def _has_fields(of: Class) -> bool:
    """Whether it is made of its fields, in their order."""
    named = {each.rpartition(".")[2] for each in of.foreign}
    marks = {ast.unparse(each).rpartition(".")[2] for each in of.node.decorator_list}
    plain = {mark.partition("(")[0] for mark in marks if "kw_only" not in mark}
    return bool((named | plain) & {*_FIELDS})


def _fields(of: Class) -> Iterator[str]:
    seen = set()
    for each in reversed(of.mro):
        for node in each.node.body:
            if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
                continue
            told = f"{ast.unparse(node.annotation)} {ast.unparse(node.value) if node.value else ''}"
            skipped = "ClassVar" in told or "KW_ONLY" in told or "init=False" in told
            if node.target.id not in seen and not skipped:
                seen.add(node.target.id)
                yield node.target.id


def _is_own(value: ast.expr) -> bool:
    """``self``, ``cls`` or ``super()``."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super" and not value.args
    return isinstance(value, ast.Name) and value.id in {"self", "cls"}
