"""EAGLE-3 drafters for tiny_kimi's targets.

``python -m engine.tiny_drafters FOLDER`` under the engine environment's Python writes the targets
and each drafter as a folder of FOLDER. The names: kind, then the ids of the layers. `llama-` and
`mla-` drafters look at their own token and guess some of the target's tokens; `mla31-` and
`mlanorm-` ones have random weights in all places and every option that public drafters use.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import torch

from engine.tiny_kimi import (
    DENSE,
    HEADS,
    HIDDEN,
    KV_RANK,
    NOPE,
    Q_RANK,
    ROPE,
    SEED,
    TEXT,
    VOCAB,
    Config,
    Maker,
    Weights,
    write,
    write_target,
)

DRAFT_VOCAB = 384
_MOE_ONLY = ("n_routed_experts", "n_shared_experts", "num_experts_per_tok")


class Drafter(NamedTuple):
    """A config without ids, and the weights."""

    config: Config
    weights: Weights


def _reduced_vocabulary(target: Weights) -> Weights:
    kept = torch.arange(VOCAB - DRAFT_VOCAB, VOCAB)  # draft token i is target token kept[i]
    return {
        "d2t": kept - torch.arange(DRAFT_VOCAB),
        "t2d": torch.isin(torch.arange(VOCAB), kept),
        "lm_head.weight": target["lm_head.weight"][kept],
    }


def _around_attention(make: Maker, states: int, gain: float) -> Weights:
    return {
        "fc.weight": make.linear(HIDDEN, states * HIDDEN, gain),
        "midlayer.hidden_norm.weight": make.norm(HIDDEN),
        "midlayer.input_layernorm.weight": torch.ones(HIDDEN),
        "midlayer.post_attention_layernorm.weight": make.norm(HIDDEN),
    } | make.mlp("midlayer.mlp.", DENSE, gain)


def llama_drafter(target: Weights, states: int) -> Drafter:
    """One Llama layer that attends to its own token only: the target's next guess, roughly."""
    make = Maker(SEED + 1)
    one, nothing = torch.eye(HIDDEN), torch.zeros(HIDDEN, HIDDEN)
    attention = "midlayer.self_attn."
    weights = _reduced_vocabulary(target) | _around_attention(make, states, gain=0.05)
    weights |= {
        "norm.weight": target["model.norm.weight"].clone(),
        f"{attention}q_proj.weight": torch.cat([4 * one, nothing], dim=1),
        f"{attention}k_proj.weight": torch.cat([4 * one, nothing], dim=1),
        f"{attention}v_proj.weight": torch.cat([one, nothing], dim=1),
        f"{attention}o_proj.weight": 4 * one,
    }
    config: Config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "vocab_size": VOCAB,
        "draft_vocab_size": DRAFT_VOCAB,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HIDDEN // HEADS,
        "intermediate_size": DENSE,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 256,
        "rope_theta": 1e9,  # turns slowly: the token sees itself as it is
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }
    return Drafter(config, weights)


def _mla_config(architecture: str, **options: object) -> Config:
    dense = {key: value for key, value in TEXT.items() if key not in _MOE_ONLY}
    return dense | {"architectures": [architecture], "num_hidden_layers": 1} | options


def mla_drafter(target: Weights, states: int) -> Drafter:
    """The same with MLA: the latent is the embedding, each head takes its slice of it."""
    make = Maker(SEED + 2)
    one, nothing = torch.eye(HIDDEN), torch.zeros(HIDDEN, HIDDEN)
    slices = one.view(HEADS, NOPE, HIDDEN)
    unrotated = torch.zeros(HEADS, ROPE, HIDDEN)
    attention = "midlayer.self_attn."
    weights = _reduced_vocabulary(target) | _around_attention(make, states, gain=0.05)
    weights |= {
        "norm.weight": target["model.norm.weight"].clone(),
        f"{attention}q_a_proj.weight": torch.cat([one, nothing], dim=1),
        f"{attention}q_a_layernorm.weight": torch.ones(Q_RANK),
        f"{attention}q_b_proj.weight": torch.cat([6 * slices, unrotated], dim=1).flatten(0, 1),
        f"{attention}kv_a_proj_with_mqa.weight": torch.cat(
            [torch.cat([one, nothing], dim=1), torch.zeros(ROPE, 2 * HIDDEN)]
        ),
        f"{attention}kv_a_layernorm.weight": torch.ones(KV_RANK),
        f"{attention}kv_b_proj.weight": torch.cat([4 * slices, slices], dim=1).flatten(0, 1),
        f"{attention}o_proj.weight": 4 * one,
    }
    config = _mla_config("Eagle3DeepseekV2ForCausalLM", draft_vocab_size=DRAFT_VOCAB)
    return Drafter(config, weights)


