"""For which shape is a drafter's attention scheduled: its own, or its target's?

FlashAttention 3 can be told ahead how it splits keys, by a schedule for heads and head size. A
target with MLA has others than a drafter without. V1 makes no schedule where it drafts; MRV2 does.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from contextlib import suppress

from vpatch.gates.classes import Class
from vpatch.gates.engine import Scene, Start
from vpatch.gates.gate import Evidence, Found, Gate, Subject, unread
from vpatch.gates.machine import Machine
from vpatch.gates.modules import Function, Module
from vpatch.gates.registry import class_at
from vpatch.gates.steps import calls_of, mentions, run_statements
from vpatch.gates.values import UNKNOWN, Code, Native, Obj, Place, Thrown, Unknown, Value
from vpatch.gates.walk import walk

_FLASH = "vllm.v1.attention.backends.flash_attn"
_HELPERS = "vllm.v1.attention.backends"
_CACHES = "vllm.v1.worker.gpu.attn_utils"
_BUILDER = "FlashAttentionMetadataBuilder"
_SCHEDULE = "get_scheduler_metadata"
# The drafter's shape, as its layers and their KV cache have it; the target's, as its config does.
_OWN = {"num_heads_q": 6, "num_heads_kv": 3, "headdim": 128}
_TARGETS = {"get_num_attention_heads": 64, "get_num_kv_heads": 1, "get_head_size": 576}
_RANKS = "dcp_world_size"  # query heads of all ranks come together
_LAYERS = ["model.layers.8.self_attn.attn"]


def _scheduled(subject: Subject) -> Found:
    files = (_FLASH, _CACHES, f"{_HELPERS}.utils")
    subject.program.tree.read_ahead([f"{each.replace('.', '/')}.py" for each in files])
    if subject.program.module(_FLASH) is None:
        return Found("not-applicable", note="this release has no such schedules")
    of = class_at(subject.program, _FLASH, _BUILDER)
    calls = [each for each in calls_of(of.node) if mentions(each.func, _SCHEDULE)]
    init = of.methods.get("__init__")
    if not calls or init is None:
        return Found("not-applicable", note="this release has no such schedules")
    refused = _refused(subject)
    if refused is not None:
        return refused
    shapes = subject.way(Start(), lambda made: _shapes(made, of, init, calls)).value
    evidence = _sources(subject, of, init, calls, set(_OWN))
    named = all(_OWN.keys() <= {each.arg for each in call.keywords} for call in calls)
    if not named or not shapes or any(isinstance(each, Unknown) for each in shapes.values()):
        return unread("the shape that attention is scheduled for cannot be followed", evidence)
    wrong = {name for name, value in shapes.items() if value != _OWN[name]}
    if not wrong:
        return Found("pass", evidence)
    evidence = _sources(subject, of, init, calls, wrong)
    note = (
        "MRV2 with CUDA graphs and FlashAttention 3: a drafter without MLA attends by a schedule "
        "for its target's shape, and longer requests draft from a part of their keys"
    )
    return Found("fail", evidence, "", "never", note)


def _refused(subject: Subject) -> Found | None:
    """Where MRV2 takes no drafter without MLA beside a target with it, nobody makes a schedule."""
    module = subject.program.module(_CACHES)
    shaping = module.functions.get("_reshape_kv_cache") if module else None
    if module is None:
        return Found("not-applicable", note="V1 makes no schedule for a drafter")
    # In the group of both kinds of layers each has a spec of its own.
    asserts = [each for each in walk(shaping) if isinstance(each, ast.Assert)] if shaping else []
    strict = [each for each in asserts if mentions(each, "AttentionSpec")]
    if shaping is None or not strict or mentions(shaping, "UniformTypeKVCacheSpecs"):
        return None
    text = ast.unparse(strict[0])
    note = "MRV2 of this release takes no such pair of layouts; V1 makes no schedule for a drafter"
    return Found("not-applicable", (Evidence(module.path, strict[0].lineno, text),), note=note)


def _shapes(made: Scene, of: Class, init: Function, calls: list[ast.Call]) -> dict[str, Value]:
    """What the builder of a drafter's layers hands to schedules; where they differ, a wrong one."""
    run = made.run
    run.known = {**run.known, **_known(made, of.module, init)}
    spec = Obj(
        None,
        "FullAttentionSpec",
        {"num_kv_heads": _OWN["num_heads_kv"], "head_size": _OWN["headdim"], "block_size": 16},
    )
    answers = {name: _native(name, value) for name, value in _TARGETS.items()}
    config = Obj(
        made.config.of,
        made.config.name,
        {**made.config.attrs, "model_config": Obj(None, "ModelConfig", answers)},
    )
    actor = Obj(of, of.name, {"vllm_config": config, _RANKS: 1, "layer_names": _LAYERS})
    values = (spec, _LAYERS, config, UNKNOWN)
    names = {each.arg: value for each, value in zip(init.args.args[1:], values, strict=False)}
    names |= {"self": actor, "*self": actor}
    for statement in init.body:
        with suppress(Thrown):  # a platform's business
            run_statements(made, of.module, of, [statement], names)
    actor.attrs[_RANKS] = 1
    found: dict[str, Value] = {}
    run.module, run.owner = of.module, of
    for call in calls:
        for each in call.keywords:
            if each.arg in _OWN and found.get(each.arg, _OWN[each.arg]) == _OWN[each.arg]:
                found[each.arg] = run.expression(each.value, {"self": actor, "*self": actor})
    return found


