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

from vpatch.smoke.engine.int4 import dequantize_experts
from vpatch.smoke.engine.rotary import Rotary

Config = dict[str, Any]
Weights = dict[str, torch.Tensor]

_ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}
_TERMS = 2048
"""The longest dot product of CPU's and CUDA's shapes: an output projection over all heads."""


def bound(dtype: str, layers: int = 8) -> float:
    """How far a correct engine's state may be from the reference's: |s' - s| / |s|, Euclidean.

    Of one layer's state at one position. Rounding to nearest moves a value by at most u (2^-8 in
    bfloat16) of its size, evenly within that, so a rounded vector is off by at most u / sqrt(3) of
    its length. A layer rounds the residual stream twice, after attention and after the MLP. What
    the two add is 0.12 to 0.43 of the stream in kimi.py's models (averages over tokens), and the
    last of about 7 roundings: 0.4 * sqrt(7) is about 1, so that each of them counts as one more
    rounding of the stream. These four errors are independent and their signs random, so they add
    up as a random walk:

        u / sqrt(3) * sqrt(4 * layers)

    Sums are made in float32, whatever the dtype: a dot product of n terms adds sqrt(n) * 2^-24 to
    u. The factor 2 on top is for the row that is farthest off, for what a layer makes of the
    error that it takes in, and for kernels that round more often (MLA in latent space, experts one
    by one).

    Beside it, for 8 layers in bfloat16 (2.6 %): with each operation rounded (Reference's
    `rounding`) rows are off by 1.0 % on average and 1.4 % at most, and neighbouring layers are
    17 % (CPU's shape) and 22 % (CUDA's) apart. In float32 (0.0018 %) the reference itself is off
    by 0.00007 % from the same in float64.

    Args:
        dtype: "bfloat16", "float16" or "float32": what the engine computes in.
        layers: How many layers came before the state. The same bound serves all layers of a model.
    """
    roundoff = _ROUNDOFF[dtype] + math.sqrt(_TERMS) * _ROUNDOFF["float32"]
    return 2 * roundoff / math.sqrt(3) * math.sqrt(4 * layers)


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

    @property
    def apart(self) -> float:
        """The smallest distance of neighbouring layers' states, relative to the earlier one's size.

        Euclidean, over all tokens: |s[i + 1] - s[i]| / |s[i]|. A bound on the states' deviation has
        to be well below it, or one layer's states pass for another's.
        """
        steps = (self.states[1:] - self.states[:-1]).norm(dim=-1)
        distance: float = (steps / self.states[:-1].norm(dim=-1)).min().item()
        return distance


class Reference:
    """A text model, from its config and its tensors under DeepSeek-V3's names.

    Args:
        config: The text model's.
        weights: In any dtype; everything is computed in float32.
        rounding: The dtype that each operation's result is rounded to, as a model in that dtype
            rounds it; None for the reference itself.
    """

    def __init__(
        self, config: Config, weights: Weights, rounding: torch.dtype | None = None
    ) -> None:
        self._config = config
        self._rotary = Rotary.of(config)
        self._rounding = rounding
        self._weights = {name: weight.float() for name, weight in weights.items()}

    @classmethod
    def open(cls, checkpoint: Path, rounding: torch.dtype | None = None) -> Reference:
        """Reads a Kimi-K2.5 checkpoint's language model, INT4 experts as the format says."""
        config = json.loads((checkpoint / "config.json").read_text())["text_config"]
        prefix = "language_model."
        tensors = load_file(checkpoint / "model.safetensors")
        inner = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        return cls(config, dequantize_experts(inner), rounding)

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
            stream = self._round(stream + self._attention(normed, f"{prefix}self_attn."))
            normed = self._norm(stream, f"{prefix}post_attention_layernorm")
            if f"{prefix}mlp.gate.weight" in self._weights:
                added, margin = self._experts(normed, f"{prefix}mlp.")
                margins.append(margin)
            else:
                added = self._mlp(normed, f"{prefix}mlp.")
            stream = self._round(stream + added)
            states.append(stream)
        return Run(torch.stack(states), self.logits(stream), min(margins))

    def logits(self, stream: torch.Tensor) -> torch.Tensor:
        """[..., vocabulary]: what the last layer's output [..., hidden] says comes next."""
        return self._linear(self._norm(stream, "model.norm"), "lm_head")

    def _round(self, x: torch.Tensor) -> torch.Tensor:
        return x if self._rounding is None else x.to(self._rounding).float()

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return self._round(x @ self._weights[f"{name}.weight"].T)

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        mean_square = x.square().mean(dim=-1, keepdim=True)
        scale = torch.rsqrt(mean_square + self._config["rms_norm_eps"])
        return self._round(x * scale * self._weights[f"{name}.weight"])

    def _mlp(self, x: torch.Tensor, prefix: str) -> torch.Tensor:
        gate = silu(self._linear(x, f"{prefix}gate_proj"))
        inner = self._round(gate * self._linear(x, f"{prefix}up_proj"))
        return self._linear(inner, f"{prefix}down_proj")

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
        query_rope = self._round(self._rotary.rotate(query[..., nope:]))
        key_rope = self._round(self._rotary.rotate(key_rope.unsqueeze(1)))
        scores = torch.einsum("qhd,khd->hqk", query[..., :nope], key_nope)
        scores = scores + torch.einsum("qhd,kd->hqk", query_rope, key_rope.squeeze(1))
        scores = scores * (self._rotary.score_gain * (nope + rope) ** -0.5)
        return self._linear(self._mix(scores, values), f"{prefix}o_proj")

    def _mix(self, scores: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """[tokens, heads x value]: [tokens, heads, value] by causal [heads, tokens, tokens]."""
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        # Attention kernels keep scores in float32 and round what multiplies the values.
        weights = self._round(scores.masked_fill(future, -math.inf).softmax(-1))
        return self._round(torch.einsum("hqk,khd->qhd", weights, values)).flatten(1)

    def _experts(self, x: torch.Tensor, prefix: str) -> tuple[torch.Tensor, float]:
        scores = self._round(self._linear(x, f"{prefix}gate").sigmoid())
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
        routed = self._round(torch.stack(rows))
        return self._round(routed + self._mlp(x, f"{prefix}shared_experts.")), margin

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
