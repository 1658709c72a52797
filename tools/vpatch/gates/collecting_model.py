"""Of the gate `collection`: a target writes what its layers take in to its buffer."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from vpatch.gates.classes import Class
from vpatch.gates.collecting import (
    BUFFER,
    COLLECTOR,
    LAYERS,
    MAKE,
    Broken,
    collected,
    held_by,
    line,
    method_of,
    module_at,
    own_names,
)
from vpatch.gates.engine import LAYERS as COUNT
from vpatch.gates.engine import WIDTH, Runner, Scene, Start
from vpatch.gates.gate import Evidence, Subject
from vpatch.gates.modules import Module, Program
from vpatch.gates.registry import MODELS, class_at
from vpatch.gates.stand_ins import states
from vpatch.gates.steps import (
    _steps as steps_of,
)
from vpatch.gates.steps import inner_of, mentions, run_statements, runner_class, set_layers
from vpatch.gates.values import UNKNOWN, Code, Native, Obj, Tensor, Value
from vpatch.gates.walk import walk

_ALLOCATE = "allocate_hidden_states_buffer"
_START = Start(place="top")


def model_links(subject: Subject, runner: Runner) -> Iterator[Evidence]:
    """The buffer, its columns, the writes of a step, and the collector that reads it.

    Raises:
        Broken: One of them is not there.
        MissingPart: A class is not.
    """
    of = runner_class(subject.program, runner)
    found = _setting_up(of)
    place = line(*found[0]) if found else line(of, None)
    if not found:
        raise Broken("collector", place)
    for drafts in (True, False):
        way = subject.way(_START, partial(_loaded, runner=runner, drafts=drafts))
        if way.thrown is not None:
            where = subject.evidence(way.thrown.place)
            raise Broken("load", where, thrown=way.thrown, when="after load")
        _judge(subject, place, way.value, drafts=drafts)
    yield place
    yield _layer_writes(subject, way.value[2], way.value[1])
    buffer = module_at(subject.program, BUFFER)
    yield line(buffer, buffer.functions.get(_ALLOCATE), f"def {_ALLOCATE}")


def _setting_up(of: Class) -> list[tuple[Module, ast.stmt]]:
    """The statements of load_model that allocate the buffer and make the collector."""
    found = of.method("load_model")
    if found is None:
        return []
    owner, node = found
    return [
        (owner.module, each)
        for each in steps_of(node.body)
        if mentions(each, _ALLOCATE) or mentions(each, MAKE) or _by_method(of, each)
    ]


def _by_method(of: Class, node: ast.stmt) -> bool:
    calls: list[Any] = [each for each in walk(node) if _is_own_call(each)]
    names = {each.func.attr for each in calls}
    inner = (of.method(name) for name in names)
    return any(
        mentions(one[1], _ALLOCATE) or mentions(one[1], MAKE) for one in inner if one is not None
    )


def _is_own_call(node: Any) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "self"
    )


def _loaded(made: Scene, *, runner: Runner, drafts: bool) -> Value:
    """What a load and one step do: the collector, the target, and the writes."""
    written: list[tuple[Value, ...]] = []
    readers: list[Value] = []

    def collector(_run: object, _config: Value, buffer: Value, *_more: Value) -> Value:
        readers.append(buffer)
        return Obj(class_at(made.program, COLLECTOR, "HiddenStatesCollector"), "Collector")

    made.run.known = {
        **made.run.known,
        **own_names(made.run),
        "HiddenStatesCollector": Native("collector", collector),
        _write(made.program): Native("write", lambda _run, *args: written.append(args)),
        "RMSNorm": Native(
            "RMSNorm", lambda _run, *_a, **_k: Obj(None, "RMSNorm", {"__call__": _NORM})
        ),
    }
    target = made.target()
    inner = inner_of(target)
    if drafts:
        set_layers(made, runner, target)
    elif inner is not None:
        inner.attrs["aux_hidden_state_layers"] = ()  # `tuple[int, ...]()`: as it is made
    of = runner_class(made.program, runner)
    actor = Obj(
        of,
        of.name,
        {
            "model": target,
            "vllm_config": collected(made),
            "speculative_config": made.speculative if drafts else None,
            "use_aux_hidden_state_outputs": False,  # they are set already
            "get_model": Native("get_model", lambda _run: target),
            "lora_config": None,
        },
    )
    for module, statement in _setting_up(of):
        run_statements(made, module, of, [statement], {"self": actor, "*self": actor})
    written.clear()
    rest = {"intermediate_tensors": None, "inputs_embeds": None}
    tokens = Tensor("positions", (states("e").shape[0],), "torch.int64")
    made.run.call(target, [UNKNOWN, tokens], rest)
    collector_of = actor.attrs.get(held_by(of))
    return collector_of, readers[-1] if readers else None, inner, written


def _norm(run: Any, value: Value, *residual: Value) -> Value:
    """The fused kernel adds in place: what it hands back is the stream before the layer."""
    if not residual:
        return states(f"norm({_text(value)})")
    return states(f"norm({_text(value)})"), _added(run, value, residual[0])


def _added(run: Any, value: Value, residual: Value) -> Tensor:
    run.overwritten.append(residual)
    return states(f"({_text(value)} + {_text(residual)})")


def _text(value: Value) -> str:
    return value.text if isinstance(value, Tensor) else "..."


_NORM = Native("norm", _norm)


def _judge(subject: Subject, place: Evidence, found: Value, *, drafts: bool) -> None:
    collector, buffer, inner, written = found
    if not isinstance(collector, Obj):
        raise Broken("collector", place)
    if not isinstance(buffer, Obj) or inner is None:
        raise Broken("buffer", place, "'NoneType' object has no attribute 'tensor'")
    layers = buffer.attrs.get("layers", ())
    wanted = {1, 3, 7, *LAYERS} if drafts else set(LAYERS)
    if not isinstance(layers, tuple) or set(layers) != wanted:
        raise Broken("columns", place, f"the buffer is for layers {layers}")
    kept = buffer.attrs.get("tensor")
    where = _model_place(subject)
    for number in range(COUNT):
        own = inner.attrs["layers"][number].attrs.values()
        writes = any(each is kept for each in own)
        if number not in wanted and writes:
            raise Broken("columns", where, f"layer {number} writes, and nobody asked for it")
        if number in wanted and not (writes and _has(own, layers.index(number) * WIDTH)):
            raise Broken("columns", where, f"layer {number} has not its columns of the buffer")
    last = COUNT - 1
    stream = {f"(a{last} + r{last})", f"(r{last} + a{last})"}
    column = layers.index(COUNT) * WIDTH
    if not any(_is_write(each, stream, kept, column) for each in written):
        raise Broken("written", where, "the last layer's output is not")


def _has(values: Iterable[Value], number: int) -> bool:
    return any(type(each) is int and each == number for each in values)


def _is_write(args: tuple[Value, ...], stream: set[str], kept: Value, column: int) -> bool:
    return len(args) == 3 and _text(args[0]) in stream and args[1] is kept and args[2] == column  # noqa: PLR2004


def _model_place(subject: Subject) -> Evidence:
    of = class_at(subject.program, f"{MODELS}.deepseek_v2", "DeepseekV2Model")
    found = of.method("use_hidden_states_buffer")
    return line(of, found[1] if found else None, f"{of.name}.use_hidden_states_buffer")


def _layer_writes(subject: Subject, inner: Obj, buffer: Obj) -> Evidence:
    """A layer writes what it takes in, before its second norm adds to that in place."""
    of = class_at(subject.program, f"{MODELS}.deepseek_v2", "DeepseekV2DecoderLayer")
    node = method_of(of, "forward")
    number = LAYERS[1]
    loaded, kept = inner.attrs["layers"][number].attrs, buffer.attrs["tensor"]
    column = buffer.attrs["layers"].index(number) * WIDTH
    name = _write(subject.program)

    def ask(made: Scene) -> Value:
        written: list[Value] = []

        def write(run: Any, state: Value, *rest: Value) -> None:
            late = any(state is each for each in run.overwritten)
            written.append((state, late, *rest))

        made.run.known = {**made.run.known, name: Native("write", write)}
        norm = Obj(None, "RMSNorm", {"__call__": _NORM})
        own = {each: value for each, value in loaded.items() if each != "__call__"}
        norms = {"input_layernorm": norm, "post_attention_layernorm": norm}
        layer = Obj(of, of.name, {**own, **norms, "layer_idx": number})
        given = [Tensor("positions", (5,), "torch.int64"), states("a")]
        for residual in (states("r"), None):  # layer 0 takes in no residual
            made.run.call(Code(of.module, node, of), [layer, *given, residual], {})
        return written

    way = subject.way(_START, ask)
    place = line(of, node, f"{of.name}.forward")
    if way.thrown is not None:
        raise Broken("load", place, thrown=way.thrown, when="first step")
    if len(way.value) != 2:  # noqa: PLR2004 - once each
        raise Broken("written", place, f"two layers write {len(way.value)} times")
    for (state, late, *rest), stream in zip(
        way.value, ({"(a + r)", "(r + a)"}, {"a"}), strict=True
    ):
        if late or not _is_write((state, *rest), stream, kept, column):
            raise Broken("written", place, f"a layer's column holds {_text(state)}")
    calls = (each for each in walk(node) if isinstance(each, ast.Call))
    writes = next((each for each in calls if getattr(each.func, "id", "") == name), None)
    return line(of, writes, f"{name}(states, ...)")


def _write(program: Program) -> str:
    """What the target's module calls to write."""
    module = module_at(program, f"{MODELS}.deepseek_v2")
    functions = module_at(program, BUFFER).functions
    named = (n for n, each in module.imports.items() if each.module == BUFFER and n in functions)
    return next(named, "write_hidden_states")
