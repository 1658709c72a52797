"""Are the drafters registered, accepted by the runner, and built as their configs say?"""

from __future__ import annotations

import ast
from dataclasses import replace

from vpatch.gates.classes import Class
from vpatch.gates.engine import ASKED, TOKENS, WIDTH, Scene, Start
from vpatch.gates.gate import Check, Evidence, Found, Gate, Subject, When, raised, unread
from vpatch.gates.refusal import refusal
from vpatch.gates.registry import MODELS, class_at, registered, registered_class
from vpatch.gates.steps import calls_of, mentions, proposer_class, run_statements
from vpatch.gates.values import ClassValue, Code, Obj, Tensor, Unknown, Value
from vpatch.gates.walk import walk

_LLAMA = "LlamaForCausalLMEagle3"
_MLA = ("Eagle3DeepseekV2ForCausalLM", "Eagle3DeepseekV3ForCausalLM")
_MLA_START = Start(mla=True)


def _llama(subject: Subject) -> Found:
    return _drafter(subject, (_LLAMA,), Start())


def _mla(subject: Subject) -> Found:
    unknown = _unknown_type(subject)
    return unknown or _drafter(subject, _MLA, _MLA_START)


def _unknown_type(subject: Subject) -> Found | None:
    module = subject.program.module("vllm.transformers_utils.config")
    registry = module.assigned.get("_CONFIG_REGISTRY") if module else None
    if module is None or registry is None:
        return None
    known = {each.arg for each in walk(registry) if isinstance(each, ast.keyword)}
    known |= {str(each.value) for each in walk(registry) if isinstance(each, ast.Constant)}
    if "kimi_k2" in known:
        return None
    error = (
        "ValueError: The checkpoint you are trying to load has model type `kimi_k2` but "
        "Transformers does not recognize this architecture."
    )
    evidence = Evidence(module.path, registry.lineno, "_CONFIG_REGISTRY has no kimi_k2")
    return Found("fail", (evidence,), error, "config")


def _drafter(subject: Subject, names: tuple[str, ...], start: Start) -> Found:
    registry = subject.program.module(f"{MODELS}.registry")
    for name in names:
        if name not in registered(subject.program):
            place = registry.path if registry else ""
            evidence = Evidence(place, 1, f"no {name}")
            error = f"ValueError: Model architectures ['{name}'] are not supported for now."
            return Found("fail", (evidence,), error, "config")
        of = registered_class(subject.program, name)
        if of is None:
            evidence = Evidence(registry.path if registry else "", 1, name)
            error = f"ImportError: {registered(subject.program)[name]} is not there"
            return Found("fail", (evidence,), error, "config")
        wrong = refusal(subject, start) or _built(subject, of, start)
        if wrong is not None:
            return wrong
        taken = Evidence(of.module.path, of.node.lineno, f"class {of.name}")
    return Found("pass", (taken,))


def build(made: Scene, of: Class) -> Obj:
    """A drafter, as its own constructor makes it."""
    drafter = made.run.call(ClassValue(of), [], {"vllm_config": made.config, "prefix": ""})
    return drafter if isinstance(drafter, Obj) else Obj(of, of.name)


def _built(subject: Subject, of: Class, start: Start) -> Found | None:
    def ask(made: Scene) -> Value:
        drafter = build(made, of)
        _accept(made, drafter)
        return drafter

    way = subject.way(start, ask)
    if way.thrown is not None:
        when: When = "first step" if way.thrown.kind == "AssertionError" else "after load"
        return raised(subject, way.thrown, when)
    return _width(of, way.value, len(ASKED))


def _width(of: Class, drafter: Obj, states_asked: int) -> Found | None:
    inner = drafter.attrs.get("model")
    fc = inner.attrs.get("fc") if isinstance(inner, Obj) else None
    width = fc.attrs["input_size"] if isinstance(fc, Obj) else None
    if not isinstance(width, int) or width == states_asked * WIDTH:
        return None
    note = f"fc takes {width // WIDTH} states where {states_asked} are handed over"
    evidence = (Evidence(of.module.path, of.node.lineno, of.name),)
    error = "AssertionError: Tried to load weights of size"  # and which, into what
    return Found("fail", evidence, error, "after load", note)


def _five(subject: Subject) -> Found:
    of = registered_class(subject.program, _LLAMA)
    if of is None:
        return Found("not-applicable", note=f"{_LLAMA} is not registered")
    for place in ("nested", "top"):
        start = Start(ids=(1, 2, 3, 5, 7), place=place)
        way = subject.way(start, lambda made: build(made, of))
        if way.thrown is not None:
            return raised(subject, way.thrown, "after load")
        wrong = _width(of, way.value, len(start.ids or ()))
        if wrong is not None:
            where = "in eagle_config" if place == "nested" else "at the config's top level"
            return replace(wrong, note=f"ids {where}: {wrong.note}")
    return Found("pass", (Evidence(of.module.path, of.node.lineno, of.name),))


def _accept(made: Scene, drafter: Obj) -> None:
    """What the V1 proposer does first with the states: does it take this drafter?"""
    of = proposer_class(made.program)
    found = of.method("propose")
    if found is None:
        return
    actor = Obj(of, of.name, {"model": drafter, "method": "eagle3"})
    wide = Tensor("aux", (TOKENS, WIDTH * len(made.start.ids or ASKED)))
    names = {"self": actor, "*self": actor, "target_hidden_states": wide}
    for node in found[1].body:
        takes = any(mentions(call.func, "combine_hidden_states") for call in calls_of(node))
        if isinstance(node, ast.If) and takes:
            run_statements(made, found[0].module, found[0], [node], dict(names))


