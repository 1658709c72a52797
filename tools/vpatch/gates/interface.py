"""Does the target hand over its hidden states: the protocol, and forward?"""

from __future__ import annotations

from dataclasses import replace

from vpatch.gates.engine import ASKED, LAYERS, Scene, Start
from vpatch.gates.gate import Evidence, Found, Gate, Subject, raised, unread
from vpatch.gates.machine import Path
from vpatch.gates.refusal import refusal
from vpatch.gates.stand_ins import states
from vpatch.gates.steps import RUNNERS, inner_of, layers_of, runner_class, set_layers
from vpatch.gates.values import UNKNOWN, Obj, Tensor, Unknown, Value, show

_TOP = Start(place="top")
_FP16 = "torch.float16"


def _interface(subject: Subject) -> Found:
    if refusal(subject, _TOP) is not None:
        return Found("not-applicable", note="the runner refuses such a drafter: see `drafter`")

    def ask(made: Scene) -> Value:
        target = made.target()
        asked = set_layers(made, subject.runner, target)
        return asked, layers_of(target)

    way = subject.way(_TOP, ask)
    if way.thrown is not None:
        return raised(subject, way.thrown, "after load")
    asked, layers = way.value
    if not asked:
        place = runner_class(subject.program, subject.runner)
        evidence = Evidence(place.module.path, place.node.lineno, "load_model sets no aux layers")
        default = ", the default," if subject.runner == subject.default_runner else ""
        note = f"the {subject.runner.upper()} runner{default} never asks the target for its states"
        return Found("fail", (evidence,), "", "never", note)
    if isinstance(layers, Unknown):
        return unread("what becomes of the layers cannot be followed", _decoder(subject))
    if layers is None:
        note = "the layers that are asked for do not arrive at the decoder"
        return Found("fail", _decoder(subject), "", "never", note)
    return _defaults(subject) or Found("pass", _decoder(subject))


def _defaults(subject: Subject) -> Found | None:
    """What a drafter gets that names no layers: the target has to know its default ones."""

    def ask(made: Scene) -> Value:
        target = made.target()
        set_layers(made, subject.runner, target)
        return layers_of(target)

    way = subject.way(Start(ids=None), ask)
    if way.thrown is not None:
        return raised(subject, way.thrown, "after load")
    if way.value is None or way.value == ():
        note = "the target names no default layers: a protocol's empty method answers for it"
        error = "TypeError: argument of type 'NoneType' is not iterable"
        return Found("fail", _decoder(subject), error, "first step", note)
    return None


def _decoder(subject: Subject) -> tuple[Evidence, ...]:
    def ask(made: Scene) -> Value:
        return inner_of(made.target())

    inner = subject.way(_TOP, ask).value
    of = inner.of if isinstance(inner, Obj) else None
    if of is None:
        return ()
    found = of.method("forward")
    node = found[1] if found else of.node
    return (Evidence((found[0] if found else of).module.path, node.lineno, f"{of.name}.forward"),)


def handed_over(subject: Subject, ids: tuple[int, ...], dtype: str = "torch.bfloat16") -> Path:
    """What the target's forward returns when it was told these layers."""

    def ask(made: Scene) -> Value:
        target = made.target()
        inner = inner_of(target)
        setter = made.run.attribute_or(target, "set_aux_hidden_state_layers", None)
        if inner is None or setter is None:
            return None
        made.run.call(setter, [ids], {})
        tokens = Tensor("positions", (states("e").shape[0],), "torch.int64")
        rest = {"intermediate_tensors": None, "inputs_embeds": None}
        found = made.run.call(target, [UNKNOWN, tokens], rest)
        return _as_they_end(found, made.run.overwritten)

    return subject.way(_TOP.but(dtype=dtype), ask)


def _as_they_end(found: Value, overwritten: list[Value]) -> Value:
    """States are read when all layers have run: one that a layer writes to is another by then."""
    given = _aux(found)
    if given is None:
        return found
    told = [
        replace(each, text=f"{each.text}, which a layer overwrites")
        if isinstance(each, Tensor) and any(each is one for one in overwritten)
        else each
        for each in given
    ]
    return found[0], told


