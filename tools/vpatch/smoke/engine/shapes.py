"""How large a tiny Kimi-K2.5 and its drafters are.

A Shape holds every dimension. Three are presets: CPU is as small as a two-core machine likes it,
CUDA has the head and latent sizes that MLA's GPU kernels take, WIDE has the real Kimi's hidden
size, for speed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
PATCH = 14
"""Pixels along a side of one patch of a picture."""


@dataclass(frozen=True)
class Shape:
    """The dimensions of one target and of the drafters beside it.

    Attributes:
        hidden: Values of a token's hidden state.
        vocab: Tokens; the last ones before ``media`` are words, and ``media`` stands for a picture.
        layers: Decoder layers.
        heads: Attention heads.
        q_rank: Size of the queries' latent.
        kv_rank: Size of the keys' and values' latent.
        nope: A head's query and key values that are not rotated.
        rope: Those that are.
        value: A head's values.
        dense: Inner size of a dense layer's MLP, and of a drafter's.
        expert: Inner size of one expert.
        experts: Routed experts of a layer; one shared expert comes on top.
        chosen: Routed experts that a token takes.
        first_dense: So many first layers have a dense MLP in the place of experts.
        positions: The longest sequence.
        original_positions: YaRN's original context, shorter than `positions`.
        yarn: Whether the target's rotary frequencies are stretched, as the real Kimi's are.
        draft_vocab: Tokens of a drafter with a vocabulary of its own.
        draft_heads: Heads of a Llama drafter.
        vision_hidden: Hidden size of the vision tower, which has one layer.
        vision_dense: Inner size of its MLP.
        media: The placeholder token that stands for one media embedding.
        dtype: Of DTYPES: what the weights are saved as.
        seed: Of all weights.
    """

    hidden: int = 128
    vocab: int = 512
    layers: int = 8
    heads: int = 4
    q_rank: int = 128
    kv_rank: int = 128
    nope: int = 32
    rope: int = 32
    value: int = 32
    dense: int = 256
    expert: int = 64
    experts: int = 8
    chosen: int = 2
    first_dense: int = 1
    positions: int = 256
    original_positions: int = 64
    yarn: bool = True
    draft_vocab: int = 384
    draft_heads: int = 4
    vision_hidden: int = 64
    vision_dense: int = 128
    media: int = 500
    dtype: str = "float32"
    seed: int = 20260102

    def __post_init__(self) -> None:
        for name, holds in self._conditions().items():
            if not holds:
                raise ValueError(
                    f"no tiny Kimi-K2.5 has this shape: {name} does not hold in {self}"
                )

    def _conditions(self) -> dict[str, bool]:
        sizes = [getattr(self, field.name) for field in fields(self) if field.type == "int"]
        return {
            "every size > 0": all(size > 0 for size in sizes),
            "chosen < experts <= hidden": self.chosen < self.experts <= self.hidden,
            "3 <= experts (up to three pluses in a token's code)": self.experts >= 3,  # noqa: PLR2004
            "first_dense <= layers": self.first_dense <= self.layers,
            "rope is even": self.rope % 2 == 0,
            "4 <= media < vocab (below 4 are the tokenizer's own)": 4 <= self.media < self.vocab,  # noqa: PLR2004
            "draft_vocab <= vocab": self.draft_vocab <= self.vocab,
            "vocab - draft_vocab <= 300 < media (kimi.ECHO is drafted)": (
                self.vocab - self.draft_vocab <= 300 < self.media  # noqa: PLR2004
            ),
            "draft_heads divides hidden": self.hidden % self.draft_heads == 0,
            "original_positions <= positions": self.original_positions <= self.positions,
            f"dtype is one of {', '.join(DTYPES)}": self.dtype in DTYPES,
        }

    @classmethod
    def read(cls, values: dict[str, Any]) -> Shape:
        """A shape from JSON: fields laid over the preset that "preset" names; cpu where none does.

        Raises:
            ValueError: A name that no shape has, or sizes that do not go together.
        """
        sizes = dict(values)
        preset = sizes.pop("preset", "cpu")
        if preset not in PRESETS:
            raise ValueError(f"there is no shape {preset!r}; there is {', '.join(PRESETS)}")
        names = {field.name for field in fields(cls)}
        if unknown := sorted(set(sizes) - names):
            raise ValueError(f"a shape has no {', '.join(unknown)}; it has {', '.join(names)}")
        return replace(PRESETS[preset], **sizes)

    def json(self) -> dict[str, Any]:
        """What `read` takes."""
        return asdict(self)

    @property
    def torch_dtype(self) -> torch.dtype:
        """What the weights are saved as."""
        return DTYPES[self.dtype]


CPU = Shape()
CUDA = Shape(
    hidden=512,
    heads=16,
    q_rank=512,
    kv_rank=512,
    nope=128,
    rope=64,
    value=128,
    dense=1024,
    expert=256,
    draft_heads=8,
    dtype="bfloat16",
)
WIDE = Shape(
    hidden=7168,
    layers=4,
    heads=16,
    q_rank=512,
    kv_rank=512,
    nope=128,
    rope=64,
    value=128,
    dense=1024,
    expert=256,
    draft_heads=56,
    positions=4096,
    original_positions=1024,
    dtype="bfloat16",
)
PRESETS = {"cpu": CPU, "cuda": CUDA, "wide": WIDE}