def _counted(subject: Subject) -> Found:
    program = subject.program
    of = class_at(
        program,
        "vllm.transformers_utils.model_arch_config_convertor",
        "ModelArchConfigConvertorBase",
    )
    found = of.method("is_deepseek_mla")
    if found is None:
        return Found("not-applicable", note="this tree counts MLA elsewhere")

    def ask(made: Scene) -> Value:
        inner = Obj(None, "DeepseekV3Config", dict(made.drafter.attrs))
        outer = Obj(None, "EAGLEConfig", {**inner.attrs, "model_type": "eagle", "model": inner})
        actor = Obj(of, of.name, {"hf_text_config": outer, "hf_config": outer})
        return made.run.call(Code(found[0].module, found[1], found[0]), [actor], {})

    way = subject.way(_MLA_START, ask)
    evidence = (Evidence(found[0].module.path, found[1].lineno, "def is_deepseek_mla"),)
    if _MLA[0] not in registered(program):
        return Found("not-applicable", evidence, note="there are no MLA drafters")
    if way.value is False:
        note = "a kimi_k2 drafter does not count as MLA: its heads' size and number are told wrong"
        return Found("fail", evidence, "", "never", note)
    return Found("pass", evidence)


def _kept(subject: Subject) -> Found:
    of = class_at(subject.program, "vllm.config.speculative", "SpeculativeConfig")

    def ask(made: Scene) -> Value:
        attrs = {**made.drafter.attrs, "model_type": "deepseek_v3", "architectures": [_MLA[0]]}
        config = Obj(None, "DeepseekV3Config", attrs)
        made.run.call(made.run.attribute(ClassValue(of), "hf_config_override"), [config], {})
        return config

    if _MLA[0] not in registered(subject.program):
        return Found("not-applicable", note="there are no MLA drafters")
    way = subject.way(_MLA_START, ask)
    if way.thrown is not None or not isinstance(way.value, Obj):
        return unread("the override cannot be followed")
    found = of.method("hf_config_override")
    evidence = (Evidence(of.module.path, found[1].lineno if found else 1, "hf_config_override"),)
    if way.value.attrs["model_type"] == "deepseek_v3":
        return Found("pass", evidence)
    error = "Model architectures ['Eagle3DeepSeekMTPModel'] are not supported for now."
    return Found("fail", evidence, error, "config", "a deepseek_v3 drafter becomes an MTP model")


def _normed(subject: Subject) -> Found:
    of = registered_class(subject.program, _MLA[0])
    if of is None:
        return Found("not-applicable", note="there are no MLA drafters")
    start = _MLA_START.but(extra=(("norm_before_fc", True),))
    way = subject.way(start, lambda made: build(made, of))
    if way.thrown is not None:
        return raised(subject, way.thrown, "after load")
    inner = way.value.attrs.get("model")
    evidence = (Evidence(of.module.path, of.node.lineno, f"class {of.name}"),)
    if not isinstance(inner, Obj) or isinstance(inner, Unknown):
        return unread("the drafter cannot be followed", evidence)
    if inner.attrs.get("input_norm") is not None:
        return Found("pass", evidence)
    error = "ValueError: There is no module or parameter named 'input_norm'"
    return Found("fail", evidence, error, "after load", "norm_before_fc is not honoured")


def _speculators(subject: Subject) -> Found:
    module = subject.program.module("vllm.transformers_utils.configs.speculators.algos")
    node = module.functions.get("update_eagle3") if module else None
    if module is None or node is None:
        return Found("not-applicable", note="this tree reads no such format")
    if _MLA[0] not in registered(subject.program):
        return Found("not-applicable", note="there are no MLA drafters")

    def ask(made: Scene) -> Value:
        given: dict[str, Value] = {"draft_vocab_size": 32, "norm_before_residual": True}
        base = {"model_type": "kimi_k2", "kv_lora_rank": 512}
        made.run.call(Code(module, node), [given, base], {})
        return base.get("architectures")

    way = subject.way(_MLA_START, ask)
    evidence = (Evidence(module.path, node.lineno, "def update_eagle3"),)
    if way.thrown is not None:
        return raised(subject, way.thrown, "config")
    names = way.value if isinstance(way.value, list) else []
    if all(name in _MLA for name in names):
        return Found("pass", evidence)
    return Found("fail", evidence, "", "never", f"an MLA drafter is taken for {names[0]}")


GATES = (
    Gate(
        name="drafter",
        asks="Llama drafters are registered, and the runner takes them",
        group="start",
        topic="eagle3-interface",
        upstream="v0.15.0",
        check=_llama,
    ),
)


def _option(name: str, asks: str, upstream: str, check: Check) -> Gate:
    return Gate(name, asks, "option", "mla-drafter", upstream, check)


OPTIONS = (
    Gate(
        name="drafter-fc",
        asks="a drafter of five layers has an fc for five states, wherever its config names them",
        group="option",
        topic="eagle3-interface",
        upstream="",
        check=_five,
    ),
    _option(
        "drafter-mla", "MLA drafters are registered, and the runner takes them", "v0.18.0", _mla
    ),
    # Its layers lay their KV cache out by themselves: nothing was seen to go wrong by it.
    replace(
        _option("drafter-mla-kv", "a kimi_k2 drafter counts as MLA", "", _counted), group="code"
    ),
    _option("drafter-deepseek-v3", "a deepseek_v3 drafter stays one", "", _kept),
    _option("drafter-norm", "an MLA drafter's norm_before_fc is honoured", "", _normed),
    _option(
        "drafter-speculators", "MLA drafters in speculators' format are taken", "", _speculators
    ),
)