def _random_mla(make: Maker, states: int) -> Weights:
    attention = "midlayer.self_attn."
    weights = _around_attention(make, states, gain=1.0) | make.attention(attention, gain=1.0)
    weights |= {"norm.weight": make.norm(HIDDEN)}
    for name, rows in (("q_a_proj", Q_RANK), ("kv_a_proj_with_mqa", KV_RANK + ROPE)):
        weights[f"{attention}{name}.weight"] = make.linear(rows, 2 * HIDDEN)
    return weights


def mla31_drafter(_target: Weights, states: int) -> Drafter:
    """EAGLE-3.1's norms, plain rope, the target's head and embeddings."""
    make = Maker(SEED + 3)
    weights = _random_mla(make, states)
    weights |= {f"fc_norm.{number}.weight": make.norm(HIDDEN) for number in range(states)}
    config = _mla_config(
        "Eagle3DeepseekV2ForCausalLM",
        fc_norm=True,
        norm_output=True,
        rope_scaling=None,
    )
    return Drafter(config, weights)


def mlanorm_drafter(_target: Weights, states: int) -> Drafter:
    """One norm over all states, the normed state as residual, tables of its own, model_type V3."""
    make = Maker(SEED + 4)
    weights = _random_mla(make, states) | {
        "input_norm.weight": make.norm(states * HIDDEN),
        "embed_tokens.weight": make.normal(VOCAB, HIDDEN, std=1.0),
        "lm_head.weight": make.linear(VOCAB, HIDDEN),
    }
    config = _mla_config(
        "Eagle3DeepseekV3ForCausalLM",
        model_type="deepseek_v3",
        norm_before_fc=True,
        norm_before_residual=True,
    )
    return Drafter(config, weights)


def nested(*ids: int) -> Config:
    """Where public Kimi drafters keep their ids."""
    return {"eagle_config": {"eagle_aux_hidden_state_layer_ids": list(ids)}} if ids else {}


def main(folder: Path) -> None:
    target = write_target(folder / "target", TEXT)
    # Compiling takes a minute for eight layers of eight experts.
    short = TEXT | {"num_hidden_layers": 2, "first_k_dense_replace": 2}
    short_target = write_target(folder / "short-target", short)
    for name, ids, make, weights in (
        ("llama-1-3-7", (1, 3, 7), llama_drafter, target),
        ("llama-0-4-8", (0, 4, 8), llama_drafter, target),
        ("llama-default", (), llama_drafter, target),
        ("mla-1-3-7", (1, 3, 7), mla_drafter, target),
        ("mla31-0-1-2-7-8", (0, 1, 2, 7, 8), mla31_drafter, target),
        ("mlanorm-default", (), mlanorm_drafter, target),
        ("short-llama-1-2", (1, 2), llama_drafter, short_target),
        ("short-llama-0-2", (0, 2), llama_drafter, short_target),
        ("short-mla31-0-2", (0, 2), mla31_drafter, short_target),
    ):
        drafter = make(weights, len(ids) or 3)
        write(folder / name, drafter.config | nested(*ids), drafter.weights)
    # The same ids and weights, another graph.
    raw = mla31_drafter(short_target, 2)
    config = raw.config | nested(0, 2) | {"norm_output": False}
    write(folder / "short-mlaraw-0-2", config, raw.weights)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
