"""A target whose next token needs the state of the token before.

``python -m vpatch.smoke.engine.listener JOB.json`` with ``{"target": FOLDER, "out": FOLDER}``
copies a plain target and changes its last layer: its heads attend to the position before, by the
rotary part alone, and what they bring is most of that layer's output. What follows the token at
position i + 1 then depends on the last layer's input at position i: the aux state of the id
num_layers - 1 there. A drafter that gets another layer's state instead guesses badly, where one
for kimi.py's target, whose tokens follow from the token before, would hardly notice.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from vpatch.smoke.engine.batch import config_of
from vpatch.smoke.engine.rotary import Rotary

Config = dict[str, Any]
Weights = dict[str, torch.Tensor]

_MODEL = "language_model.model."
_CONSTANT = 1.5
_PAIRS = 3
"""The fastest pairs of a rotary part; together they do not come round within a prompt's length."""
_SHARPNESS = 8.0
_LOUDNESS = 8.0
_LOUDER_CODE = 4


def write(target: Path, out: Path) -> None:
    """The listening copy.

    Args:
        target: A plain checkpoint of kimi.py's.
        out: A folder that is not there yet.

    Raises:
        ValueError: The target's experts are quantized.
    """
    text = config_of(target)["text_config"]
    if "quantization_config" in text:
        raise ValueError(f"{target} has quantized experts; a plain target is needed to change")
    weights = load_file(target / "model.safetensors")
    add_a_constant(weights, text)
    listen(weights, text)
    shutil.copytree(target, out)
    whole = {name: weight.contiguous() for name, weight in weights.items()}
    save_file(whole, out / "model.safetensors", metadata={"format": "pt"})


def add_a_constant(weights: Weights, text: Config) -> None:
    """Makes the value behind the router's code the same for all tokens, in every layer.

    All tokens' embeddings get one length, or a norm would make it different again.
    """
    place = text["n_routed_experts"]
    embedding = weights[f"{_MODEL}embed_tokens.weight"].float()
    rest = embedding[:, place + 1 :]
    lengths = rest.norm(dim=-1, keepdim=True)
    rest *= lengths.mean() / lengths
    embedding[:, place] = _CONSTANT
    weights[f"{_MODEL}embed_tokens.weight"] = embedding.to(text_dtype(weights))
    for name, weight in weights.items():
        if name.startswith(f"{_MODEL}layers."):
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight[place] = 0
            elif name.endswith("input_layernorm.weight"):
                weight[place] = 1


def listen(weights: Weights, text: Config) -> None:
    """Points the last layer's attention at the position before, and makes it loud."""
    layer = f"{_MODEL}layers.{text['num_hidden_layers'] - 1}."
    attention = f"{layer}self_attn."
    place, rank, latent = text["n_routed_experts"], text["q_lora_rank"], text["kv_lora_rank"]
    nope, rope = text["qk_nope_head_dim"], text["qk_rope_head_dim"]
    dtype = text_dtype(weights)

    # The query: one constant, turned back by one position.
    weights[f"{attention}q_a_proj.weight"].zero_()[0, place] = 1
    weights[f"{attention}q_a_layernorm.weight"].fill_(1)
    one = torch.tensor([1.0, 0.0]).repeat(rope // 2)
    turned = Rotary.of(text).rotate(one.expand(2, 1, rope))[1, 0]  # by one position
    turned[1::2] *= -1
    turned[2 * _PAIRS :] = 0
    query = torch.zeros(text["num_attention_heads"], nope + rope, rank)
    query[:, nope:, 0] = turned * (_SHARPNESS * ((nope + rope) / rank) ** 0.5)
    weights[f"{attention}q_b_proj.weight"] = query.flatten(0, 1).to(dtype)
    # The key: the same constant, where it stands.
    key = weights[f"{attention}kv_a_proj_with_mqa.weight"]
    key[latent:] = 0
    key[latent::2, place] = 1

    weights[f"{attention}o_proj.weight"] *= _LOUDNESS
    # The code counts less beside so loud an output: the router reads nothing else, and louder.
    gate = weights.get(f"{layer}mlp.gate.weight")
    if gate is not None:
        gate *= _LOUDER_CODE
        gate[:, place:] = 0


def text_dtype(weights: Weights) -> torch.dtype:
    """What the checkpoint's weights are saved as."""
    return weights[f"{_MODEL}norm.weight"].dtype


def main(path: Path) -> None:
    job = json.loads(path.read_text())
    write(Path(job["target"]), Path(job["out"]))
    print(json.dumps({"out": job["out"]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
