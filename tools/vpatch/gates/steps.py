"""The steps of an engine start, found in the tree by what they do, not by where they are."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import TypeVar

from vpatch.gates.classes import Class
from vpatch.gates.engine import Runner, Scene
from vpatch.gates.modules import Defined, Function, Module, Program
from vpatch.gates.registry import class_at
from vpatch.gates.values import Code, Obj, Value
from vpatch.gates.walk import walk

_DEPTH = 3
RUNNERS: dict[Runner, str] = {
    "v1": "vllm.v1.worker.gpu_model_runner",
    "v2": "vllm.v1.worker.gpu.model_runner",
}
SETTER = "set_aux_hidden_state_layers"


def runner_class(program: Program, runner: Runner) -> Class:
    """A runner's class.

    Raises:
        MissingPart: The tree has none.
    """
    return class_at(program, RUNNERS[runner], "GPUModelRunner")


def proposer_class(program: Program) -> Class:
    """The V1 runner's proposer for EAGLE drafters.

    Raises:
        MissingPart: The tree has none.
    """
    return class_at(program, "vllm.v1.spec_decode.eagle", "EagleProposer")


def mentions(node: ast.AST, text: str) -> bool:
    """Whether a name, an attribute or a text is below a node."""
    return any(
        (isinstance(each, ast.Attribute) and each.attr == text)
        or (isinstance(each, ast.Name) and each.id == text)
        or (isinstance(each, ast.Constant) and each.value == text)
        for each in walk(node)
    )


def calls_of(node: ast.AST) -> Iterator[ast.Call]:
    """The calls below a node."""
    return (each for each in walk(node) if isinstance(each, ast.Call))


def reaches(
    program: Program, of: Class | None, module: Module, node: ast.AST, name: str, depth: int = 0
) -> bool:
    """Whether a statement calls a method of this name, itself or through what it calls."""
    for call in calls_of(node):
        if isinstance(call.func, ast.Attribute) and call.func.attr == name:
            return True
        inner = _called(program, of, module, call) if depth < _DEPTH else None
        if inner is not None and reaches(program, inner[0], inner[1], inner[2], name, depth + 1):
            return True
    return False


def _called(
    program: Program, of: Class | None, module: Module, call: ast.Call
) -> tuple[Class | None, Module, Function] | None:
    function = call.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        found = of.method(function.attr) if of and function.value.id == "self" else None
        return (of, found[0].module, found[1]) if found else None
    if isinstance(function, ast.Name):
        named = program.resolve(module, function.id)
        if isinstance(named, Defined) and isinstance(named.node, Function):
            return None, named.module, named.node
    return None


def statements_that_reach(
    program: Program, of: Class, method: str, name: str
) -> list[tuple[Module, ast.stmt]]:
    """The statements of a method that reach a call, each with the outermost ``if`` around it."""
    found = of.method(method)
    if found is None:
        return []
    owner, node = found
    return [
        (owner.module, each)
        for each in _steps(node.body)
        if reaches(program, of, owner.module, each, name)
    ]


def _steps(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements in order; ``with`` and ``try`` are looked into, ``if`` is taken whole."""
    for node in body:
        if isinstance(node, (ast.With, ast.Try)):
            yield from _steps(node.body)
        else:
            yield node


def tail_from(of: Class, method: str, text: str) -> tuple[Module, list[ast.stmt], Class] | None:
    """The rest of a method from the first statement that mentions something."""
    found = of.method(method)
    if found is None:
        return None
    owner, node = found
    steps = list(_steps(node.body))
    begin = next((n for n, each in enumerate(steps) if mentions(each, text)), None)
    return None if begin is None else (owner.module, steps[begin:], owner)


def run_statements(
    made: Scene, module: Module, owner: Class | None, body: list[ast.stmt], names: dict[str, Value]
) -> None:
    """Follows some statements of a method."""
    run = made.run
    before = run.module, run.owner
    run.module, run.owner = module, owner
    try:
        run.block(body, names)
    finally:
        run.module, run.owner = before


