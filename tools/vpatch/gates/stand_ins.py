"""What code is given in place of what cannot be read: groups of ranks, layers, loaders."""

from __future__ import annotations

from vpatch.gates.calls import is_language_model
from vpatch.gates.engine import LAYERS, TOKENS, WIDTH, Start
from vpatch.gates.machine import Machine
from vpatch.gates.natives import KNOWN
from vpatch.gates.registry import registered_class
from vpatch.gates.values import UNKNOWN, ClassValue, Native, Obj, Tensor, Value


def stand_ins(start: Start, *, first: bool = True, last: bool = True) -> dict[str, Value]:
    """What code is given in place of what cannot be read: groups of ranks, layers, loaders.

    Args:
        start: What the engine is started with.
        first: Whether this is the first pipeline stage; ``last`` likewise.
    """
    group = Obj(
        None,
        "GroupCoordinator",
        {
            "world_size": start.pp,
            "is_first_rank": first,
            "is_last_rank": last,
            "rank_in_group": 0 if first else start.pp - 1,
        },
    )
    half = LAYERS // 2
    begin, end = (0 if first else half), (LAYERS if last else half)
    return {
        **KNOWN,
        "HAS_TRITON": True,
        "get_pp_group": Native("get_pp_group", lambda _run: group),
        "get_current_vllm_config": Native("get_current_vllm_config", lambda run: run.current),
        "model_parallel_is_initialized": Native("mp", lambda _run: True),
        "get_tensor_model_parallel_world_size": Native("tp", lambda _run: start.tp),
        "init_vllm_registered_model": Native("init_vllm_registered_model", _registered),
        "make_layers": Native(
            "make_layers",
            lambda _run, count, _make, **_how: _layers(count, begin, end, start.dtype),
        ),
        "make_empty_intermediate_tensors_factory": Native("factory", lambda _run, *_: UNKNOWN),
        "SupportsMultiModal.get_language_model": _language_model,
        "VocabParallelEmbedding": Native("VocabParallelEmbedding", _embedding),
        "RMSNorm": Native("RMSNorm", _norm),
        "ReplicatedLinear": Native("ReplicatedLinear", _linear),
        "IntermediateTensors": Native(
            "IntermediateTensors",
            lambda _run, tensors: Obj(
                None, "IntermediateTensors", {"tensors": tensors, "__getitem__": _getter(tensors)}
            ),
        ),
    }


def _getter(tensors: Value) -> Native:
    return Native("get", lambda _run, key: tensors[key])


def states(name: str, dtype: str = "torch.bfloat16") -> Tensor:
    """Rows of hidden states."""
    return Tensor(name, (TOKENS, WIDTH), dtype)


def _registered(run: Machine, **given: Value) -> Value:
    config: Obj = given["vllm_config"]
    hf_config = given.get("hf_config") or config.attrs["model_config"].attrs["hf_config"]
    names = given.get("architectures") or hf_config.attrs["architectures"]
    of = registered_class(run.program, names[0])
    if of is None:
        raise run.throw("ValueError", f"Model architectures {names} are not supported for now.")
    model = Obj(None, "ModelConfig", {**config.attrs["model_config"].attrs, "hf_config": hf_config})
    inner = Obj(config.of, config.name, {**config.attrs, "model_config": model})
    return run.call(ClassValue(of), [], {"vllm_config": inner, "prefix": given.get("prefix", "")})


def _layers(count: Value, begin: int, end: int, dtype: str) -> Value:
    if count != LAYERS:  # a drafter's
        return 0, 1, [UNKNOWN]
    return begin, end, [_layer(number, dtype) for number in range(LAYERS)]


def _layer(number: int, dtype: str) -> Obj:
    made = (states(f"a{number}", dtype), states(f"r{number}", dtype))

    def layer(run: Machine, *args: Value, **kwargs: Value) -> Value:
        run.overwritten += [each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)]
        return made

    forward = Native("forward", layer)
    attrs = {"__call__": forward, "use_sequence_parallel_moe": False, "use_mha": False}
    return Obj(None, "DeepseekV2DecoderLayer", attrs)


def _embedding(_run: Machine, *_args: Value, **_kwargs: Value) -> Value:
    forward = Native("forward", lambda _run, *_args, **_kwargs: states("e"))
    return Obj(None, "VocabParallelEmbedding", {"__call__": forward})


def _language_model(_run: Machine, model: Value) -> Value:
    children = model.attrs.values() if isinstance(model, Obj) else ()
    for child in children:
        if isinstance(child, Obj) and child.of is not None and is_language_model(child.of):
            return child
    return UNKNOWN


def _linear(_run: Machine, *args: Value, **kwargs: Value) -> Value:
    width = kwargs.get("input_size", args[0] if args else UNKNOWN)
    forward = Native("forward", lambda _run, value, *_args: states(f"fc({value})"))
    return Obj(None, "ReplicatedLinear", {"__call__": forward, "input_size": width})


def _norm(_run: Machine, *_args: Value, **_kwargs: Value) -> Value:
    def forward(_run: Machine, value: Value, *residual: Value) -> Value:
        normed = states(f"norm({value.text if isinstance(value, Tensor) else value})")
        return (normed, residual[0]) if residual else normed

    return Obj(None, "RMSNorm", {"__call__": Native("forward", forward)})
