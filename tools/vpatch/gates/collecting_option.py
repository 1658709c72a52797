"""Of the gate `collection`: option, config, and what a request asks for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial
from typing import Any

from vpatch.gates.classes import Class
from vpatch.gates.collecting import (
    CONFIG,
    LAYERS,
    OPTION,
    PROTOCOL,
    Broken,
    calls_of_attribute,
    collected,
    line,
    method_of,
    module_at,
    own_names,
    says,
)
from vpatch.gates.engine import Scene, Start
from vpatch.gates.gate import Evidence, Subject
from vpatch.gates.modules import Function
from vpatch.gates.registry import class_at
from vpatch.gates.steps import mentions
from vpatch.gates.values import Code, Native, Obj, Thrown, Value
from vpatch.gates.walk import walk

ARGUMENTS = "vllm.engine.arg_utils"
INPUT = "vllm.v1.engine.input_processor"
_FLAG = "--hidden-states-collection"
_START = Start(place="top")


def option_links(subject: Subject) -> Iterator[Evidence]:
    """The option reaches the engine's config, which takes Kimi-K2.5 and refuses other layers.

    Raises:
        Broken: It does not.
    """
    program = subject.program
    arguments = class_at(program, ARGUMENTS, "EngineArgs")
    whole = class_at(program, "vllm.config.vllm", "VllmConfig")
    if OPTION not in arguments.values:
        raise Broken("option", line(arguments, None))
    if OPTION not in whole.values:
        raise Broken("field", line(whole, None))
    adds = method_of(arguments, "add_cli_args")
    flag = next((e for e in walk(adds) if says(e, _FLAG)), None)
    if flag is None:
        raise Broken("flag", line(arguments, adds, "def add_cli_args"))
    yield line(arguments, flag)
    makes = method_of(arguments, "create_engine_config")
    handed = [
        each
        for call in walk(makes)
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "VllmConfig"
        for each in call.keywords
        if each.arg == OPTION and ast.unparse(each.value) == f"self.{OPTION}"
    ]
    if not handed:
        place = line(arguments, makes, "def create_engine_config")
        raise Broken("handed", place, thrown=_unasked(subject), when="first step")
    yield line(arguments, handed[0].value)
    yield from _verified(subject, whole)


def _unasked(subject: Subject) -> Thrown | None:
    """What a request is told that asks an engine which has no such option set."""
    of = class_at(subject.program, INPUT, "InputProcessor")

    def ask(made: Scene) -> Value:
        made.run.known = {**made.run.known, **own_names(made.run)}
        config = Obj(None, "VllmConfig", {OPTION: None})
        actor = Obj(of, of.name, {"vllm_config": config})
        params = Obj(None, "SamplingParams", {"extra_args": {"collect_hidden_states": True}})
        for each in of.methods.values():
            if mentions(each, OPTION):
                made.run.call(Code(of.module, each, of), [actor, params], {})
        return None

    return subject.way(_START, ask).thrown


def _verified(subject: Subject, whole: Class) -> Iterator[Evidence]:
    of = class_at(subject.program, CONFIG, "HiddenStatesCollectionConfig")
    for layers in (LAYERS, (1, 99)):
        way = subject.way(_START, partial(_verify, whole=whole, layers=layers))
        if layers == LAYERS and way.thrown is not None:
            raise Broken(
                "refused", subject.evidence(way.thrown.place), thrown=way.thrown, when="config"
            )
        if layers != LAYERS and way.thrown is None:
            raise Broken("unrefused", line(of, None))
    yield line(of, method_of(of, "verify"), f"{of.name}.verify")


def _validates(node: Function) -> bool:
    return any("model_validator" in ast.unparse(each) for each in node.decorator_list)


def _verify(made: Scene, *, whole: Class, layers: tuple[int, ...]) -> Value:
    config = collected(made, layers)
    option = config.attrs[OPTION]
    found = option.of.method("_obstacles")
    if found is not None:  # a generator: what it yields, as a list
        node, module = _listed(found[1]), found[0].module
        option.attrs["_obstacles"] = Native(
            "obstacles",
            lambda run, given: run.call(Code(module, node, option.of), [option, given], {}),
        )
    own = [each for each in whole.methods.values() if mentions(each, OPTION) and _validates(each)]
    for validator in own:
        made.run.call(Code(whole.module, validator, whole), [config], {})


class _Listing(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if not isinstance(node.value, ast.Yield):
            return node
        grown = ast.parse("found.append(None)").body[0]
        grown.value.args = [node.value.value]  # type: ignore[attr-defined]
        return ast.fix_missing_locations(ast.copy_location(grown, node))


def _listed(node: Function) -> Any:
    """A generator as a function that returns a list."""
    copied = ast.parse(ast.unparse(node)).body[0]
    made: Any = _Listing().visit(copied)
    made.body = [*ast.parse("found = []").body, *made.body]
    made.body += ast.parse("def f():\n    return found").body[0].body  # type: ignore[attr-defined]
    return made


def request_links(subject: Subject) -> Iterator[Evidence]:
    """A request says by itself whether it is collected, and is looked at before it is taken.

    Raises:
        Broken: It cannot.
    """
    of = class_at(subject.program, INPUT, "InputProcessor")
    own = [each for each in of.methods.values() if mentions(each, OPTION)]
    called = [e for each in own for e in calls_of_attribute(of.node, "self", each.name)]
    if not called:
        raise Broken("request", line(of, None))
    protocol = module_at(subject.program, PROTOCOL)

    def ask(made: Scene) -> Value:
        made.run.known = {**made.run.known, **own_names(made.run)}
        asks = made.run.global_name(protocol, "asks")
        given: tuple[Value, ...] = (
            {"collect_hidden_states": True},
            {"collect_hidden_states": 0},
            {},
            None,
        )
        return [made.run.call(asks, [each], {}) for each in given]

    way = subject.way(_START, ask)
    if way.thrown is not None or way.value != [True, False, None, None]:
        raise Broken("asks", line(protocol, protocol.functions.get("asks"), "def asks"))
    yield line(of, called[0])
