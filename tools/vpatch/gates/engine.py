"""A small engine, as values: configs, a target of eight layers, a drafter, runners.

What a check puts in to see what the tree's code makes of it. Nothing here is vLLM's: the numbers
are those of a small Kimi-K2.5, the names are those that its code asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from vpatch.gates.classes import class_of
from vpatch.gates.machine import Machine
from vpatch.gates.modules import Program
from vpatch.gates.registry import MODELS, class_at, maybe_class, registered_class
from vpatch.gates.values import UNKNOWN, ClassValue, Native, Obj, Value

TARGET = "KimiK25ForConditionalGeneration"
IDS = "eagle_aux_hidden_state_layer_ids"
LAYERS = 8
WIDTH = 16
TOKENS = 5
ASKED = (1, 3, 7)

Runner = Literal["v1", "v2"]

_TEXT: Mapping[str, Any] = {
    "model_type": "kimi_k2",
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 64,
    "rms_norm_eps": 1e-6,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "first_k_dense_replace": 1,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "routed_scaling_factor": 2.827,
    "tie_word_embeddings": False,
}
# What is in the hub's config.json of Kimi-K2.5, and in one that transformers' own class wrote.
_OUTER: Mapping[str, Mapping[str, Any]] = {
    "old": {"media_placeholder_token_id": 63},
    "new": {"image_token_id": 63, "video_token_id": 62, "vision_start_token_id": 61},
}


@dataclass(frozen=True)
class Start:
    """What an engine is started with.

    Attributes:
        ids: The drafter's layers; None where its config names none.
        place: Where its config names them: ``nested``, ``top``, ``layer_ids``.
        schema: Of the target's config.json.
        tp: Tensor parallel size; ``pp`` and ``dcp`` likewise.
        dtype: Of the target.
        mla: Whether the drafter attends with MLA.
        extra: More of the drafter's config.
    """

    ids: tuple[Any, ...] | None = ASKED
    place: str = "nested"
    schema: str = "old"
    method: str = "eagle3"
    tp: int = 8
    pp: int = 1
    dcp: int = 1
    dtype: str = "torch.bfloat16"
    mla: bool = False
    extra: tuple[tuple[str, Any], ...] = ()

    def but(self, **changes: Any) -> Start:
        """Another start."""
        return replace(self, **changes)


@dataclass(frozen=True)
class Scene:
    """One run's values; made anew for each run."""

    run: Machine
    start: Start
    config: Obj
    speculative: Obj
    drafter: Obj

    @property
    def program(self) -> Program:
        """The tree."""
        return self.run.program

    def target(self) -> Obj:
        """The target, as its own constructor makes it."""
        of = class_at(self.program, f"{MODELS}.kimi_k25", TARGET)
        made = self.run.call(ClassValue(of), [], {"vllm_config": self.config, "prefix": ""})
        return made if isinstance(made, Obj) else Obj(of, TARGET)


