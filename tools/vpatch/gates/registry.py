"""Classes of the tree by their place, and models by their architecture."""

from __future__ import annotations

import ast

from vpatch.gates.classes import Class, class_of
from vpatch.gates.modules import Program

MODELS = "vllm.model_executor.models"


class MissingPart(Exception):  # noqa: N818
    """The tree has no such class: the check does not apply."""


def class_at(program: Program, module: str, name: str) -> Class:
    """A class by module and name.

    Raises:
        MissingPart: There is none.
    """
    found = program.module(module)
    of = class_of(program, found, name) if found is not None else None
    if of is None:
        raise MissingPart(f"{module}.{name}")
    return of


def maybe_class(program: Program, module: str, name: str) -> Class | None:
    """A class by module and name, or None."""
    try:
        return class_at(program, module, name)
    except MissingPart:
        return None


def registered_class(program: Program, architecture: str) -> Class | None:
    """The class that the registry has for an architecture."""
    place = registered(program).get(architecture)
    if place is None:
        return None
    module = place[0] if place[0].startswith("vllm.") else f"{MODELS}.{place[0]}"
    return maybe_class(program, module, place[1])


def registered(program: Program) -> dict[str, tuple[str, str]]:
    """The registry: architecture -> module and class."""
    key = (MODELS, "registry")
    if key not in program.made:
        program.made[key] = _read(program)
    found: dict[str, tuple[str, str]] = program.made[key]
    return found


def _read(program: Program) -> dict[str, tuple[str, str]]:
    module = program.module(f"{MODELS}.registry")
    found: dict[str, tuple[str, str]] = {}
    for value in module.assigned.values() if module else ():
        if not isinstance(value, ast.Dict):
            continue
        for key, entry in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(entry, ast.Tuple):
                texts = [str(e.value) for e in entry.elts if isinstance(e, ast.Constant)]
                if len(texts) == len(entry.elts) == 2:  # noqa: PLR2004 - module and class
                    found.setdefault(str(key.value), (texts[0], texts[1]))
    return found