def stream(number: int) -> set[str]:
    """How the input of a layer may be written: what the last one added, and the residual."""
    if number == 0:
        return {"e"}
    before = number - 1
    return {f"(a{before} + r{before})", f"(r{before} + a{before})"}


def _states(subject: Subject) -> Found:
    return _states_for(subject, ASKED, "the states of layers in the middle")


def _ends(subject: Subject) -> Found:
    found = _states_for(subject, (0, 4, LAYERS), "the embeddings, and the last layer's output")
    if found.word != "fail" or found.error:
        return found
    return found


def _states_for(subject: Subject, ids: tuple[int, ...], what: str) -> Found:
    if not _has_setter(subject):
        return Found("not-applicable", note="the target has no setter for its layers")
    way = handed_over(subject, ids)
    if way.thrown is not None:
        return raised(subject, way.thrown, "first step")
    if isinstance(way.value, Unknown):
        return unread("forward cannot be followed", _decoder(subject))
    given = _aux(way.value)
    if given is None:
        error = "ValueError: too many values to unpack (expected 2)"
        note = "forward returns no pair of hidden states and aux hidden states"
        return Found("fail", _decoder(subject), error, "first step", note)
    wrong = [
        f"of {number}: {show(state)}"
        for number, state in zip(ids, given, strict=False)
        if not (isinstance(state, Tensor) and state.text in stream(number))
    ]
    if wrong or len(given) != len(ids):
        note = f"asked for {list(ids)}, {what} come as {', '.join(map(show, given)) or 'nothing'}"
        return Found("fail", _decoder(subject), "", "never", note)
    return Found("pass", _decoder(subject))


def _aux(value: Value) -> list[Value] | None:
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], (list, tuple)):  # noqa: PLR2004 - a pair
        return list(value[1])
    return None


def _has_setter(subject: Subject) -> bool:
    def ask(made: Scene) -> Value:
        target = made.target()
        return made.run.has_attribute(target, "set_aux_hidden_state_layers")

    return bool(subject.keep("setter", lambda: subject.way(_TOP, ask).value))


def _pair(subject: Subject) -> Found:
    if not _has_setter(subject):
        return Found("not-applicable", note="the target has no setter for its layers")
    way = handed_over(subject, (99,))
    if way.thrown is not None:
        return Found("pass", note="layers that it does not have are an error")
    if isinstance(way.value, Unknown) or _aux(way.value) is not None:
        return Found("pass", _decoder(subject))
    note = "where no asked layer exists, forward returns one tensor; two rows of it pass as a pair"
    error = "ValueError: too many values to unpack (expected 2)"
    return Found("fail", _decoder(subject), error, "first step", note)


def _fp16(subject: Subject) -> Found:
    if not _has_setter(subject):
        return Found("not-applicable", note="the target has no setter for its layers")
    half = handed_over(subject, ASKED, _FP16)
    given = _aux(half.value)
    if half.thrown is not None or given is None:
        return unread("forward cannot be followed")
    if all(isinstance(each, Tensor) and each.text in stream(n) for each, n in zip(given, ASKED)):  # noqa: B905
        note = "float16 hands over states divided by routed_scaling_factor"
        return Found("fail", _decoder(subject), "", "never", note)
    return Found("pass", _decoder(subject))


def _runners(subject: Subject) -> str:
    return RUNNERS[subject.runner].replace(".", "/") + ".py"


GATES = (
    Gate(
        name="interface",
        asks="the target implements SupportsEagle3 as the runner calls it",
        group="start",
        topic="eagle3-interface",
        upstream="v0.18.0",
        check=_interface,
    ),
    Gate(
        name="states",
        asks="forward returns the residual stream before the asked layers",
        group="start",
        topic="eagle3-interface",
        upstream="v0.18.0",
        check=_states,
    ),
)
OPTIONS = (
    Gate(
        name="states-at-ends",
        asks="layer 0's input and the last layer's output can be asked for",
        group="option",
        topic="aux-layers",
        upstream="",
        check=_ends,
    ),
    Gate(
        name="states-pair",
        asks="forward returns a pair whatever layers are asked for",
        group="option",
        topic="aux-layers",
        upstream="",
        check=_pair,
    ),
    Gate(
        name="states-float16",
        asks="float16 states have the scale of bfloat16's",
        group="option",
        topic="fp16",
        upstream="",
        check=_fp16,
    ),
)
