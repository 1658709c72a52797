"""Which weights a drafter's checkpoint has to have, by its config."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vpatch.preflight.drafter import Drafter

TABLES = ("embed_tokens.weight", "lm_head.weight")
_SKIPPED = re.compile(r".*(t2d|mask_hidden|rotary_emb\.inv_freq).*")


def layout(name: str) -> str:
    """A weight's name as this module has it: the first layer is ``layers.0``."""
    return name.replace("midlayer.", "layers.0.")


@dataclass(frozen=True)
class Built:
    """What a release's class is built for.

    Attributes:
        drafter: With the config that the class gets.
        states: How many of the target's states enter `fc`.
        norms: The options of norms that it has set.
        table: Whether it has a place for d2t.
    """

    drafter: Drafter
    states: int
    norms: Collection[str]
    table: bool


def expected(built: Built) -> dict[str, tuple[int, ...] | None]:
    """Names and shapes that a drafter's model has parameters for; None: the shape is not told."""
    drafter, states = built.drafter, built.states
    hidden = drafter.hidden
    found: dict[str, tuple[int, ...] | None] = {
        "embed_tokens.weight": (drafter.vocab, hidden),
        "lm_head.weight": (drafter.draft_vocab, hidden),
        "norm.weight": (hidden,),
    }
    if drafter.uses_aux:
        found["fc.weight"] = (hidden, states * drafter.state_size)
        if "norm_before_fc" in built.norms:
            found["input_norm.weight"] = (states * drafter.state_size,)
        if "fc_norm" in built.norms:
            found |= {f"fc_norm.{each}.weight": (drafter.state_size,) for each in range(states)}
    for number in range(drafter.layers):
        found |= {f"layers.{number}.{name}": shape for name, shape in _layer(drafter, number)}
    if built.table:
        found["d2t"] = (drafter.draft_vocab,)
    return found


def missing(built: Built) -> tuple[str, ...]:
    """What the checkpoint lacks and nothing stands in for."""
    drafter = built.drafter
    own = {layout(name) for name in drafter.tensors}
    optional = {"embed_tokens.weight"}
    if drafter.draft_vocab == drafter.vocab:
        optional |= {"lm_head.weight", "d2t"}
    optional |= {f"layers.{number}.hidden_norm.weight" for number in range(1, drafter.layers)}
    return tuple(sorted(expected(built).keys() - own - optional))


def unknown(built: Built) -> tuple[str, ...]:
    """What the checkpoint has and the model has no parameter for, in the order of loading."""
    known = expected(built).keys()
    return tuple(
        name
        for name in built.drafter.tensors
        if layout(name) not in known and not _SKIPPED.fullmatch(name)
    )


def misshapen(built: Built) -> dict[str, tuple[int, ...]]:
    """Weights of another shape than their parameters', with that shape; in order of loading."""
    shapes = expected(built)
    return {
        own.name: shape
        for own in built.drafter.tensors.values()
        if (shape := shapes.get(layout(own.name))) is not None and own.shape != shape
    }


def _layer(drafter: Drafter, number: int) -> Iterator[tuple[str, tuple[int, ...] | None]]:
    hidden, config = drafter.hidden, drafter.config
    inner = _whole(config, "intermediate_size")
    width = 2 * hidden if number == 0 else hidden
    for norm in ("input_layernorm", "post_attention_layernorm", "hidden_norm"):
        yield f"{norm}.weight", (hidden,)
    for name in ("gate_proj", "up_proj"):
        yield f"mlp.{name}.weight", None if inner is None else (inner, hidden)
    yield "mlp.down_proj.weight", None if inner is None else (hidden, inner)
    attention = _mla if drafter.kind == "mla" else _llama
    for name, shape in attention(config, hidden, width):
        yield f"self_attn.{name}", shape


def _llama(
    config: Mapping[str, object], hidden: int, width: int
) -> Iterator[tuple[str, tuple[int, ...] | None]]:
    heads = _whole(config, "num_attention_heads")
    kept = _whole(config, "num_key_value_heads") or heads
    size = _whole(config, "head_dim") or (None if heads is None else hidden // heads)
    rows = {"q_proj": heads, "k_proj": kept, "v_proj": kept}
    for name, count in rows.items():
        known = count is not None and size is not None
        yield f"{name}.weight", ((count or 0) * (size or 0), width) if known else None
        if config.get("attention_bias"):
            yield f"{name}.bias", None
    yield "o_proj.weight", None
    if config.get("attention_bias"):
        yield "o_proj.bias", None


def _mla(
    config: Mapping[str, object], _hidden: int, width: int
) -> Iterator[tuple[str, tuple[int, ...] | None]]:
    rank = _whole(config, "q_lora_rank")
    if rank is None:
        yield "q_proj.weight", None
    else:
        yield "q_a_proj.weight", (rank, width)
        yield "q_a_layernorm.weight", (rank,)
        yield "q_b_proj.weight", None
    kept, rope = _whole(config, "kv_lora_rank"), _whole(config, "qk_rope_head_dim")
    known = kept is not None and rope is not None
    yield "kv_a_proj_with_mqa.weight", ((kept or 0) + (rope or 0), width) if known else None
    yield "kv_a_layernorm.weight", None if kept is None else (kept,)
    yield "kv_b_proj.weight", None
    yield "o_proj.weight", None


def _whole(config: Mapping[str, object], name: str) -> int | None:
    value = config.get(name)
    return value if type(value) is int and 0 < value < 1 << 31 else None
