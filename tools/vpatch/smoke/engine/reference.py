"""DeepSeek-V3's text model by its definitions, in plain float32 PyTorch.

Runs under the engine environment's Python. It reads a checkpoint's config and tensors and imports
neither vLLM nor transformers, so that it shares no mistake with either; test_reference.py holds it
against transformers. Definitions: DeepSeek-V2 (arXiv 2405.04434) for MLA, DeepSeek-V3 (2412.19437)
for the router, YaRN (2309.00071) for the rotary frequencies.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.nn.functional import silu

Config = dict[str, Any]
Weights = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Run:
    """What one forward over one sequence shows.

    Attributes:
        states: [num_layers + 1, tokens, hidden]: the residual stream that each layer takes in, and
            after the last one, before the final norm.
        logits: [tokens, vocabulary].
        margin: The smallest distance, over all tokens and layers, between the weakest chosen
            expert's score and the strongest refused one's. Where it is near zero, rounding
            chooses, and no bound on the states means anything.
    """

    states: torch.Tensor
    logits: torch.Tensor
    margin: float


class Reference:
    """A text model, from its config and its tensors under DeepSeek-V3's names."""

    def __init__(self, config: Config, weights: Weights) -> None:
        self._config = config
        self._weights = {name: weight.float() for name, weight in weights.items()}

    @classmethod
    def open(cls, checkpoint: Path) -> Reference:
        """Reads a Kimi-K2.5 checkpoint's language model."""
        config = json.loads((checkpoint / "config.json").read_text())["text_config"]
        prefix = "language_model."
        tensors = load_file(checkpoint / "model.safetensors")
        inner = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        return cls(config, inner)

    def weight(self, name: str) -> torch.Tensor:
        """One tensor of the checkpoint."""
        return self._weights[name]

    def embed(self, tokens: list[int]) -> torch.Tensor:
        """[tokens, hidden]"""
        return self._weights["model.embed_tokens.weight"][torch.tensor(tokens)]

    def run(self, stream: torch.Tensor) -> Run:
        """One causal forward over a whole sequence of embeddings, without a cache."""
        with torch.no_grad():
            return self._run(stream)

    def _run(self, stream: torch.Tensor) -> Run:
        states, margins = [stream], [math.inf]
        for layer in range(self._config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            normed = self._norm(stream, f"{prefix}input_layernorm")
            stream = stream + self._attention(normed, f"{prefix}self_attn.")
            normed = self._norm(stream, f"{prefix}post_attention_layernorm")
            if f"{prefix}mlp.gate.weight" in self._weights:
                added, margin = self._experts(normed, f"{prefix}mlp.")
                margins.append(margin)
            else:
                added = self._mlp(normed, f"{prefix}mlp.")
            stream = stream + added
            states.append(stream)
        logits = self._linear(self._norm(stream, "model.norm"), "lm_head")
        return Run(torch.stack(states), logits, min(margins))

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ self._weights[f"{name}.weight"].T

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        mean_square = x.square().mean(dim=-1, keepdim=True)
        scale = torch.rsqrt(mean_square + self._config["rms_norm_eps"])
        return x * scale * self._weights[f"{name}.weight"]

    def _mlp(self, x: torch.Tensor, prefix: str) -> torch.Tensor:
        gate = silu(self._linear(x, f"{prefix}gate_proj"))
        return self._linear(gate * self._linear(x, f"{prefix}up_proj"), f"{prefix}down_proj")

    def _attention(self, x: torch.Tensor, prefix: str) -> torch.Tensor:
        config, tokens = self._config, x.shape[0]
        heads = config["num_attention_heads"]
        nope, rope = config["qk_nope_head_dim"], config["qk_rope_head_dim"]
        rank, value = config["kv_lora_rank"], config["v_head_dim"]

        query = self._norm(self._linear(x, f"{prefix}q_a_proj"), f"{prefix}q_a_layernorm")
        query = self._linear(query, f"{prefix}q_b_proj").view(tokens, heads, nope + rope)
        latent, key_rope = self._linear(x, f"{prefix}kv_a_proj_with_mqa").split([rank, rope], -1)
        latent = self._norm(latent, f"{prefix}kv_a_layernorm")
        expanded = self._linear(latent, f"{prefix}kv_b_proj").view(tokens, heads, nope + value)
        key_nope, values = expanded.split([nope, value], -1)

        # The rotary part of the key is one for all heads.
        query_rope = self._rotate(query[..., nope:])
        key_rope = self._rotate(key_rope.unsqueeze(1)).expand(tokens, heads, rope)
        scores = torch.einsum("qhd,khd->hqk", query[..., :nope], key_nope)
        scores = scores + torch.einsum("qhd,khd->hqk", query_rope, key_rope)
        scores = scores * (self._score_gain() * (nope + rope) ** -0.5)
        future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, -math.inf).softmax(-1)
        mixed = torch.einsum("hqk,khd->qhd", weights, values)
        return self._linear(mixed.reshape(tokens, heads * value), f"{prefix}o_proj")

    def _score_gain(self) -> float:
        scaling = self._config["rope_scaling"]
        if scaling is None:
            return 1.0
        gain = _mscale(scaling["factor"], scaling["mscale_all_dim"])
        return gain * gain

    def _rotate(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, heads, rope]; neighbouring values are the real and the imaginary part."""
        angles = torch.arange(x.shape[0]).float()[:, None] * self._frequencies()
        turn = torch.polar(torch.ones_like(angles), angles)[:, None, :]
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
        return torch.view_as_real(pairs * turn).flatten(-2) * self._rotary_gain()

    def _rotary_gain(self) -> float:
        scaling = self._config["rope_scaling"]
        if scaling is None:
            return 1.0
        factor = scaling["factor"]
        return _mscale(factor, scaling["mscale"]) / _mscale(factor, scaling["mscale_all_dim"])

    def _frequencies(self) -> torch.Tensor:
        """YaRN: fast dimensions as they are, slow ones stretched by the factor, a ramp between."""
        size: int = self._config["qk_rope_head_dim"]
        base: float = self._config["rope_theta"]
        plain = base ** -(torch.arange(0, size, 2).float() / size)
        scaling = self._config["rope_scaling"]
        if scaling is None:
            return plain

        def dimension(rotations: float) -> float:
            # The dimension that turns so often over the original context.
            context = scaling["original_max_position_embeddings"]
            turns = context / (rotations * 2 * math.pi)
            return size * math.log(turns) / (2 * math.log(base))

        low = max(math.floor(dimension(scaling["beta_fast"])), 0)
        high = min(math.ceil(dimension(scaling["beta_slow"])), size - 1)
        ramp = (torch.arange(size // 2).float() - low) / max(high - low, 0.001)
        stretched = ramp.clamp(0, 1)
        return plain / scaling["factor"] * stretched + plain * (1 - stretched)

    def _experts(self, x: torch.Tensor, prefix: str) -> tuple[torch.Tensor, float]:
        scores = self._linear(x, f"{prefix}gate").sigmoid()
        chosen, margin = self._choose(
            scores + self._weights[f"{prefix}gate.e_score_correction_bias"]
        )
        # The bias decides who is chosen, not how much each one counts.
        shares = scores.gather(1, chosen)
        if self._config["norm_topk_prob"]:
            shares = shares / shares.sum(dim=-1, keepdim=True)
        shares = shares * self._config["routed_scaling_factor"]
        rows = []
        for token, experts, counts in zip(x, chosen.tolist(), shares, strict=True):
            outputs = [self._mlp(token, f"{prefix}experts.{expert}.") for expert in experts]
            rows.append(sum(count * out for count, out in zip(counts, outputs, strict=True)))
        return torch.stack(rows) + self._mlp(x, f"{prefix}shared_experts."), margin

    def _choose(self, scores: torch.Tensor) -> tuple[torch.Tensor, float]:
        """The best groups by the sum of their two best experts, then the best experts of those."""
        config, tokens = self._config, scores.shape[0]
        groups = scores.view(tokens, config["n_group"], -1)
        strength = groups.topk(2, dim=-1).values.sum(dim=-1)
        kept = strength.topk(config["topk_group"], dim=-1).indices
        allowed = torch.zeros_like(strength, dtype=torch.bool).scatter(1, kept, value=True)
        limited = groups.masked_fill(~allowed.unsqueeze(-1), -math.inf).view(tokens, -1)
        count = config["num_experts_per_tok"]
        best = limited.topk(count + 1, dim=-1)
        margin = (best.values[:, count - 1] - best.values[:, count]).min().item()
        return best.indices[:, :count], margin


def _mscale(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0
