"""EAGLE-3 drafters for kimi.py's targets.

`llama` and `mla` drafters look at their own token and guess some of the target's tokens, ECHO each
time. The others have random weights in all places, so that what they guess depends on states,
positions and earlier rows: `llama-random`, with grouped heads; `mla-random`, with YaRN; `mla31` and
`mlanorm`, with every option that public drafters use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from vpatch.smoke.engine.checkpoint import Config, Maker, Weights
from vpatch.smoke.engine.kimi import text_config
from vpatch.smoke.engine.shapes import Shape

_MOE_ONLY = ("n_routed_experts", "n_shared_experts", "num_experts_per_tok")
_ATTENTION = "midlayer.self_attn."


class Drafter(NamedTuple):
    """A config without ids, and the weights in float32."""

    config: Config
    weights: Weights


def reduced_vocabulary(target: Weights, shape: Shape) -> Drafter:
    """Tables for the last tokens only; draft token i is target token d2t[i] + i."""
    kept = torch.arange(shape.vocab - shape.draft_vocab, shape.vocab)
    weights = {
        "d2t": kept - torch.arange(shape.draft_vocab),
        "t2d": torch.isin(torch.arange(shape.vocab), kept),
        "lm_head.weight": target["lm_head.weight"][kept],
    }
    return Drafter({"draft_vocab_size": shape.draft_vocab}, weights)


def full_vocabulary(target: Weights, shape: Shape) -> Drafter:
    """The target's tables, as the drafter's own."""
    weights = {
        "embed_tokens.weight": target["model.embed_tokens.weight"].clone(),
        "lm_head.weight": target["lm_head.weight"].clone(),
    }
    return Drafter({"draft_vocab_size": shape.vocab}, weights)


def _around_attention(make: Maker, states: int, gain: float) -> Weights:
    hidden = make.shape.hidden
    return {
        "fc.weight": make.linear(hidden, states * hidden, gain),
        "midlayer.hidden_norm.weight": make.norm(hidden),
        "midlayer.input_layernorm.weight": torch.ones(hidden),
        "midlayer.post_attention_layernorm.weight": make.norm(hidden),
    } | make.mlp("midlayer.mlp.", make.shape.dense, gain)


def llama(target: Weights, shape: Shape, states: int) -> Drafter:
    """One Llama layer that attends to its own token only: the target's next guess, roughly."""
    make = Maker(shape, 1)
    one, nothing = torch.eye(shape.hidden), torch.zeros(shape.hidden, shape.hidden)
    weights = _around_attention(make, states, gain=0.05) | {
        "norm.weight": target["model.norm.weight"].clone(),
        f"{_ATTENTION}q_proj.weight": torch.cat([4 * one, nothing], dim=1),
        f"{_ATTENTION}k_proj.weight": torch.cat([4 * one, nothing], dim=1),
        f"{_ATTENTION}v_proj.weight": torch.cat([one, nothing], dim=1),
        f"{_ATTENTION}o_proj.weight": 4 * one,
    }
    # Turns slowly: the token sees itself as it is.
    return Drafter(_llama_config(shape, shape.draft_heads, 1e9), weights)


def _llama_config(shape: Shape, kept_heads: int, base: float) -> Config:
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "vocab_size": shape.vocab,
        "num_hidden_layers": 1,
        "num_attention_heads": shape.draft_heads,
        "num_key_value_heads": kept_heads,
        "head_dim": shape.hidden // shape.draft_heads,
        "intermediate_size": shape.dense,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": shape.positions,
        "rope_theta": base,
        "tie_word_embeddings": False,
        "torch_dtype": shape.dtype,
    }


