"""The texts of the series' own refusals and warnings, read off the lines that patches add."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vpatch.explain.entry import Entry
from vpatch.explain.pattern import Pattern
from vpatch.explain.templates import Scope, scope_of, templates, with_percents
from vpatch.patches.patch import Patch
from vpatch.patches.series import Series

_STATEMENT = re.compile(
    r"[ \t]*(?:raise \w|logger\.(?:warning|error)\w*\(|return [(f\"']|\w+ = [(f\"'\w]|[A-Z_]+ = )"
)
_LONGEST = 16
_FEWEST = 25
_LEVELS = ("warning", "warning_once", "error")


@dataclass(frozen=True)
class _Said:
    """A statement that a patch adds.

    Attributes:
        added: Whether a line of it is new; else it is only context.
    """

    patch: Patch
    node: ast.stmt
    added: bool


def entries(series: Sequence[Series]) -> Iterator[Entry]:
    """The refusals of all series, each text once."""
    found: dict[tuple[str, ...], Entry] = {}
    for one in series:
        said = [each for patch in one.patches for each in _statements(patch)]
        scope = _scope(said)
        for each in said:
            for text in _texts(each, scope) if each.added else ():
                pattern = Pattern.of(text)
                if pattern.weight < _FEWEST or pattern.expression:
                    continue
                known = found.get(pattern.parts)
                tags = (*(known.releases if known else ()), one.tag)
                found[pattern.parts] = _entry(each, pattern, tuple(dict.fromkeys(tags)))
    return iter(found.values())


def _entry(said: _Said, pattern: Pattern, tags: tuple[str, ...]) -> Entry:
    warned = isinstance(said.node, ast.Expr)
    kind = "a warning" if warned else "a refusal"
    return Entry(
        "series",
        said.patch.subject,
        pattern,
        f"{kind} of the patched release itself: the message says what to change",
        when="with a drafter or options that would draft from wrong states, or fail later",
        topic=said.patch.topic,
        releases=tags,
        remedy="vpatch preflight --target DIR --drafter DIR --tag TAG tells it without a start",
    )


def _texts(said: _Said, scope: Scope) -> Iterator[str]:
    match said.node:
        case ast.Raise(exc=ast.Call(args=[first, *_])):
            yield from _filled(first, scope)
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=level), args=[first, *_])):
            if level in _LEVELS:
                yield from map(with_percents, _filled(first, scope))
        case ast.Return(value=(ast.JoinedStr() | ast.BinOp()) as value):
            # A refusal that another function raises: `raise ValueError(problem)`.
            yield from _filled(value, scope)


def _filled(node: ast.expr, scope: Scope) -> Iterator[str]:
    """A text with constants filled in; where that says little, with one variable each too."""
    constants = {name: values for name, values in scope.names.items() if name.isupper()}
    for text in templates(node, Scope(constants)):
        if Pattern.of(text).weight >= _FEWEST:
            yield text
            continue
        for name in {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}:
            if name in scope.names:
                yield from templates(node, Scope({**constants, name: scope.names[name]}))


def _scope(said: Sequence[_Said]) -> Scope:
    return scope_of(each.node for each in said)


def _statements(patch: Patch) -> Iterator[_Said]:
    for lines in _hunks(patch):
        number = 0
        while number < len(lines):
            node, length = _statement([text for _, text in lines[number:]])
            if node is not None:
                added = any(new for new, _ in lines[number : number + length])
                yield _Said(patch, node, added)
            number += length


def _statement(lines: Sequence[str]) -> tuple[ast.stmt | None, int]:
    """The statement that begins at the first of some lines, and how many lines it takes."""
    if not _STATEMENT.match(lines[0]):
        return None, 1
    returns = lines[0].lstrip().startswith("return ")
    for length in range(1, min(_LONGEST, len(lines)) + 1):
        code = textwrap.dedent("\n".join(lines[:length]))
        try:  # outside of a function only an assignment can be parsed
            node = ast.parse(code.replace("return ", "returned = ", 1) if returns else code).body[0]
        except (SyntaxError, ValueError):
            continue
        if returns and isinstance(node, ast.Assign):
            return ast.Return(node.value), length
        return node, length
    return None, 1


def _hunks(patch: Patch) -> Iterator[list[tuple[bool, str]]]:
    """Each hunk of vLLM's own files as it is afterwards: whether a line is new, and its text."""
    lines: list[tuple[bool, str]] = []
    own = False
    for line in patch.diff.decode("utf-8", "replace").split("\n"):
        if line.startswith(("diff --git ", "@@ ")):
            if lines:
                yield lines
            lines = []
            own = own if line.startswith("@@ ") else " b/vllm/" in line
        elif own and line.startswith(("+", " ")) and not line.startswith("+++ "):
            lines.append((line.startswith("+"), line[1:]))
    if lines:
        yield lines


def carriers(series: Sequence[Series]) -> Mapping[str, tuple[str, ...]]:
    """Topic -> the releases whose series has it, oldest first."""
    found: dict[str, tuple[str, ...]] = {}
    for one in series:
        for topic in one.topics:
            found[topic] = (*found.get(topic, ()), one.tag)
    return found
