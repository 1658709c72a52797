"""The float32 reference over many sequences at once, for training."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vpatch.smoke.engine.reference import Reference


@dataclass(frozen=True)
class Sequences:
    """Sequences of one length, and what the target makes of them.

    Attributes:
        tokens: [sequences, length].
        states: [num_layers + 1, sequences, length, hidden], float32; counted as vLLM counts.
        logits: [sequences, length, vocabulary].
    """

    tokens: torch.Tensor
    states: torch.Tensor
    logits: torch.Tensor

    def pick(self, ids: list[int]) -> torch.Tensor:
        """[sequences, length, states x hidden]: these states side by side, as `fc` takes them."""
        return torch.cat([self.states[number] for number in ids], dim=-1)


class Batch(Reference):
    """The same model on rows of several sequences, each expert once for all of its rows."""

    _length = 0

    @classmethod
    def on(cls, checkpoint: Path, device: str) -> Batch:
        """A plain target's language model; call it under ``torch.device(device)`` only."""
        plain = cls.open(checkpoint)
        return cls(plain._config, {n: weight.to(device) for n, weight in plain._weights.items()})

    def sequences(self, tokens: torch.Tensor) -> Sequences:
        """One forward.

        Args:
            tokens: [sequences, length]
        """
        self._length = tokens.shape[1]
        run = self.run(self.weight("model.embed_tokens.weight")[tokens.flatten()])
        states = run.states.unflatten(1, tokens.shape)
        return Sequences(tokens, states, run.logits.unflatten(0, tokens.shape))

    def _attention(self, x: torch.Tensor, prefix: str) -> torch.Tensor:
        attend = super()._attention
        return torch.cat([attend(sequence, prefix) for sequence in x.split(self._length)])

    def _experts(self, x: torch.Tensor, prefix: str) -> tuple[torch.Tensor, float]:
        scores = self._linear(x, f"{prefix}gate").sigmoid()
        bias = self._weights[f"{prefix}gate.e_score_correction_bias"]
        chosen, _ = self._choose(scores + bias)
        shares = scores.gather(1, chosen)
        if self._config["norm_topk_prob"]:
            shares = shares / shares.sum(dim=-1, keepdim=True)
        shares = shares * self._config["routed_scaling_factor"]
        added = self._mlp(x, f"{prefix}shared_experts.")
        for expert in range(self._config["n_routed_experts"]):
            rows, places = (chosen == expert).nonzero(as_tuple=True)
            output = self._mlp(x[rows], f"{prefix}experts.{expert}.")
            added.index_add_(0, rows, shares[rows, places, None] * output)
        return added, math.inf


def config_of(checkpoint: Path) -> dict[str, Any]:
    """A target's whole config."""
    config: dict[str, Any] = json.loads((checkpoint / "config.json").read_text())
    return config
