"""Rotary positions (arXiv 2104.09864) and YaRN (2309.00071), in plain float32 PyTorch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from vpatch.smoke.engine.checkpoint import Config


@dataclass(frozen=True)
class Rotary:
    """How positions turn queries and keys.

    Attributes:
        size: Values of a head that turn, two by two.
        base: The slowest pair turns about so much slower than the fastest.
        scaling: YaRN's numbers; None for the frequencies as they are.
        halves: A pair is a value of the first half and one of the second, as in Llama; two
            neighbours otherwise, as in DeepSeek-V3.
    """

    size: int
    base: float
    scaling: Config | None
    halves: bool = False

    @classmethod
    def of(cls, config: Config) -> Rotary:
        """What a text config says, as the hub's files or as transformers 5 writes it.

        Raises:
            ValueError: A Llama layer's frequencies are scaled.
        """
        if "qk_rope_head_dim" not in config:
            if config.get("rope_scaling") or "rope_parameters" in config:
                raise ValueError("the reference knows Llama layers with plain rope_theta only")
            return cls(config["head_dim"], config["rope_theta"], None, halves=True)
        size = config["qk_rope_head_dim"]
        if "rope_parameters" not in config:
            return cls(size, config["rope_theta"], config["rope_scaling"])
        numbers = config["rope_parameters"]
        scaling = None if numbers["rope_type"] == "default" else numbers
        return cls(size, numbers["rope_theta"], scaling)

    @property
    def score_gain(self) -> float:
        """What attention scores are multiplied by."""
        if self.scaling is None:
            return 1.0
        gain = _mscale(self.scaling["factor"], self.scaling["mscale_all_dim"])
        return gain * gain

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, heads, size]; a pair is a real and an imaginary part."""
        angles = torch.arange(x.shape[0]).float()[:, None] * self._frequencies()
        turn = torch.polar(torch.ones_like(angles), angles)[:, None, :]
        parts = x.unflatten(-1, (2, -1)).mT if self.halves else x.unflatten(-1, (-1, 2))
        turned = torch.view_as_real(torch.view_as_complex(parts.contiguous()) * turn)
        return (turned.mT if self.halves else turned).flatten(-2) * self._gain()

    def _gain(self) -> float:
        if self.scaling is None:
            return 1.0
        factor, all_dim = self.scaling["factor"], self.scaling["mscale_all_dim"]
        return _mscale(factor, self.scaling["mscale"]) / _mscale(factor, all_dim)

    def _frequencies(self) -> torch.Tensor:
        """Fast dimensions as they are, slow ones stretched by the factor, a ramp between."""
        plain = self.base ** -(torch.arange(0, self.size, 2).float() / self.size)
        if self.scaling is None:
            return plain
        context = self.scaling["original_max_position_embeddings"]
        low = max(math.floor(self._dimension(context, self.scaling["beta_fast"])), 0)
        high = min(math.ceil(self._dimension(context, self.scaling["beta_slow"])), self.size - 1)
        ramp = (torch.arange(self.size // 2).float() - low) / max(high - low, 0.001)
        stretched = ramp.clamp(0, 1)
        return plain / self.scaling["factor"] * stretched + plain * (1 - stretched)

    def _dimension(self, context: int, rotations: float) -> float:
        """The dimension that turns so often over a context."""
        turns = context / (rotations * 2 * math.pi)
        return self.size * math.log(turns) / (2 * math.log(self.base))


def _mscale(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0