def set_layers(made: Scene, runner: Runner, target: Obj) -> bool:
    """What a runner does to tell the target which layers to hand over; False if it does not."""
    of = runner_class(made.program, runner)
    found = statements_that_reach(made.program, of, "load_model", SETTER)
    use_pp = made.start.pp > 1
    actor = Obj(
        of,
        "GPUModelRunner",
        {
            "model": target,
            "speculative_config": made.speculative,
            "vllm_config": made.config,
            "model_config": made.config.attrs["model_config"],
            "use_aux_hidden_state_outputs": True,
            "use_pp": use_pp,
            "pp_handler": None,
            "lora_config": None,
            "get_model": _getter(target),
        },
    )
    for module, statement in found:
        run_statements(made, module, of, [statement], {"self": actor, "*self": actor})
    return bool(found)


def _getter(target: Obj) -> Value:
    from vpatch.gates.values import Native  # noqa: PLC0415

    return Native("get_model", lambda _run: target)


def inner_of(target: Obj) -> Obj | None:
    """The decoder inside a target: what has the layers."""
    seen = target
    for name in ("language_model", "model"):
        inner = seen.attrs.get(name)
        seen = inner if isinstance(inner, Obj) else seen
    return seen if "layers" in seen.attrs else None


def layers_of(target: Obj) -> Value:
    """The layers that the decoder was told to hand over."""
    inner = inner_of(target)
    return inner.attrs.get("aux_hidden_state_layers") if inner is not None else None


def post_init(made: Scene, text: str) -> None:
    """What of a speculative config's making has to do with something that it mentions."""
    of = made.speculative.of
    found = of.method("__post_init__") if of else None
    if found is None:
        return
    names: dict[str, Value] = {"self": made.speculative, "*self": made.speculative}
    for statement in _steps(found[1].body):
        if isinstance(statement, ast.If) and mentions(statement.test, text):
            run_statements(made, found[0].module, found[0], [statement], names)


def config_checks(made: Scene) -> None:
    """What a start's configs are asked before anything is loaded."""
    run = made.run
    of, whole = made.speculative.of, made.config.of
    for owner, node in _once(run.program, of, _validators) if of else ():
        run.call(Code(owner.module, node, owner), [made.speculative], {})
    for module, statement in _once(run.program, whole, _about_eagle3) if whole else ():
        names = {"self": made.config, "*self": made.config}
        run_statements(made, module, whole, [statement], names)


Item = TypeVar("Item")


def _once(program: Program, of: Class, find: Callable[[Class], Iterator[Item]]) -> list[Item]:
    """What is found of a class, worked out once in a program."""
    key = (f"{of.module.dotted}.{of.name}", find.__name__)
    if key not in program.made:
        program.made[key] = list(find(of))
    found: list[Item] = program.made[key]
    return found


def _about_eagle3(of: Class) -> Iterator[tuple[Module, ast.stmt]]:
    """The statements of what is run behind a config's making that have to do with EAGLE-3."""
    found = of.method("__post_init__")
    for statement in _steps(found[1].body) if found else ():
        if found and _asks_eagle3(of, statement):
            yield found[0].module, statement


def _validators(of: Class) -> Iterator[tuple[Class, Function]]:
    for owner in reversed(of.mro):
        for node in owner.methods.values():
            texts = [ast.unparse(each) for each in node.decorator_list]
            if any(text.startswith("model_validator") and "after" in text for text in texts):
                yield owner, node


def _asks_eagle3(of: Class, statement: ast.stmt, depth: int = 0) -> bool:
    for call in calls_of(statement):
        function = call.func
        if not (isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)):
            continue
        found = of.method(function.attr) if function.value.id == "self" else None
        if found is None:
            continue
        if mentions(found[1], "eagle3"):
            return True
        if depth < 1 and any(_asks_eagle3(of, each, depth + 1) for each in found[1].body):
            return True
    return False
