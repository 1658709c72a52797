"""Hidden states without a drafter: upstream's extract_hidden_states."""

from __future__ import annotations

import ast

from vpatch.gates.engine import Scene, Start
from vpatch.gates.gate import Evidence, Found, Gate, Subject
from vpatch.gates.parallel import checked
from vpatch.gates.steps import layers_of, mentions, set_layers
from vpatch.gates.values import Unknown, Value

_METHOD = "extract_hidden_states"
_START = Start(method=_METHOD, place="top")


def _extracted(subject: Subject) -> Found:
    module = subject.program.module("vllm.config.speculative")
    node: ast.AST | None = module.body if module else None
    if module is None or node is None or not mentions(node, _METHOD):
        return Found("not-applicable", note="this release has no extract_hidden_states")
    way = checked(subject, _START)
    if way.thrown is not None:
        place = (subject.evidence(way.thrown.place),)
        return Found("not-applicable", place, note=f"refused at the config: {way.thrown.text}")

    def ask(made: Scene) -> Value:
        target = made.target()
        set_layers(made, subject.runner, target)
        return layers_of(target)

    taken = subject.way(_START, ask)
    evidence = (Evidence(module.path, 1, _METHOD),)
    if taken.thrown is not None or isinstance(taken.value, Unknown) or taken.value != _START.ids:
        note = "the layers do not reach the target"
        return Found("fail", evidence, "", "never", note)
    return Found("pass", evidence, note="the layers reach the target; files and slots are not read")


OPTIONS = (
    Gate(
        name="extraction",
        asks="extract_hidden_states is taken for Kimi-K2.5, or refused at the config",
        group="option",
        topic="",
        upstream="v0.18.0",
        check=_extracted,
    ),
)