def _known(made: Scene, module: Module, init: Function) -> Mapping[str, Value]:
    """Stand-ins: the drafter's layers; and the functions of other backends' files, as they are."""
    found: dict[str, Value] = {
        "get_layers_from_vllm_config": Native("layers", _layers),
        "cast": Native("cast", lambda _run, _kind, value: value),
    }
    for name in {each.id for each in walk(init) if isinstance(each, ast.Name)}:
        imported = module.imports.get(name)
        if imported is not None and imported.module.startswith(f"{_HELPERS}.utils"):
            source = made.program.module(imported.module)
            node = source.functions.get(imported.name or "") if source else None
            if source is not None and node is not None:
                found[name] = Code(source, node)
    return found


def _layers(_run: Machine, _config: Value, _kind: Value, names: Value = None) -> Value:
    if names != _LAYERS:
        return UNKNOWN
    own = {"num_heads": _OWN["num_heads_q"], "num_kv_heads": _OWN["num_heads_kv"]}
    own["head_size"] = _OWN["headdim"]
    impl = Obj(None, "FlashAttentionImpl", {**own})
    return {name: Obj(None, "Attention", {**own, "impl": impl}) for name in names}


def _native(name: str, value: int) -> Native:
    return Native(name, lambda _run, *_args: value)


def _sources(
    subject: Subject, of: Class, init: Function, calls: list[ast.Call], names: set[str]
) -> tuple[Evidence, ...]:
    """The lines that set what schedules are made for."""
    given = [each.value for call in calls for each in call.keywords if each.arg in names]
    read = {n.attr for value in given for n in walk(value) if isinstance(n, ast.Attribute)}
    targets = [t for node in walk(init) if isinstance(node, ast.Assign) for t in node.targets]
    path = of.module.path
    lines = sorted(
        target.lineno
        for target in targets
        if isinstance(target, ast.Attribute) and target.attr in read - {_RANKS}
    )
    return tuple(subject.evidence(Place(path, line)) for line in lines)


OPTIONS = (
    Gate(
        name="drafter-attention",
        asks="a drafter's attention is scheduled for its own heads",
        group="option",
        topic="drafter-attention",
        upstream="v0.29.0",
        check=_scheduled,
    ),
)
