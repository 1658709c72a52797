"""A Kimi-K2.5 of a few tiny layers, from a seed.

The weights are random, but not any random weights: tokens depend
mostly on the token before (so that a drafter can guess some of them), layers add enough to tell
their states apart, and experts are chosen with a margin that rounding cannot cross: an
embedding's first values, one for each expert, are a code of plus and minus, which no layer
overwrites, and the router reads it. One token, ECHO, follows itself, so that drafts can be right in
all places.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from vpatch.smoke.engine.checkpoint import (
    Config,
    Maker,
    Weights,
    saved,
    write,
    write_image_processor,
    write_tokenizer,
)
from vpatch.smoke.engine.int4 import QUANTIZATION, quantize_experts
from vpatch.smoke.engine.shapes import PATCH, Shape

KINDS = ("plain", "int4")
"""What a target's experts are saved as."""
SCHEMAS = ("old", "new")
"""Of the config: the hub's own, and that of transformers' `Kimi_K25Config`."""
ECHO = 300
"""The one token that follows itself for certain: whoever ends in it goes on with it for ever."""
_ECHO_GAIN = 8.0
"""Its logit behind itself, before what layers add; other tokens' logits are of 1, the best of 3."""
_TOKENS: Config = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def yarn(shape: Shape) -> Config:
    """The rotary frequencies' scaling, of the real Kimi's kind."""
    return {
        "type": "yarn",
        "factor": shape.positions / shape.original_positions,
        "original_max_position_embeddings": shape.original_positions,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 0.8,  # not equal to mscale, so that each has its own effect
    }


def text_config(shape: Shape) -> Config:
    """The language model's config, as in the hub's file of the real one."""
    return {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "kimi_k2",
        "hidden_size": shape.hidden,
        "vocab_size": shape.vocab,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "q_lora_rank": shape.q_rank,
        "kv_lora_rank": shape.kv_rank,
        "qk_nope_head_dim": shape.nope,
        "qk_rope_head_dim": shape.rope,
        "v_head_dim": shape.value,
        "intermediate_size": shape.dense,
        "moe_intermediate_size": shape.expert,
        "n_routed_experts": shape.experts,
        "n_shared_experts": 1,
        "num_experts_per_tok": shape.chosen,
        "n_group": 1,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.827,
        "first_k_dense_replace": shape.first_dense,
        "moe_layer_freq": 1,
        "num_nextn_predict_layers": 0,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": shape.positions,
        "rope_theta": 50000.0,
        "rope_scaling": yarn(shape) if shape.yarn else None,
        "attention_bias": False,
        "tie_word_embeddings": False,
        **_TOKENS,
        "torch_dtype": shape.dtype,
    }


def vision_config(shape: Shape) -> Config:
    """What both schemas say of the vision tower alike."""
    return {
        "patch_size": PATCH,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "hidden_size": shape.vision_hidden,
        "intermediate_size": shape.vision_dense,
        "merge_kernel_size": [2, 2],
    }


def target_config(shape: Shape, kind: str, schema: str) -> Config:
    """The whole model's config.

    Args:
        kind: Of KINDS.
        schema: Of SCHEMAS: vLLM reads "old" before v0.32.0 and "new" from there on.
    """
    text = text_config(shape) | ({"quantization_config": QUANTIZATION} if kind == "int4" else {})
    outer = {
        "architectures": ["KimiK25ForConditionalGeneration"],
        "model_type": "kimi_k25",
        "use_unified_vision_chunk": True,
        "tie_word_embeddings": False,
        **_TOKENS,
    }
    return outer | (_old_schema if schema == "old" else _new_schema)(shape, text)


def _old_schema(shape: Shape, text: Config) -> Config:
    own = {
        "init_pos_emb_height": 8,
        "init_pos_emb_width": 8,
        "init_pos_emb_time": 4,
        "mm_hidden_size": shape.vision_hidden,
    }
    return {
        "text_config": text,
        "vision_config": vision_config(shape) | own,
        "media_placeholder_token_id": shape.media,
        "torch_dtype": shape.dtype,
    }


