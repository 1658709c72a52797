"""What a drafter takes of a rank's memory: from its headers and its config."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vpatch.preflight.case import Case
from vpatch.preflight.drafter import Drafter
from vpatch.preflight.weights import layout

STEP_TOKENS = 8192
"""Tokens of a step, by which buffers are as large: vLLM's default for a GPU server, or more."""

_DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2}
# What every rank holds whole: fc, norms, and what makes MLA's latents.
_REPLICATED = re.compile(r".*(fc\.|norm|q_a_proj|kv_a_proj|d2t|t2d).*")


@dataclass(frozen=True)
class Memory:
    """Bytes on one rank.

    Attributes:
        weights: The drafter's.
        cache: Of its KV cache, a token.
        buffers: Of the target's states for its `fc`, and of its hidden states, for a step of
            STEP_TOKENS tokens.
    """

    weights: int
    cache: int
    buffers: int


def memory_of(case: Case) -> Memory:
    """Estimates; tables that are the target's again are counted, though V1 shares them."""
    drafter, ranks = case.drafter, case.parallel.tensor
    width = _DTYPES.get(case.target.dtype, 2)
    states = case.states * case.target.hidden if drafter.uses_aux else 0
    return Memory(
        weights=sum(
            tensor.size if _REPLICATED.fullmatch(layout(name)) else -(-tensor.size // ranks)
            for name, tensor in drafter.tensors.items()
            if "t2d" not in name
        ),
        cache=_cache(drafter, ranks) * width * drafter.layers // case.parallel.context,
        buffers=STEP_TOKENS * (states + 2 * drafter.hidden) * width,
    )


def _cache(drafter: Drafter, ranks: int) -> int:
    """Values a token and layer."""
    config = drafter.config
    if drafter.kind == "mla":  # the latent is on every rank
        return _number(config.get("kv_lora_rank")) + _number(config.get("qk_rope_head_dim"))
    heads = _number(config.get("num_attention_heads")) or 1
    kept = _number(config.get("num_key_value_heads")) or heads
    size = _number(config.get("head_dim")) or drafter.hidden // heads
    return 2 * max(kept // ranks, 1) * size


def _number(value: object) -> int:
    return value if type(value) is int and 0 < value < 1 << 31 else 0


def told(size: int) -> str:
    """Bytes for a person."""
    for unit in ("B", "KiB", "MiB"):
        if size < 10 << 10:
            return f"{size} {unit}"
        size >>= 10
    return f"{size} GiB"
