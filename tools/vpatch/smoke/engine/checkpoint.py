"""Seeded weights, and checkpoints in Hugging Face's layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from vpatch.smoke.engine.shapes import PATCH, Shape

Config = dict[str, Any]
Weights = dict[str, torch.Tensor]

# vLLM takes Kimi's image processor from the checkpoint, as remote code; from v0.26.0 on it has its
# own where numba is installed, and takes the numbers of `media_proc_cfg`. Every medium is 56 x 56
# pixels here: 4 x 4 patches, merged by 2 x 2 into 4 embeddings.
_PROCESSOR = """\
import numpy as np
import torch
from transformers.feature_extraction_utils import BatchFeature
from transformers.image_processing_utils import BaseImageProcessor


class TinyKimiImageProcessor(BaseImageProcessor):
    num_frames_per_chunk = 4

    def __init__(self, media_proc_cfg=None, **kwargs):
        super().__init__(**kwargs)
        self.media_proc_cfg = media_proc_cfg

    def media_tokens_calculator(self, media):
        return 4

    def preprocess(self, medias, return_tensors="pt", do_rescale=True, do_normalize=True):
        images = [m["image"] if m["type"] == "image" else m["video_chunk"][0] for m in medias]
        pixels = [np.asarray(image.convert("RGB").resize((56, 56))) for image in images]
        grid = torch.tensor(np.stack(pixels)).float()
        if do_normalize:
            grid = grid.div(127.5).sub(1)
        patches = grid.view(-1, 4, 14, 4, 14, 3).permute(0, 1, 3, 5, 2, 4).reshape(-1, 3, 14, 14)
        sizes = torch.tensor([[1, 4, 4]] * len(medias))
        return BatchFeature({"pixel_values": patches, "grid_thws": sizes})
"""
_PROCESSOR_CONFIG: Config = {
    "image_processor_type": "TinyKimiImageProcessor",
    "auto_map": {"AutoImageProcessor": "tiny_processing.TinyKimiImageProcessor"},
    "media_proc_cfg": {
        "patch_size": PATCH,
        "merge_kernel_size": 2,
        "temporal_merge_kernel_size": 4,
        "in_patch_limit": 16,
        "in_patch_limit_each_frame": 16,
        "in_patch_limit_video": None,
        "patch_limit_on_one_side": 4,
        "fixed_output_tokens": None,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    },
}


class Maker:
    """Draws float32 weights of one shape from one seeded stream."""

    def __init__(self, shape: Shape, offset: int = 0) -> None:
        self.shape = shape
        self._stream = torch.Generator().manual_seed(shape.seed + offset)

    def normal(self, *size: int, std: float) -> torch.Tensor:
        """Normal values around zero."""
        return torch.randn(*size, generator=self._stream) * std

    def norm(self, size: int) -> torch.Tensor:
        """[size]: a norm's weight, around one."""
        weight = 1 + self.normal(size, std=0.1)
        weight[: self.shape.experts] = 1  # the code counts alike for all experts
        return weight

    def linear(self, rows: int, columns: int, gain: float = 1.0) -> torch.Tensor:
        """[rows, columns]: keeps the size of what it multiplies, times the gain."""
        return self.normal(rows, columns, std=gain * columns**-0.5)

    def into_stream(self, columns: int, gain: float) -> torch.Tensor:
        """[hidden, columns]: what is added to the residual stream, without touching the code."""
        weight = self.linear(self.shape.hidden, columns, gain)
        weight[: self.shape.experts] = 0
        return weight

    def codes(self) -> torch.Tensor:
        """[vocab, experts]: one to three pluses a token. The router's bias chooses the rest."""
        vocab, experts = self.shape.vocab, self.shape.experts
        order = torch.rand(vocab, experts, generator=self._stream).argsort(-1)
        pluses = torch.randint(1, 4, (vocab, 1), generator=self._stream)
        return torch.where(order < pluses, 1.5, -1.5)

    def order(self, size: int) -> torch.Tensor:
        """[size]: the numbers below it in some order."""
        return torch.randperm(size, generator=self._stream)

    def mlp(self, prefix: str, size: int, gain: float) -> Weights:
        """One gated MLP."""
        return {
            f"{prefix}gate_proj.weight": self.linear(size, self.shape.hidden),
            f"{prefix}up_proj.weight": self.linear(size, self.shape.hidden),
            f"{prefix}down_proj.weight": self.into_stream(size, gain),
        }

    def attention(self, prefix: str, gain: float) -> Weights:
        """One layer's MLA."""
        s = self.shape
        return {
            f"{prefix}q_a_proj.weight": self.linear(s.q_rank, s.hidden),
            f"{prefix}q_a_layernorm.weight": self.norm(s.q_rank),
            f"{prefix}q_b_proj.weight": self.linear(s.heads * (s.nope + s.rope), s.q_rank),
            f"{prefix}kv_a_proj_with_mqa.weight": self.linear(s.kv_rank + s.rope, s.hidden),
            f"{prefix}kv_a_layernorm.weight": self.norm(s.kv_rank),
            f"{prefix}kv_b_proj.weight": self.linear(s.heads * (s.nope + s.value), s.kv_rank),
            f"{prefix}o_proj.weight": self.into_stream(s.heads * s.value, gain),
        }


def saved(weights: Weights, shape: Shape) -> Weights:
    """These weights in the shape's dtype, as checkpoints hold them.

    Not the routers' biases, which every release keeps in float32, nor whole numbers.
    """
    return {
        name: weight.to(shape.torch_dtype) if _is_rounded(name, weight) else weight
        for name, weight in weights.items()
    }


def _is_rounded(name: str, weight: torch.Tensor) -> bool:
    return weight.is_floating_point() and not name.endswith("e_score_correction_bias")


def write(folder: Path, config: Config, weights: Weights) -> None:
    """One checkpoint in Hugging Face's layout."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    whole = {name: weight.contiguous() for name, weight in weights.items()}
    save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})


def write_tokenizer(folder: Path, shape: Shape) -> None:
    """Token t<i> is id i."""
    special = {0: "<pad>", 1: "<s>", 2: "</s>", 3: "<unk>", shape.media: "<|media_pad|>"}
    vocabulary = {special.get(i, f"t{i}"): i for i in range(shape.vocab)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(list(special.values()))
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def write_image_processor(folder: Path) -> None:
    """The stub in the place of Kimi's own."""
    (folder / "tiny_processing.py").write_text(_PROCESSOR)
    (folder / "preprocessor_config.json").write_text(json.dumps(_PROCESSOR_CONFIG))