def _new_schema(shape: Shape, text: Config) -> Config:
    renamed = ("rope_scaling", "rope_theta", "torch_dtype")
    rope = {"rope_type": "default", "rope_theta": text["rope_theta"]}
    if shape.yarn:
        rope |= {key: value for key, value in yarn(shape).items() if key != "type"}
        rope["rope_type"] = "yarn"
    own = {"model_type": "deepseek_v3", "rope_parameters": rope, "dtype": shape.dtype}
    vision = {
        "model_type": "kimi_k25_vision",
        "pos_emb_height": 8,
        "pos_emb_width": 8,
        "pos_emb_time": 4,
        "hidden_act": "gelu_pytorch_tanh",
    }
    return {
        "text_config": {key: text[key] for key in text if key not in renamed} | own,
        "vision_config": vision_config(shape) | vision,
        "projection_hidden_size": shape.vision_hidden,
        "projection_layer_norm_eps": 1e-5,
        "image_token_id": shape.media,
        "video_token_id": shape.vocab,  # as in the real one, no token of the vocabulary
        "vision_start_token_id": 1,
        "vision_end_token_id": 2,
        "dtype": shape.dtype,
    }


def text_weights(make: Maker) -> Weights:
    """The language model in float32, under DeepSeek-V3's own names."""
    shape = make.shape
    embedding = make.normal(shape.vocab, shape.hidden, std=1.0)
    embedding[:, : shape.experts] = make.codes()
    weights = {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": make.norm(shape.hidden),
        "lm_head.weight": make.linear(shape.vocab, shape.hidden),
    }
    # In the place of its random row, which would let it win behind others too.
    weights["lm_head.weight"][ECHO] = embedding[ECHO] * (_ECHO_GAIN / shape.hidden)
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}."
        weights[f"{prefix}input_layernorm.weight"] = make.norm(shape.hidden)
        weights[f"{prefix}post_attention_layernorm.weight"] = make.norm(shape.hidden)
        weights |= make.attention(f"{prefix}self_attn.", gain=0.5)
        if layer < shape.first_dense:
            weights |= make.mlp(f"{prefix}mlp.", shape.dense, gain=0.7)
        else:
            weights |= _experts(make, f"{prefix}mlp.")
    return weights


def _experts(make: Maker, prefix: str) -> Weights:
    experts, inner = make.shape.experts, make.shape.expert
    gate = make.linear(experts, make.shape.hidden, gain=0.03)
    gate[:, :experts] += torch.eye(experts)
    weights = {
        f"{prefix}gate.weight": gate,
        # Steps smaller than a plus against a minus, larger than the noise.
        f"{prefix}gate.e_score_correction_bias": make.order(experts) * 0.05,
    }
    for expert in range(experts):
        weights |= make.mlp(f"{prefix}experts.{expert}.", inner, gain=0.3)
    return weights | make.mlp(f"{prefix}shared_experts.", inner, gain=0.3)


def vision_weights(make: Maker) -> Weights:
    """The vision tower and the projector, so that the real loader loads a real Kimi-K2.5."""
    size, dense = make.shape.vision_hidden, make.shape.vision_dense
    merged = 4 * size
    tower, block = "vision_tower.", "vision_tower.encoder.blocks.0."
    sizes = {
        f"{tower}patch_embed.proj": (size, 3, PATCH, PATCH),
        f"{tower}encoder.final_layernorm": (size,),
        f"{block}norm0": (size,),
        f"{block}norm1": (size,),
        f"{block}wqkv": (3 * size, size),
        f"{block}wo": (size, size),
        f"{block}mlp.fc0": (dense, size),
        f"{block}mlp.fc1": (size, dense),
        "mm_projector.pre_norm": (size,),
        "mm_projector.proj.0": (merged, merged),
        "mm_projector.proj.2": (make.shape.hidden, merged),
    }
    weights = {f"{tower}patch_embed.pos_emb.weight": make.normal(8, 8, size, std=0.1)}
    for name, size_of in sizes.items():
        weights[f"{name}.weight"] = make.normal(*size_of, std=0.1)
        weights[f"{name}.bias"] = make.normal(size_of[0], std=0.1)
    return weights


class Written(NamedTuple):
    """What a target is made of.

    Attributes:
        text: The text model's weights as saved, or, where they are packed, before.
        parameters: How many values the whole model has.
    """

    text: Weights
    parameters: int


def write_target(folder: Path, shape: Shape, kind: str = "plain", schema: str = "old") -> Written:
    """A whole Kimi-K2.5.

    Args:
        folder: Of the checkpoint.
        shape: Its dimensions.
        kind: Of KINDS.
        schema: Of SCHEMAS.

    Raises:
        ValueError: An INT4 expert's columns are not whole groups.
    """
    make = Maker(shape)
    text = saved(text_weights(make), shape)
    vision = saved(vision_weights(make), shape)
    inner = quantize_experts(text) if kind == "int4" else text
    outer = {f"language_model.{name}": weight for name, weight in inner.items()}
    write(folder, target_config(shape, kind, schema), outer | vision)
    write_tokenizer(folder, shape)
    write_image_processor(folder)
    return Written(text, sum(weight.numel() for weight in (text | vision).values()))
