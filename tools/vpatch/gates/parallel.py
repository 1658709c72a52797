"""Pipeline stages and decode context parallelism: right states, or refused with the reason."""

from __future__ import annotations

from vpatch.gates.engine import ASKED, Runner, Scene, Start
from vpatch.gates.gate import Evidence, Found, Gate, Subject, raised
from vpatch.gates.interface import stream
from vpatch.gates.machine import Path
from vpatch.gates.stand_ins import states
from vpatch.gates.steps import config_checks, inner_of, runner_class, set_layers
from vpatch.gates.values import UNKNOWN, Obj, Tensor, Value

_STAGES = Start(pp=2)
_CONTEXT = Start(dcp=2)


def checked(subject: Subject, start: Start) -> Path:
    """A start's configs, before anything is loaded."""

    def ask(made: Scene) -> Value:
        return config_checks(made)

    return subject.way(start, ask)


def _pipeline(subject: Subject) -> Found:
    way = checked(subject, _STAGES)
    if way.thrown is not None:
        said = way.thrown.text.lower()
        if "eagle" in said and "pipeline" in said:
            return Found(
                "pass", (subject.evidence(way.thrown.place),), note="refused at the config"
            )
        plain = checked(subject, Start()).thrown
        if plain is not None and plain.text == way.thrown.text:
            return Found("not-applicable", note="the config refuses every start")
        return raised(subject, way.thrown, "config", "refused, but the message names another cause")
    return _loaded(subject)


def _loaded(subject: Subject) -> Found:
    runner = subject.runner
    if runner == subject.default_runner:
        runner = "v2" if _uses_v2(subject) else "v1"

    def ask(made: Scene) -> Value:
        target = made.target()
        set_layers(made, runner, target)
        return None

    way = subject.way(_STAGES, ask)
    if way.thrown is not None:
        return raised(subject, way.thrown, "after load")
    return _relayed(subject, runner)


def _uses_v2(subject: Subject) -> bool:
    def ask(made: Scene) -> Value:
        return made.run.attribute_or(made.config, "use_v2_model_runner", None)

    return subject.way(_STAGES, ask).value is True


def _relayed(subject: Subject, runner: Runner) -> Found:
    """Does the first stage pass on the states of its layers?"""

    def ask(made: Scene) -> Value:
        target = made.target()
        inner = inner_of(target)
        if inner is not None:
            made.run.call(made.run.attribute(target, "set_aux_hidden_state_layers"), [ASKED], {})
        rest = {"intermediate_tensors": None, "inputs_embeds": None}
        return made.run.call(target, [UNKNOWN, states("positions")], rest)

    way = subject.way(_STAGES, ask, last=False)
    passed = way.value.attrs.get("tensors") if isinstance(way.value, Obj) else None
    texts = {each.text for each in (passed or {}).values() if isinstance(each, Tensor)}
    of = runner_class(subject.program, runner)
    evidence = (Evidence(of.module.path, of.node.lineno, f"{runner} runner"),)
    if texts & stream(ASKED[0]):
        return Found("pass", evidence)
    note = f"the {runner.upper()} runner loses the states of layers on earlier stages"
    return Found("fail", evidence, "", "never", note)


def _context(subject: Subject) -> Found:
    plain = checked(subject, Start())
    way = checked(subject, _CONTEXT)
    if plain.thrown is not None:
        return Found("not-applicable", note="the config refuses every start")
    if way.thrown is not None:
        return Found("pass", (subject.evidence(way.thrown.place),), note="refused at the config")
    of = runner_class(subject.program, subject.runner)
    evidence = (Evidence(of.module.path, of.node.lineno, "no check at the config"),)
    note = "a Llama drafter's KV heads are mixed up under decode context parallelism"
    return Found("fail", evidence, "", "never", note)


OPTIONS = (
    Gate(
        name="pipeline-parallel",
        asks="pipeline stages pass on aux states, or are refused with the reason",
        group="option",
        topic="eagle3-interface",
        upstream="",
        check=_pipeline,
    ),
    Gate(
        name="decode-context-parallel",
        asks="a drafter whose KV heads would be mixed is refused",
        group="option",
        topic="mla-drafter",
        upstream="",
        check=_context,
    ),
)
