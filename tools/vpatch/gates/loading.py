"""Does every weight of a drafter's checkpoint come to a parameter?"""

from __future__ import annotations

from vpatch.gates.classes import Class
from vpatch.gates.drafter import build
from vpatch.gates.engine import Scene, Start
from vpatch.gates.gate import Evidence, Found, Gate, Subject, raised, unread
from vpatch.gates.machine import Path
from vpatch.gates.registry import registered_class
from vpatch.gates.values import Native, Obj, Tensor, Value
from vpatch.gates.way import DRAFTERS

_NORMS = ("hidden_norm", "input_layernorm", "post_attention_layernorm")
_WHOLE = ("fc.weight", "norm.weight", "embed_tokens.weight")
_OUTER = ("lm_head.weight", "d2t", "t2d")
# Weights of a layer in the checkpoint, by the parameter that holds them.
_LLAMA = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attn.o_proj": (),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
    "mlp.down_proj": (),
    **dict.fromkeys(_NORMS, ()),
}
_MLA = {
    "self_attn.fused_qkv_a_proj": ("self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa"),
    **dict.fromkeys(("self_attn.q_a_layernorm", "self_attn.kv_a_layernorm"), ()),
    **dict.fromkeys(("self_attn.q_b_proj", "self_attn.kv_b_proj", "self_attn.o_proj"), ()),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
    "mlp.down_proj": (),
    **dict.fromkeys(_NORMS, ()),
}


def _loaded(subject: Subject) -> Found:
    checked = [
        found
        for name in DRAFTERS
        if (of := registered_class(subject.program, name)) is not None
        and (found := _drafter(subject, of, mla=name != DRAFTERS[0])) is not None
    ]
    failed = next((each for each in checked if each.word == "fail"), None)
    if failed is not None:
        return failed
    return checked[0] if checked else unread("loading cannot be followed")


def _drafter(subject: Subject, of: Class, *, mla: bool) -> Found | None:
    parts = _MLA if mla else _LLAMA
    inside = [*_WHOLE, *(f"midlayer.{e}.weight" for p, s in parts.items() for e in s or (p,))]
    whole = _load(subject, of, [*inside, *_OUTER], parts, inner=False)
    return _judged(subject, of, whole, [*inside, *_OUTER[:2]]) or _judged(
        subject, of, _load(subject, of, inside, parts, inner=True), inside
    ) or (Found("pass", (_place(of),)) if whole.value and whole.value[0] else None)  # fmt: skip


def _place(of: Class) -> Evidence:
    found = of.method("load_weights")
    node = found[1] if found else of.node
    return Evidence((found[0] if found else of).module.path, node.lineno, f"{of.name}.load_weights")


def _judged(subject: Subject, of: Class, way: Path, wanted: list[str]) -> Found | None:
    """A failure, where one is certain."""
    if way.thrown is not None:
        return raised(subject, way.thrown, "after load")
    given, told = way.value
    if not given:
        return None
    missing = [name for name in wanted if name not in given]
    if missing:
        note = f"of a drafter's checkpoint these weights come to no parameter: {', '.join(missing)}"
        return Found("fail", (_place(of),), "", "never", note)
    if isinstance(told, set) and not told:
        error = "ValueError: Following weights were not initialized from checkpoint"
        return Found("fail", (_place(of),), error, "after load", "load_weights names none")
    return None


def _load(
    subject: Subject, of: Class, names: list[str], parts: dict[str, tuple[str, ...]], *, inner: bool
) -> Path:
    """What comes to parameters, and what load_weights says of it."""

    def ask(made: Scene) -> Value:
        given: list[str] = []
        run = made.run
        take = Native("weight_loader", lambda _run, *args, **_how: _note(given, args))
        run.known = {
            **run.known,
            "default_weight_loader": take,
            "AutoWeightsLoader": Native("AutoWeightsLoader", lambda _run, *_a, **_k: _auto(given)),
            "ParallelLMHead": Native("ParallelLMHead", lambda _run, *_a, **_k: _holder(take)),
        }
        drafter = build(made, of)
        model = drafter.attrs.get("model")
        if isinstance(model, Obj):
            kept = [*_WHOLE, *(f"layers.0.{each}.weight" for each in parts)]
            pairs = [(name, _holder(take)) for name in kept]
            model.attrs["named_parameters"] = Native("named_parameters", lambda _run, *_: pairs)
        owner = model if inner else drafter
        weights = [(name, Tensor(name)) for name in names]
        load = run.attribute_or(owner, "load_weights", None)
        if not isinstance(owner, Obj) or load is None:
            return [], None
        told = run.call(load, [weights], {})
        return given, told

    return subject.way(Start(mla=parts is _MLA), ask)


def _holder(take: Native) -> Obj:
    own = Obj(None, "Parameter", {"weight_loader": take})
    return Obj(None, "Parameter", {"weight_loader": take, "weight": own})


def _auto(given: list[str]) -> Obj:
    """Upstream's loader: it finds parameters by their names."""

    def load(_run: object, weights: Value, *_args: Value, **_how: Value) -> Value:
        if isinstance(weights, list):
            _note(given, tuple(weight for _, weight in weights))
        return {"all of them"}

    return Obj(None, "AutoWeightsLoader", {"load_weights": Native("load_weights", load)})


def _note(given: list[str], values: tuple[Value, ...]) -> None:
    given += [each.text for each in values if isinstance(each, Tensor)]


OPTIONS = (
    Gate(
        name="drafter-weights",
        asks="every weight of a drafter's checkpoint comes to a parameter",
        group="option",
        topic="",
        upstream="",
        check=_loaded,
    ),
)
