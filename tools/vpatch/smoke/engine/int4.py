"""INT4 experts as the real Kimi-K2.5 ships them: compressed-tensors' `pack-quantized` format.

A weight [rows, columns] of a routed expert becomes three tensors:

    weight_packed  int32 [rows, columns / 8]: eight values of four bits, the first one lowest; each
                   is its value + 8, so 0 to 15 stand for -8 to 7
    weight_scale   bfloat16 [rows, columns / 32]: a value counts that many times what is packed
    weight_shape   int32 [2]: rows and columns

Nothing else of the model is quantized.
"""

from __future__ import annotations

import torch

from vpatch.smoke.engine.checkpoint import Config, Weights

GROUP = 32
"""Neighbouring columns that share a scale."""
_BITS, _OFFSET, _LARGEST = 4, 8, 7
_PER_WORD = 32 // _BITS

QUANTIZATION: Config = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "quantization_status": "compressed",
    "kv_cache_scheme": None,
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "input_activations": None,
            "output_activations": None,
            "weights": {
                "num_bits": _BITS,
                "type": "int",
                "symmetric": True,
                "strategy": "group",
                "group_size": GROUP,
                "dynamic": False,
                "actorder": None,
                "block_structure": None,
                "observer": "minmax",
                "observer_kwargs": {},
            },
        }
    },
    "ignore": [
        "lm_head",
        "re:.*self_attn.*",
        "re:.*shared_experts.*",
        r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
    ],
}
"""`quantization_config` of a text model's config, with the real one's values."""


def pack(values: torch.Tensor) -> torch.Tensor:
    """int8 [rows, columns] of -8 to 7, to int32 [rows, columns / 8]."""
    nibbles = (values.to(torch.int64) + _OFFSET).unflatten(-1, (-1, _PER_WORD))
    words = (nibbles << (_BITS * torch.arange(_PER_WORD))).sum(dim=-1)
    # The highest nibble's highest bit is int32's sign.
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def unpack(words: torch.Tensor) -> torch.Tensor:
    """What `pack` took."""
    nibbles = (words.to(torch.int64).unsqueeze(-1) >> (_BITS * torch.arange(_PER_WORD))) & 0xF
    return (nibbles - _OFFSET).flatten(-2).to(torch.int8)


def quantize(weight: torch.Tensor) -> Weights:
    """The three tensors of a weight, by what their names end in.

    Raises:
        ValueError: Its columns are not whole groups.
    """
    rows, columns = weight.shape
    if columns % GROUP:
        raise ValueError(f"INT4 weights come in groups of {GROUP} columns, not {columns}")
    groups = weight.float().view(rows, -1, GROUP)
    # No scale is 0, so that a group of zeros stays one.
    scales = (groups.abs().amax(-1) / _LARGEST).clamp(min=2**-40).to(torch.bfloat16)
    steps = (groups / scales.float().unsqueeze(-1)).round().clamp(-_OFFSET, _LARGEST)
    return {
        "weight_packed": pack(steps.view(rows, columns).to(torch.int8)),
        "weight_scale": scales,
        "weight_shape": torch.tensor([rows, columns], dtype=torch.int32),
    }


def dequantize(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """float32 [rows, columns]: what the packed weight and its scales stand for."""
    groups = unpack(packed).float().unflatten(-1, (-1, GROUP))
    return (groups * scales.float().unsqueeze(-1)).flatten(-2)


def quantize_experts(weights: Weights) -> Weights:
    """A text model's tensors with the routed experts' in three parts each."""
    made: Weights = {}
    for name, weight in weights.items():
        if ".mlp.experts." in name:
            prefix = name.removesuffix("weight")
            made |= {f"{prefix}{part}": tensor for part, tensor in quantize(weight).items()}
        else:
            made[name] = weight
    return made


def dequantize_experts(weights: Weights) -> Weights:
    """The tensors of any checkpoint with each packed weight whole, in float32."""
    made: Weights = {}
    for name, weight in weights.items():
        if name.endswith("weight_packed"):
            prefix = name.removesuffix("weight_packed")
            made[f"{prefix}weight"] = dequantize(weight, weights[f"{prefix}weight_scale"])
        elif not name.endswith(("weight_scale", "weight_shape")):
            made[name] = weight
    return made
