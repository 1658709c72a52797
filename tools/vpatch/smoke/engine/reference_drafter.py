"""EAGLE-3 drafters by their definitions, in plain float32 PyTorch, like reference.py.

EAGLE-3 (arXiv 2503.01840): a row of the drafter stands at a position of the target and holds that
position's hidden states and the embedding of the token after it. The rows of all positions so far
give a guess of the next token; each further guess adds a row that holds the last guess, and the
drafter's own hidden state in place of the target's. Attention is DeepSeek-V2's MLA, or Llama's
(arXiv 2302.13971) with grouped heads (2305.13245), over both side by side.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from vpatch.smoke.engine.reference import Config, Reference, Weights


@dataclass(frozen=True)
class Guesses:
    """Guessed tokens.

    Attributes:
        tokens: The target's ids.
        margins: How far each one's logit is from the second best.
        spreads: The standard deviation of the logits that each was chosen by.
    """

    tokens: list[int]
    margins: list[float]
    spreads: list[float]


class ReferenceDrafter(Reference):
    """One layer of the options that the config names.

    Args:
        config: The drafter's, with a layer's sizes at the top.
        weights: As in its checkpoint.
        target: Has the tables that they lack.
        rounding: As Reference's.
    """

    def __init__(
        self,
        config: Config,
        weights: Weights,
        target: Reference,
        rounding: torch.dtype | None = None,
    ) -> None:
        inner = {name.replace("midlayer.", "layer."): weight for name, weight in weights.items()}
        super().__init__(config, inner, rounding)
        for name, model_name in (("embed_tokens", "model.embed_tokens"), ("lm_head", "lm_head")):
            self._weights.setdefault(f"{name}.weight", target.weight(f"{model_name}.weight"))
        self._to_target = weights.get("d2t")

    @classmethod
    def beside(
        cls, target: Reference, checkpoint: Path, rounding: torch.dtype | None = None
    ) -> ReferenceDrafter:
        """Reads a drafter's checkpoint; tables that it lacks are the target's.

        The config is a drafter's own or a speculators-format one. What has no MLA is Llama's.

        Raises:
            ValueError: The layer is neither.
        """
        config: Config = json.loads((checkpoint / "config.json").read_text())
        config |= config.get("transformer_layer_config", {})
        kind = cls if "kv_lora_rank" in config else LlamaReferenceDrafter
        if kind is not cls and config["model_type"] != "llama":
            raise ValueError(f"{checkpoint}: no reference for a {config['model_type']} layer")
        return kind(config, load_file(checkpoint / "model.safetensors"), target, rounding)

    @property
    def takes_pictures(self) -> bool:
        """Whether it embeds a picture as its target does, not the placeholder's token."""
        return bool(self._option("use_multimodal_embeddings"))

    def embed(self, tokens: list[int]) -> torch.Tensor:
        """[tokens, hidden]: a copy."""
        return self._weights["embed_tokens.weight"][torch.tensor(tokens)]

    def guess(self, states: torch.Tensor, embeds: torch.Tensor, count: int) -> Guesses:
        """Guesses after the last row.

        Args:
            states: [rows, aux states x hidden], from position 0 on.
            embeds: [rows, hidden]: for each row what is embedded there, by definition the token
                after its position.
            count: How many guesses.
        """
        with torch.no_grad():
            return self._guess(self._combine(states), embeds, count)

    def _guess(self, hidden: torch.Tensor, embeds: torch.Tensor, count: int) -> Guesses:
        guesses: list[int] = []
        margins: list[float] = []
        spreads: list[float] = []
        for _ in range(count):
            output, carried = self._layer(hidden, embeds)
            logits = self._linear(output[-1], "lm_head")
            best = logits.topk(2)
            spreads.append(logits.std().item())
            margins.append((best.values[0] - best.values[1]).item())
            guess = int(best.indices[0])
            if self._to_target is not None:
                guess += int(self._to_target[guess])
            guesses.append(guess)
            embeds = torch.cat([embeds, self.embed([guess])])
            hidden = torch.cat([hidden, carried[-1:]])
        return Guesses(guesses, margins, spreads)

    def _combine(self, states: torch.Tensor) -> torch.Tensor:
        if self._option("norm_before_fc"):
            states = self._norm(states, "input_norm")
        if self._option("fc_norm"):
            parts = states.split(self._config["hidden_size"], dim=-1)
            normed = [self._norm(part, f"fc_norm.{number}") for number, part in enumerate(parts)]
            states = torch.cat(normed, dim=-1)
        return self._linear(states, "fc")

    def _layer(
        self, hidden: torch.Tensor, embeds: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What the head takes, and what the next row holds."""
        normed = self._norm(hidden, "layer.hidden_norm")
        wide = torch.cat([self._norm(embeds, "layer.input_layernorm"), normed], dim=-1)
        residual = normed if self._option("norm_before_residual") else hidden
        stream = self._round(residual + self._attention(wide, "layer.self_attn."))
        normed = self._norm(stream, "layer.post_attention_layernorm")
        stream = self._round(stream + self._mlp(normed, "layer.mlp."))
        output = self._norm(stream, "norm")
        return output, output if self._option("norm_output") else stream

    def _option(self, name: str) -> Any:
        nested = self._config.get("eagle_config") or {}
        return self._config.get(name) or nested.get(name, False)


class LlamaReferenceDrafter(ReferenceDrafter):
    """The same with a Llama layer's attention."""

    def _attention(self, x: torch.Tensor, prefix: str) -> torch.Tensor:
        heads, kept = self._config["num_attention_heads"], self._config["num_key_value_heads"]
        size = self._config["head_dim"]

        def part(name: str, count: int) -> torch.Tensor:
            return self._linear(x, f"{prefix}{name}_proj").unflatten(-1, (count, size))

        query = self._round(self._rotary.rotate(part("q", heads)))
        key = self._round(self._rotary.rotate(part("k", kept)))
        # So many queries' heads in a row look at one head of keys and values.
        key, values = (
            one.repeat_interleave(heads // kept, dim=1) for one in (key, part("v", kept))
        )
        scores = torch.einsum("qhd,khd->hqk", query, key) * size**-0.5
        return self._linear(self._mix(scores, values), f"{prefix}o_proj")
