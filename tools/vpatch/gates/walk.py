"""The nodes of a syntax tree, each tree walked once."""

from __future__ import annotations

import ast

# Fields that hold names, numbers, contexts and operators: no node that anybody asks for.
_LEAVES = frozenset(
    [
        *("arg", "asname", "attr", "conversion", "ctx", "id", "is_async", "kind", "level"),
        *("lineno", "module", "op", "ops", "rest", "simple", "tag", "type_comment"),
        "type_ignores",
    ]
)


class _Fields(dict[type[ast.AST], tuple[str, ...]]):
    """The fields of each kind of node that may hold nodes, worked out when it is first met."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        holds = () if issubclass(kind, ast.Constant) else kind._fields
        self[kind] = tuple(name for name in holds if name not in _LEAVES)
        return self[kind]


_FIELDS = _Fields()


def walk(node: ast.AST) -> list[ast.AST]:
    """All nodes below one, itself first, without contexts and operators; in no other order."""
    known: list[ast.AST] | None = getattr(node, "_below", None)
    if known is not None:
        return [node, *known]
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [node]
    fields = _FIELDS
    while waiting:
        each = waiting.pop()
        found.append(each)
        known = getattr(each, "_below", None)
        if known is not None:
            found += known
            continue
        for name in fields[each.__class__]:
            value = getattr(each, name, None)
            if not value:
                continue
            if value.__class__ is list:
                waiting += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST):
                waiting.append(value)
    if isinstance(node, (ast.stmt, ast.expr)):
        # Without itself: what refers to nothing above it goes when nobody needs it any more.
        node._below = found[1:]  # type: ignore[union-attr]
    return found
