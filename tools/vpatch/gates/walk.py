"""The nodes of a syntax tree, each tree walked once."""

from __future__ import annotations

import ast

_SKIPPED = (ast.expr_context, ast.operator, ast.cmpop, ast.unaryop, ast.boolop)


def walk(node: ast.AST) -> list[ast.AST]:
    """All nodes below one, itself first, without contexts and operators; in no other order."""
    known: list[ast.AST] | None = getattr(node, "_below", None)
    if known is not None:
        return [node, *known]
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [node]
    while waiting:
        each = waiting.pop()
        found.append(each)
        for name in each._fields:
            value = getattr(each, name, None)
            if isinstance(value, list):
                waiting += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, _SKIPPED):
                waiting.append(value)
    if isinstance(node, (ast.stmt, ast.expr)):
        # Without itself: what refers to nothing above it goes when nobody needs it any more.
        node._below = found[1:]  # type: ignore[union-attr]
    return found
