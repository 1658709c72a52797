"""A Llama EAGLE-3 drafter that can be trained; its computation is that of vLLM's llama_eagle3.

EAGLE-3 (arXiv 2503.01840): the row at a position holds the target's aux states there and the
embedding of the token after it, and guesses the token after that one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention, silu

from vpatch.smoke.engine.batch import Batch

Config = dict[str, Any]
Weights = dict[str, torch.Tensor]

_ROPE_BASE = 10000.0
_WIDE = 512
"""From this hidden size on heads are 64 wide, below 32."""


def config_beside(text: Config, ids: list[int]) -> Config:
    """The drafter's config: its ids nested, the target's whole vocabulary.

    Args:
        text: The target's text config.
        ids: The layers whose states it takes.
    """
    hidden = text["hidden_size"]
    head = 64 if hidden >= _WIDE else 32
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": hidden,
        "vocab_size": text["vocab_size"],
        "draft_vocab_size": text["vocab_size"],
        "num_hidden_layers": 1,
        "num_attention_heads": hidden // head,
        "num_key_value_heads": hidden // head,
        "head_dim": head,
        "intermediate_size": 2 * hidden,
        "hidden_act": "silu",
        "rms_norm_eps": text["rms_norm_eps"],
        "max_position_embeddings": text["max_position_embeddings"],
        "rope_theta": _ROPE_BASE,
        "tie_word_embeddings": False,
        "torch_dtype": text["torch_dtype"],
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": ids},
    }


class Student:
    """The drafter's weights, in float32, and its forward over whole sequences.

    The embeddings and the head are the target's and stay as they are.
    """

    def __init__(self, config: Config, target: Batch, seed: int) -> None:
        self._config = config
        self._embeddings = target.weight("model.embed_tokens.weight")
        self._head = target.weight("lm_head.weight")
        device = self._head.device
        stream = torch.Generator().manual_seed(seed)
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        states = len(config["eagle_config"]["eagle_aux_hidden_state_layer_ids"])

        def linear(rows: int, columns: int, gain: float = 1.0) -> torch.Tensor:
            weight = torch.randn(rows, columns, generator=stream, device="cpu")
            return weight * gain * columns**-0.5

        weights = {
            "fc": linear(hidden, states * hidden),
            **{f"midlayer.self_attn.{n}_proj": linear(hidden, 2 * hidden) for n in "qkv"},
            "midlayer.self_attn.o_proj": linear(hidden, hidden, gain=0.3),
            "midlayer.mlp.gate_proj": linear(inner, hidden),
            "midlayer.mlp.up_proj": linear(inner, hidden),
            "midlayer.mlp.down_proj": linear(hidden, inner, gain=0.3),
            "midlayer.hidden_norm": torch.ones(hidden, device="cpu"),
            "midlayer.input_layernorm": torch.ones(hidden, device="cpu"),
            "midlayer.post_attention_layernorm": torch.ones(hidden, device="cpu"),
            "norm": target.weight("model.norm.weight").clone(),
        }
        self._weights = {n: w.to(device).requires_grad_() for n, w in weights.items()}

    def parameters(self) -> list[torch.Tensor]:
        """What is trained."""
        return list(self._weights.values())

    def checkpoint(self) -> Weights:
        """All tensors under vLLM's names, in float32, on the CPU."""
        named = {f"{name}.weight": weight for name, weight in self._weights.items()}
        named["lm_head.weight"] = self._head
        return {name: weight.detach().cpu() for name, weight in named.items()}

    def logits(self, states: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        """[sequences, rows, vocabulary]: what comes after the following token.

        Args:
            states: [sequences, rows, states x hidden], from position 0 on.
            following: [sequences, rows]: the token after each row's position.
        """
        stream = self._linear(states, "fc")
        embeds = self._norm(self._embeddings[following], "midlayer.input_layernorm")
        wide = torch.cat([embeds, self._norm(stream, "midlayer.hidden_norm")], dim=-1)
        stream = stream + self._attention(wide)
        normed = self._norm(stream, "midlayer.post_attention_layernorm")
        gate = silu(self._linear(normed, "midlayer.mlp.gate_proj"))
        inner = gate * self._linear(normed, "midlayer.mlp.up_proj")
        stream = stream + self._linear(inner, "midlayer.mlp.down_proj")
        return self._norm(stream, "norm") @ self._head.T

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ self._weights[name].T

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        mean_square = x.square().mean(dim=-1, keepdim=True)
        return x * torch.rsqrt(mean_square + self._config["rms_norm_eps"]) * self._weights[name]

    def _attention(self, x: torch.Tensor) -> torch.Tensor:
        heads = self._config["num_attention_heads"]

        def part(name: str) -> torch.Tensor:
            rows = self._linear(x, f"midlayer.self_attn.{name}_proj")
            return rows.unflatten(-1, (heads, -1)).transpose(1, 2)

        query, key = _rotate(part("q")), _rotate(part("k"))
        mixed = scaled_dot_product_attention(query, key, part("v"), is_causal=True)
        return self._linear(mixed.transpose(1, 2).flatten(2), "midlayer.self_attn.o_proj")


def _rotate(x: torch.Tensor) -> torch.Tensor:
    """[sequences, heads, rows, head]; a pair is a value of the first half and one of the second."""
    rows, size = x.shape[-2:]
    frequencies = _ROPE_BASE ** -(torch.arange(0, size, 2).float() / size)
    angles = torch.arange(rows).float()[:, None] * frequencies
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