def drafter_config(start: Start) -> Obj:
    """The drafter's config.json, as transformers reads it."""
    attrs: dict[str, Any] = {
        **_TEXT,
        "model_type": "kimi_k2" if start.mla else "llama",
        "architectures": ["Eagle3DeepseekV2ForCausalLM" if start.mla else "LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": 32,
        "eagle_config": {},
        **dict(start.extra),
    }
    if not start.mla:
        for name in ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim"):
            del attrs[name]
    if start.ids is not None:
        ids = list(start.ids)
        if start.place == "top":
            attrs[IDS] = ids
        else:
            attrs["eagle_config"] = {"layer_ids" if start.place == "layer_ids" else IDS: ids}
    return Obj(None, "LlamaConfig", attrs)


def scene(run: Machine, start: Start) -> Scene:
    """The values of one start."""
    draft = drafter_config(start)
    parallel = Obj(
        None,
        "ParallelConfig",
        {
            "pipeline_parallel_size": start.pp,
            "tensor_parallel_size": start.tp,
            "decode_context_parallel_size": start.dcp,
            "prefill_context_parallel_size": 1,
            "data_parallel_size": 1,
            "enable_expert_parallel": False,
            "enable_dbo": False,
            "enable_elastic_ep": False,
            "distributed_executor_backend": "mp",
            "use_ubatching": False,
        },
    )
    draft_parallel = _draft_parallel(run, parallel)
    target_config = _model_config(run, target_config_of(run.program, start.schema), start)
    draft_model_config = _model_config(run, draft, start)
    speculative = Obj(
        maybe_class(run.program, "vllm.config.speculative", "SpeculativeConfig"),
        "SpeculativeConfig",
        {
            "method": start.method,
            "model": "drafter",
            "num_speculative_tokens": 3,
            "tensor_parallel_size": None,
            "target_model_config": target_config,
            "target_parallel_config": parallel,
            "draft_model_config": draft_model_config,
            "draft_parallel_config": draft_parallel,
            "parallel_drafting": False,
            "disable_padded_drafter_batch": False,
        },
    )
    config = Obj(
        maybe_class(run.program, "vllm.config.vllm", "VllmConfig"),
        "VllmConfig",
        {
            "model_config": target_config,
            "parallel_config": parallel,
            "speculative_config": speculative,
            "quant_config": None,
            "lora_config": None,
            "diffusion_config": None,
            "watermark_config": None,
            "attention_config": Obj(None, "AttentionConfig", {"hisparse_config": None}),
        },
    )
    run.current = config
    return Scene(run, start, config, speculative, draft)


def target_config_of(program: Program, schema: str) -> Obj:
    """The target's config: what is in config.json, and what the tree's class adds."""
    name, added = "KimiK25Config", []
    module = program.module(f"{MODELS}.kimi_k25")
    for bound, imported in module.imports.items() if module else ():
        if bound in {"KimiK25Config", "Kimi_K25Config"}:
            name = bound
            of = class_of(program, module, bound) if module else None
            added = [*of.assigned, *of.methods, *of.values] if of else []
            del imported
    attrs: dict[str, Any] = dict.fromkeys(added, UNKNOWN)
    attrs.update(
        model_type="kimi_k25",
        architectures=[TARGET],
        text_config=Obj(None, "DeepseekV3Config", dict(_TEXT)),
        vision_config=Obj(None, "VisionConfig", {}),
        vocab_size=_TEXT["vocab_size"],
        **_OUTER[schema],
    )
    if schema == "new":
        attrs.pop("media_placeholder_token_id", None)
    elif name == "Kimi_K25Config":
        attrs.update(_OUTER["new"])  # the class's own fields, with their defaults
    return Obj(None, name, attrs, strict=True)


def _model_config(run: Machine, hf_config: Obj, start: Start) -> Obj:
    text = hf_config.attrs.get("text_config", hf_config)
    mla = "kv_lora_rank" in text.attrs
    given = text.attrs
    return Obj(
        maybe_class(run.program, "vllm.config.model", "ModelConfig"),
        "ModelConfig",
        {
            "hf_config": hf_config,
            "hf_text_config": text,
            "architectures": hf_config.attrs["architectures"],
            "architecture": hf_config.attrs["architectures"][0],
            "model": "drafter" if text is hf_config else "target",
            "dtype": start.dtype,
            "use_mla": mla,
            "logits_processors": None,
            "multimodal_config": Obj(None, "MultiModalConfig", {}),
            "is_diffusion": False,
            "registry": Obj(None, "Registry", {"is_pp_supported_model": _PP_SUPPORT}),
            "model_arch_config": Obj(
                None,
                "ModelArchitectureConfig",
                {
                    "total_num_attention_heads": given["num_attention_heads"],
                    "total_num_kv_heads": 1 if mla else given["num_key_value_heads"],
                    "hidden_size": given["hidden_size"],
                    "total_num_hidden_layers": given["num_hidden_layers"],
                    "vocab_size": given["vocab_size"],
                    "is_deepseek_mla": mla,
                },
            ),
        },
    )


def _draft_parallel(run: Machine, parallel: Obj) -> Obj:
    of = maybe_class(run.program, "vllm.config.speculative", "SpeculativeConfig")
    found = of.method("create_draft_parallel_config") if of else None
    if of is None or found is None:
        return parallel
    make = run.attribute(ClassValue(of), "create_draft_parallel_config")
    made = run.call(make, [parallel, parallel.attrs["tensor_parallel_size"]], {})
    return made if isinstance(made, Obj) else parallel


def _pp_supported(run: Machine, architectures: Value, *_config: Value) -> Value:
    of = registered_class(run.program, architectures[0])
    forward = of.method("forward") if of else None
    if of is None or forward is None:
        return UNKNOWN
    # Both are asked: the class's flag, which it may inherit, and forward's arguments.
    arguments = forward[1].args
    names = {each.arg for each in [*arguments.args, *arguments.kwonlyargs]}
    return of.is_a("SupportsPP") and "intermediate_tensors" in names


_PP_SUPPORT = Native("is_pp_supported_model", _pp_supported)
