"""The texts of gates: those that the gates word themselves, and those of releases' own code.

The first are read off the gates' source. The second are in releases.json, which ci/explain.py
writes from what the gates say of releases as they are.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from vpatch.explain.entry import Entry
from vpatch.explain.pattern import Pattern
from vpatch.explain.templates import GAP, Scope, scope_of, templates, texts_in
from vpatch.gates.check import GATES
from vpatch.gates.gate import Gate

SEEN = "releases.json"
WHEN: Mapping[str, str] = {
    "config": "at the config, before weights are read",
    "after load": "after the weights have loaded",
    "first step": "at the first step",
    "never": "never: a wrong result",
}
_ERRORS = ("Error: ", "Exception: ", "Model architectures ", "error: unrecognized ")
# Nothing but the kind is fixed, where what is filled in is no text of ours either.
_ONLY_A_KIND = re.compile(rf"(?:Type|Name|Attribute|Import)Error: {GAP}*")
_PACKAGE = "vpatch.gates"
_BY_NAME = {gate.name: gate for gate in GATES}


@dataclass(frozen=True)
class Seen:
    """An error that a gate says of releases as they are.

    Attributes:
        parts: Its fixed parts.
        when: As the gate words it.
    """

    gate: str
    parts: tuple[str, ...]
    when: str
    releases: tuple[str, ...]


def entries() -> Iterator[Entry]:
    """All of them."""
    for seen in seen_on_releases():
        pattern = Pattern(seen.parts)
        yield _entry(_BY_NAME[seen.gate], pattern, WHEN.get(seen.when, ""), seen.releases)
    for gate in GATES:
        for text in worded(gate):
            yield _entry(gate, Pattern.of(text), "", ())


def _entry(gate: Gate, pattern: Pattern, when: str, releases: tuple[str, ...]) -> Entry:
    # Code of any kind may say so: which line it is, only a look at that code tells.
    general = gate.group == "code" or not gate.topic
    return Entry(
        "gate",
        gate.name,
        pattern,
        f"what fails is: {gate.asks}",
        when=when,
        topic="" if general else gate.topic,
        upstream="" if general else gate.upstream,
        releases=releases,
        remedy="vpatch check --installed python3" if general else "",
        general=general,
    )


def seen_on_releases() -> tuple[Seen, ...]:
    """What ci/explain.py wrote."""
    raw = files("vpatch.explain").joinpath(SEEN).read_text(encoding="utf-8")
    return tuple(
        Seen(one["gate"], tuple(one["parts"]), one["when"], tuple(one["releases"]))
        for one in json.loads(raw)
        if one["gate"] in _BY_NAME
    )


def known_releases() -> tuple[str, ...]:
    """The releases of which something was seen."""
    return tuple(dict.fromkeys(tag for one in seen_on_releases() for tag in one.releases))


def worded(gate: Gate) -> list[str]:
    """The error texts in the code that a gate runs in its own module, with gaps."""
    module = gate.check.__module__.rpartition(".")[2]
    tree = _parsed(module)
    functions = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
    waiting, reached = [gate.check.__name__], dict[str, ast.FunctionDef]()
    while waiting:
        name = waiting.pop()
        if name in functions and name not in reached:
            reached[name] = functions[name]
            waiting += [e.id for e in ast.walk(functions[name]) if isinstance(e, ast.Name)]
    outer = Scope(scope_of(_statements(tree)).names, _helpers())
    found = [
        text
        for function in reached.values()
        for text in _errors(function, scope_of([function], outer))
    ]
    return list(dict.fromkeys(found))


def _errors(function: ast.FunctionDef, scope: Scope) -> Iterator[str]:
    for node in texts_in(function):
        for text in templates(node, scope):
            if any(mark in text[:60] for mark in _ERRORS) and not _ONLY_A_KIND.fullmatch(text):
                yield text


def _statements(tree: ast.Module) -> list[ast.stmt]:
    return [each for each in tree.body if isinstance(each, (ast.Assign, ast.AnnAssign))]


@cache
def _helpers() -> Mapping[str, tuple[tuple[ast.expr, ...], Scope]]:
    """Functions that return a piece of an error, in the module of arguments."""
    found = {}
    for function in _parsed("arguments").body:
        if isinstance(function, ast.FunctionDef):
            returns = [each.value for each in ast.walk(function) if isinstance(each, ast.Return)]
            texts = tuple(each for each in returns if each is not None)
            found[function.name] = (texts, Scope())
    inner = Scope({}, {name: each for name, each in found.items() if name == "misfit"})
    return {name: (returns, inner) for name, (returns, _) in found.items()}


@cache
def _parsed(module: str) -> ast.Module:
    return ast.parse(files(_PACKAGE).joinpath(f"{module}.py").read_text(encoding="utf-8"))
