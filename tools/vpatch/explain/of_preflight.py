"""The texts of preflight's problems, read off the code that words them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice, product

from vpatch.explain.entry import Entry
from vpatch.explain.pattern import Pattern
from vpatch.explain.templates import GAP, Scope, scope_of, templates
from vpatch.preflight.verdict import WHEN

MODULES = (
    "method",
    "config_class",
    "at_config",
    "carried",
    "aux_layers",
    "at_load",
    "at_weights",
)
_PLACES = ("check", "effect", "when", "why")
_TEXTS = ("text", "on_cpu")
_MOST = 24
_ASK = "vpatch preflight --target DIR --drafter DIR --installed python3"


@dataclass(frozen=True)
class _Call:
    """Where a problem is made."""

    arguments: Mapping[str, ast.expr]
    scope: Scope


def entries() -> Iterator[Entry]:
    """All of them: a problem's text is a tuple of parts that come in order."""
    parsed = {
        each.name.removesuffix(".py"): ast.parse(each.read_text(encoding="utf-8"))
        for each in files("vpatch.preflight").iterdir()
        if each.name.endswith(".py")
    }
    shared = scope_of(each for tree in parsed.values() for each in _assignments(tree))
    for tree in (parsed[module] for module in MODULES):
        # A module's own constants before those that it may import of others.
        outer = scope_of(_assignments(tree), shared)
        for function in tree.body:
            if isinstance(function, ast.FunctionDef):
                scope = scope_of([function], outer)
                for node in ast.walk(function):
                    yield from _of_node(node, scope)


def _assignments(tree: ast.Module) -> list[ast.stmt]:
    return [each for each in tree.body if isinstance(each, (ast.Assign, ast.AnnAssign))]


def _of_node(node: ast.AST, scope: Scope) -> Iterator[Entry]:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return
    if node.func.id == "_refused":
        check_node, *parts = node.args
        for texts in _each(parts, scope):
            for check in templates(check_node, scope):
                yield Entry(
                    "preflight",
                    check,
                    Pattern.of(*texts),
                    "its config cannot be what it was trained with",
                    when=WHEN["config"],
                    remedy="correct the drafter's config.json, or name its layers with "
                    "--speculative-config",
                )
    elif node.func.id == "Problem":
        arguments = {**dict(zip(_PLACES, node.args, strict=False)),
                     **{str(each.arg): each.value for each in node.keywords}}  # fmt: skip
        yield from _of_problem(_Call(arguments, scope))


def _of_problem(call: _Call) -> Iterator[Entry]:
    for name in _TEXTS:
        for texts in _tuples(call.arguments.get(name), call.scope):
            pattern = Pattern.of(*texts)
            if pattern.weight:
                yield from _made(call, pattern)


def _made(call: _Call, pattern: Pattern) -> Iterator[Entry]:
    general = bool(pattern.template)
    for check in _words(call, "check"):
        if GAP in check:
            continue
        why = next(iter(_words(call, "why")), "")
        yield Entry(
            "preflight",
            check,
            pattern,
            why.replace(GAP, "..."),
            when=_when(_words(call, "when")),
            topic=next((one for one in _words(call, "topic") if GAP not in one), ""),
            remedy=_ASK if general else _remedy(call),
            general=general,
        )


def _words(call: _Call, name: str) -> Sequence[str]:
    node = call.arguments.get(name)
    return templates(node, call.scope) if node is not None else ()


def _when(words: Sequence[str]) -> str:
    known: Mapping[str, str] = {str(key): text for key, text in WHEN.items()}
    return "; or ".join(known[word] for word in words if word in known)


def _remedy(call: _Call) -> str:
    """What the problem says helps, where that is not a patched release."""
    found: list[str] = []
    for node in _reached(call.arguments.get("remedy"), call.scope, set()):
        kind, text = (templates(each, call.scope) for each in node.args[:2])
        if kind != ("release",):
            found += [each.replace(GAP, "...") for each in text]
    return "; or ".join(dict.fromkeys(found))


def _reached(node: ast.expr | None, scope: Scope, seen: set[str]) -> Iterator[ast.Call]:
    """The remedies that an expression may be."""
    for each in ast.walk(node) if node is not None else ():
        if isinstance(each, ast.Call) and getattr(each.func, "id", "") == "Remedy":
            yield each
        elif isinstance(each, ast.Name) and each.id not in seen:
            seen.add(each.id)
            for value in scope.names.get(each.id, ()):
                yield from _reached(value, scope, seen)


def _tuples(node: ast.expr | None, scope: Scope) -> Iterator[tuple[str, ...]]:
    """Every tuple of texts that an expression may be."""
    match node:
        case ast.Tuple(elts=elements):
            yield from _each(elements, scope)
        case ast.IfExp(body=body, orelse=other):
            yield from _tuples(body, scope)
            yield from _tuples(other, scope)
        case ast.Name(id=name):
            for value in scope.names.get(name, ()):
                yield from _tuples(value, scope)


def _each(elements: Sequence[ast.expr], scope: Scope) -> Iterator[tuple[str, ...]]:
    return islice(product(*(templates(each, scope) for each in elements)), _MOST)
