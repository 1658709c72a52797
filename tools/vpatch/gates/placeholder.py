"""What a drafter gets of its target when it is loaded: placeholder token, embeddings, lm_head."""

from __future__ import annotations

from vpatch.gates.engine import Scene, Start
from vpatch.gates.gate import Evidence, Found, Gate, Subject, raised
from vpatch.gates.steps import proposer_class, run_statements, tail_from
from vpatch.gates.values import Native, Obj, Thrown, Value

_TOKEN = "image_token_index"  # noqa: S105 - a token's id
_TARGET = "target_model"


def _loaded(made: Scene) -> Value:
    """The rest of the proposer's load_model, from where it asks the target."""
    of = proposer_class(made.program)
    tail = tail_from(of, "load_model", _TOKEN)
    if tail is None:
        return None
    module, body, owner = tail
    config = Obj(None, "LlamaConfig", {})
    inner = Obj(None, "LlamaModel", {})
    drafter = Obj(
        None,
        "Eagle3LlamaForCausalLM",
        {
            "config": config,
            "model": inner,
            "has_own_embed_tokens": False,
            "has_own_lm_head": False,
            "draft_id_to_target_id": None,
        },
    )
    actor = Obj(
        of,
        of.name,
        {
            "model": drafter,
            "config": config,
            "method": "eagle3",
            "vllm_config": made.config,
            "speculative_config": made.speculative,
            "parallel_drafting": False,
            "use_heterogeneous_vocab": False,
            "supports_mm_inputs": False,
        },
    )
    target = made.target()
    target.attrs.setdefault("children", Native("children", lambda _run: []))
    names: dict[str, Value] = {"self": actor, "*self": actor, _TARGET: target}
    names["target_attn_layer_names"] = names["all_attn_layers"] = {}
    try:
        run_statements(made, module, owner, body, names)
    except Thrown as thrown:
        return thrown, drafter
    return None, drafter


def _placeholder(subject: Subject, schema: str) -> Found:
    way = subject.way(Start(schema=schema), _loaded)
    if way.thrown is not None:
        return raised(subject, way.thrown, "after load")
    if way.value is None:
        return Found("not-applicable", note="the V1 proposer asks for no placeholder token")
    thrown, drafter = way.value
    if _TOKEN in drafter.attrs["config"].attrs:
        return Found("pass", note="" if subject.runner == "v1" else "V1 runner only")
    if thrown is not None:
        note = "" if subject.runner == "v1" else "V1 runner only: the default one does not ask"
        return raised(subject, thrown, "after load", note)
    return Found("pass")


def _old(subject: Subject) -> Found:
    return _placeholder(subject, "old")


def _new(subject: Subject) -> Found:
    def name(made: Scene) -> Value:
        config = made.target().attrs.get("config")
        return config.name if isinstance(config, Obj) else None

    if subject.way(Start(), name).value != "Kimi_K25Config":
        return Found("not-applicable", note="this release reads one schema")
    return _placeholder(subject, "new")


def _shared(subject: Subject) -> Found:
    def ask(made: Scene) -> Value:
        config = made.config.attrs["model_config"].attrs["hf_config"]
        config.attrs.setdefault(_TOKEN, 63)  # another gate's question
        return _loaded(made)

    way = subject.way(Start(), ask)
    if way.thrown is not None:
        return raised(subject, way.thrown, "after load")
    if way.value is None:
        return Found("not-applicable", note="the V1 proposer shares nothing")
    thrown, drafter = way.value
    if thrown is not None:
        return raised(subject, thrown, "after load")
    missing = [
        what
        for what, owner in (("lm_head", drafter), ("embed_tokens", drafter.attrs["model"]))
        if what not in owner.attrs
    ]
    if missing:
        of = proposer_class(subject.program)
        evidence = Evidence(of.module.path, of.node.lineno, f"{of.name}.load_model")
        note = f"a drafter without its own {' and '.join(missing)} keeps uninitialised weights"
        return Found("fail", (evidence,), "", "never", note)
    return Found("pass")


GATES = (
    Gate(
        name="placeholder",
        asks="the drafter gets the placeholder token of its target's config",
        group="start",
        topic="eagle3-interface",
        upstream="v0.18.0",
        check=_old,
    ),
    Gate(
        name="embeddings",
        asks="the drafter shares the target's embeddings and lm_head",
        group="start",
        topic="eagle3-interface",
        upstream="v0.16.0",
        check=_shared,
    ),
)
OPTIONS = (
    Gate(
        name="placeholder-new-schema",
        asks="the same, of a config.json in the new schema",
        group="option",
        topic="kimi-config",
        upstream="",
        check=_new,
    ),
)
