"""Does MRV2 refuse a drafter, before it loads a weight of it?"""

from __future__ import annotations

import ast

from vpatch.gates.engine import Scene, Start
from vpatch.gates.gate import Found, Subject, raised
from vpatch.gates.modules import Module, imports_of
from vpatch.gates.values import UNKNOWN, Code, Native, TooMuch, Value
from vpatch.gates.walk import walk

_MODULE = "vllm.v1.worker.gpu.spec_decode"
_NOTE = (
    "refused before weights load, for its reason: VLLM_USE_V2_MODEL_RUNNER=0 takes the V1 runner"
)


def refusal(subject: Subject, start: Start) -> Found | None:
    """What the asked runner says of such a drafter where it refuses it; None where it takes it."""
    if subject.runner == "v1":
        return None
    found: Found | None = subject.keep(f"refusal, mla {start.mla}", lambda: _ask(subject, start))
    return found


def _ask(subject: Subject, start: Start) -> Found | None:
    module = subject.program.module(_MODULE)
    node = module.functions.get("init_speculator") if module else None
    if module is None or node is None:
        return None

    def ask(made: Scene) -> Value:
        run = made.run
        run.known = {**run.known, **dict.fromkeys(_speculators(module), _TAKEN)}
        return run.call(Code(module, node), [made.config, UNKNOWN], {})

    try:
        thrown = subject.way(start, ask).thrown
    except TooMuch:
        return None
    if thrown is None or thrown.kind != "NotImplementedError":
        return None
    return raised(subject, thrown, "config", _NOTE)


_TAKEN = Native("speculator", lambda _run, *_args, **_how: UNKNOWN)


def _speculators(module: Module) -> list[str]:
    """What is made where a drafter is taken: of no interest here."""
    inside = [each for each in walk(module.body) if isinstance(each, ast.ImportFrom)]
    named = [name for name, _ in imports_of([*inside], module.package)]
    return [name for name in named if name.endswith("Speculator")]
