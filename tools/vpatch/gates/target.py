"""Is Kimi-K2.5 taken as the target of an EAGLE-3 drafter?"""

from __future__ import annotations

from vpatch.gates.engine import Scene, Start
from vpatch.gates.gate import Found, Gate, Subject, raised
from vpatch.gates.steps import config_checks


def _accepted(subject: Subject) -> Found:
    way = subject.way(Start(), _checked)
    if way.thrown is not None:
        return raised(subject, way.thrown, "config")
    return Found("pass")


def _checked(made: Scene) -> None:
    config_checks(made)


GATES = (
    Gate(
        name="target",
        asks="the config takes kimi_k2 as a target",
        group="start",
        topic="eagle3-interface",
        upstream="v0.18.0",
        check=_accepted,
    ),
)
