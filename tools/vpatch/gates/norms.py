"""Are a drafter's norms taken from both places of its config: top level, ``eagle_config``?"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from vpatch.gates.classes import Class, make_class
from vpatch.gates.drafter import build
from vpatch.gates.engine import Scene, Start
from vpatch.gates.gate import Evidence, Found, Gate, Subject, raised
from vpatch.gates.machine import Path
from vpatch.gates.modules import Module
from vpatch.gates.registry import registered_class
from vpatch.gates.steps import run_statements
from vpatch.gates.values import Bound, Obj, Place, Value
from vpatch.gates.walk import walk
from vpatch.gates.way import DRAFTERS

# What an option makes of a drafter: an attribute of its decoder; of its layer.
_MODEL: Mapping[str, str] = {
    "norm_before_fc": "input_norm",
    "fc_norm": "fc_norm",
    "norm_output": "norm_output",
}
_RESIDUAL = "norm_before_residual"
_OF_LAYER = frozenset(("_residual_norm", _RESIDUAL))
# Their weights are in the checkpoint: where nothing takes them, loading says so.
_WEIGHED = {"norm_before_fc": "input_norm", "fc_norm": "fc_norm"}
_ON = tuple((name, True) for name in (*_MODEL, _RESIDUAL))
_STARTS = {
    "none": Start(place="top"),
    "top": Start(place="top", extra=_ON),
    "nested": Start(place="top", extra=(("eagle_config", dict(_ON)),)),
}


def _in_both_places(subject: Subject) -> Found:
    known, evidence = False, list[Evidence]()
    ignored: dict[str, list[str]] = {}
    for name in DRAFTERS:
        of = registered_class(subject.program, name)
        ways = _ways(subject, name, of) if of is not None else {}
        thrown = next((way.thrown for way in ways.values() if way.thrown is not None), None)
        if thrown is not None:
            return raised(subject, thrown, "after load")
        for option in (*_MODEL, _RESIDUAL) if of is not None else ():
            none, top, nested = (ways[place].value[option] for place in _STARTS)
            known |= top == nested != none
            if of is not None and top != nested:
                where = "eagle_config" if nested == none else "the config's top level"
                ignored.setdefault(where, []).append(option)
                evidence.append(_reader(subject, of, option))
    if ignored:
        return _told(ignored, tuple(dict.fromkeys(evidence)))
    if not known:
        return Found("not-applicable", note="the drafters of this tree have no such norms")
    return Found("pass")


def _ways(subject: Subject, name: str, of: Class) -> dict[str, Path]:
    mla = "Deepseek" in name
    return {
        place: subject.way(start.but(mla=mla), lambda made: _norms(made, of))
        for place, start in _STARTS.items()
    }


def _told(ignored: Mapping[str, Sequence[str]], evidence: tuple[Evidence, ...]) -> Found:
    """What comes of norms that a drafter was trained with and does not get."""
    where, names = next(iter(ignored.items()))
    names = tuple(dict.fromkeys(names))
    told = f"{', '.join(names)} in {where}: not read"
    silent = [name for name in names if name not in _WEIGHED]
    if silent:
        note = f"{told}; without {' and '.join(silent)} it drafts as it was not trained to"
        return Found("fail", evidence, "", "never", note)
    error = f"ValueError: There is no module or parameter named '{_WEIGHED[names[0]]}'"
    return Found("fail", evidence, error, "after load", told)


def _norms(made: Scene, of: Class) -> dict[str, Value]:
    """What a drafter's own constructors make of each option."""
    inner = build(made, of).attrs.get("model")
    attrs = inner.attrs if isinstance(inner, Obj) else {}
    found = {option: _kind(attrs[name]) for option, name in _MODEL.items() if name in attrs}
    for layer, node in _in_layers(made, of.module):
        actor = Obj(layer, layer.name)
        names = {"self": actor, "*self": actor, "config": made.drafter}
        run_statements(made, layer.module, layer, [node], names)
        found[_RESIDUAL] = next((_kind(each) for each in actor.attrs.values()), None)
    return {option: found.get(option) for option in (*_MODEL, _RESIDUAL)}


def _in_layers(made: Scene, module: Module) -> Iterator[tuple[Class, ast.stmt]]:
    """The statements with which a layer's constructor chooses where its residual is taken."""
    for node in module.classes.values():
        of = make_class(made.program, module, node)
        init = of.methods.get("__init__")
        for statement in init.body if init else ():
            if any(
                isinstance(each, ast.Attribute)
                and isinstance(each.ctx, ast.Store)
                and each.attr in _OF_LAYER
                for each in walk(statement)
            ):
                yield of, statement


def _kind(value: Value) -> Value:
    """What two values are compared by: norms are made anew each time."""
    if isinstance(value, Bound):
        return getattr(value.code.node, "name", "")
    return value if value is None or isinstance(value, bool) else "a norm"


def _reader(subject: Subject, of: Class, option: str) -> Evidence:
    """Where a drafter's module reads an option."""
    read = (
        Place(of.module.path, each.lineno)
        for each in walk(of.module.body)
        if isinstance(each, ast.Constant) and each.value == option
    )
    return subject.evidence(next(read, Place(of.module.path, of.node.lineno)))


OPTIONS = (
    Gate(
        name="drafter-norms",
        asks="norms that eagle_config names are the drafter's, as those at the top level",
        group="option",
        topic="mla-drafter",
        upstream="",
        check=_in_both_places,
    ),
)