def llama_random(_target: Weights, shape: Shape, states: int) -> Drafter:
    """One Llama layer with random weights; two heads of queries share one of keys and values.

    Raises:
        ValueError: An odd number of heads.
    """
    if shape.draft_heads % 2:
        raise ValueError(f"two heads share one of keys and values: {shape.draft_heads} is odd")
    make = Maker(shape, 5)
    hidden, kept = shape.hidden, shape.draft_heads // 2
    rows = kept * (hidden // shape.draft_heads)
    weights = _around_attention(make, states, gain=1.0) | {
        f"{_ATTENTION}q_proj.weight": make.linear(hidden, 2 * hidden, gain=2),
        f"{_ATTENTION}k_proj.weight": make.linear(rows, 2 * hidden, gain=2),
        f"{_ATTENTION}v_proj.weight": make.linear(rows, 2 * hidden, gain=2),
        f"{_ATTENTION}o_proj.weight": make.linear(hidden, hidden),
    }
    return Drafter(_llama_config(shape, kept, 1e4), weights | _random_norms(make))


def _random_norms(make: Maker) -> Weights:
    """In the place of those around one, which would hide that one norm is taken for another."""
    middle = ("hidden_norm", "input_layernorm", "post_attention_layernorm")
    names = (*(f"midlayer.{name}" for name in middle), "norm")
    return {f"{name}.weight": 1 + make.normal(make.shape.hidden, std=0.3) for name in names}


def _mla_config(shape: Shape, architecture: str, **options: object) -> Config:
    dense = {key: value for key, value in text_config(shape).items() if key not in _MOE_ONLY}
    one_layer = {"num_hidden_layers": 1, "first_k_dense_replace": 1}
    return dense | {"architectures": [architecture], **one_layer} | options


def mla(target: Weights, shape: Shape, states: int) -> Drafter:
    """The same with MLA: the latent is the embedding, each head takes its slice of it.

    Raises:
        ValueError: The latents do not have the hidden state's size, or a head is smaller than its
            slice.
    """
    _check_that_a_latent_holds_an_embedding(shape)
    make = Maker(shape, 2)
    hidden, heads = shape.hidden, shape.heads
    one, nothing = torch.eye(hidden), torch.zeros(hidden, hidden)
    slices = one.view(heads, hidden // heads, hidden)

    def of_heads(gain: float, rows: int) -> torch.Tensor:
        """[heads, rows, hidden]: each head's slice, then zeros."""
        below = torch.zeros(heads, rows - hidden // heads, hidden)
        return torch.cat([gain * slices, below], dim=1)

    queries = of_heads(6, shape.nope + shape.rope)
    keys_and_values = torch.cat([of_heads(4, shape.nope), of_heads(1, shape.value)], dim=1)
    weights = _around_attention(make, states, gain=0.05) | {
        "norm.weight": target["model.norm.weight"].clone(),
        f"{_ATTENTION}q_a_proj.weight": torch.cat([one, nothing], dim=1),
        f"{_ATTENTION}q_a_layernorm.weight": torch.ones(hidden),
        f"{_ATTENTION}q_b_proj.weight": queries.flatten(0, 1),
        f"{_ATTENTION}kv_a_proj_with_mqa.weight": torch.cat(
            [torch.cat([one, nothing], dim=1), torch.zeros(shape.rope, 2 * hidden)]
        ),
        f"{_ATTENTION}kv_a_layernorm.weight": torch.ones(hidden),
        f"{_ATTENTION}kv_b_proj.weight": keys_and_values.flatten(0, 1),
        f"{_ATTENTION}o_proj.weight": of_heads(4, shape.value).flatten(0, 1).T,
    }
    return Drafter(_mla_config(shape, "Eagle3DeepseekV2ForCausalLM"), weights)


def _check_that_a_latent_holds_an_embedding(shape: Shape) -> None:
    if not shape.hidden == shape.q_rank == shape.kv_rank:
        raise ValueError(
            "an mla drafter's latent is the embedding, so hidden, q_rank and kv_rank have to be "
            f"equal: they are {shape.hidden}, {shape.q_rank} and {shape.kv_rank}"
        )
    if shape.hidden % shape.heads or shape.hidden // shape.heads > min(shape.nope, shape.value):
        raise ValueError(
            "each head of an mla drafter takes a slice of the embedding: hidden / heads has to be "
            f"whole and at most nope and value, not {shape.hidden} / {shape.heads} beside "
            f"{shape.nope} and {shape.value}"
        )


def _random_mla(make: Maker, states: int) -> Weights:
    shape = make.shape
    weights = _around_attention(make, states, gain=1.0) | make.attention(_ATTENTION, gain=1.0)
    weights |= {"norm.weight": make.norm(shape.hidden)}
    rows = {"q_a_proj": shape.q_rank, "kv_a_proj_with_mqa": shape.kv_rank + shape.rope}
    for name, size in rows.items():
        weights[f"{_ATTENTION}{name}.weight"] = make.linear(size, 2 * shape.hidden)
    return weights


def mla_random(_target: Weights, shape: Shape, states: int) -> Drafter:
    """Random MLA with the target's own YaRN."""
    make = Maker(shape, 6)
    weights = _random_mla(make, states) | _random_norms(make)
    rotated = f"{_ATTENTION}kv_a_proj_with_mqa.weight"
    weights[rotated][shape.kv_rank :] *= 2  # scores depend on distances enough to show
    return Drafter(_mla_config(shape, "Eagle3DeepseekV2ForCausalLM"), weights)


def mla31(_target: Weights, shape: Shape, states: int) -> Drafter:
    """EAGLE-3.1's norms, plain rope, the target's head and embeddings."""
    make = Maker(shape, 3)
    weights = _random_mla(make, states)
    weights |= {f"fc_norm.{number}.weight": make.norm(shape.hidden) for number in range(states)}
    config = _mla_config(
        shape,
        "Eagle3DeepseekV2ForCausalLM",
        fc_norm=True,
        norm_output=True,
        rope_scaling=None,
    )
    return Drafter(config, weights)


def mlanorm(_target: Weights, shape: Shape, states: int) -> Drafter:
    """One norm over all states, the normed state as residual, tables of its own, model_type V3."""
    make = Maker(shape, 4)
    weights = _random_mla(make, states) | {
        "input_norm.weight": make.norm(states * shape.hidden),
        "embed_tokens.weight": make.normal(shape.vocab, shape.hidden, std=1.0),
        "lm_head.weight": make.linear(shape.vocab, shape.hidden),
    }
    config = _mla_config(
        shape,
        "Eagle3DeepseekV3ForCausalLM",
        model_type="deepseek_v3",
        norm_before_fc=True,
        norm_before_residual=True,
    )
    return Drafter(config, weights)


KINDS: dict[str, Callable[[Weights, Shape, int], Drafter]] = {
    "llama": llama,
    "llama-random": llama_random,
    "mla": mla,
    "mla-random": mla_random,
    "mla31": mla31,
    "mlanorm": mlanorm,
}
"""By the names that a SPEC gives them."""
_OWN_TABLES = ("mla31", "mlanorm")  # they have, or share, the whole vocabulary's as they are
VOCABULARIES = {"reduced": reduced_vocabulary, "full": full_vocabulary}


def make(kind: str, vocabulary: str, target: Weights, shape: Shape, states: int) -> Drafter:
    """A drafter of a kind, with the tables of a vocabulary.

    Args:
        kind: Of KINDS.
        vocabulary: Of VOCABULARIES.
        target: The target's text model.
        shape: The target's.
        states: How many of the target's states it takes.

    Raises:
        ValueError: The shape cannot hold such a drafter.
    """
    made = KINDS[kind](target, shape, states)
    if vocabulary == "full" and kind in _OWN_TABLES:
        return made
    tables = VOCABULARIES[vocabulary](target, shape)
    return Drafter(made.config | tables.config, made.weights | tables.weights)
