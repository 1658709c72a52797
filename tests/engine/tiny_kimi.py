"""A Kimi-K2.5 of eight tiny layers, from a seed; under the engine environment's Python.

The weights are random, but not any random weights: tokens depend
mostly on the token before (so that a drafter can guess some of them), layers add enough to tell
their states apart, and experts are chosen with a margin that float32 rounding cannot cross: an
embedding's first eight values are a code of plus and minus, which no layer overwrites, and the
router reads it, one value for each expert.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

Config = dict[str, Any]
Weights = dict[str, torch.Tensor]

SEED = 20260102
HIDDEN, VOCAB, LAYERS, HEADS = 128, 512, 8, 4
Q_RANK, KV_RANK, NOPE, ROPE, VALUE = 128, 128, 32, 32, 32
DENSE, EXPERT, EXPERTS, CHOSEN = 256, 64, 8, 2
MEDIA = 500
"""The placeholder token that stands for one media embedding."""

YARN: Config = {
    "type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 0.8,  # not equal to mscale, so that each has its own effect
}

TEXT: Config = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "kimi_k2",
    "hidden_size": HIDDEN,
    "vocab_size": VOCAB,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "q_lora_rank": Q_RANK,
    "kv_lora_rank": KV_RANK,
    "qk_nope_head_dim": NOPE,
    "qk_rope_head_dim": ROPE,
    "v_head_dim": VALUE,
    "intermediate_size": DENSE,
    "moe_intermediate_size": EXPERT,
    "n_routed_experts": EXPERTS,
    "n_shared_experts": 1,
    "num_experts_per_tok": CHOSEN,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.827,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "num_nextn_predict_layers": 0,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 256,
    "rope_theta": 50000.0,
    "rope_scaling": YARN,
    "attention_bias": False,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "torch_dtype": "float32",
}

VISION_HIDDEN, VISION_DENSE, PATCH = 64, 128, 14
VISION: Config = {
    "patch_size": PATCH,
    "init_pos_emb_height": 8,
    "init_pos_emb_width": 8,
    "init_pos_emb_time": 4,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "hidden_size": VISION_HIDDEN,
    "intermediate_size": VISION_DENSE,
    "merge_kernel_size": [2, 2],
    "mm_hidden_size": VISION_HIDDEN,
}

TARGET: Config = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "text_config": TEXT,
    "vision_config": VISION,
    "media_placeholder_token_id": MEDIA,
    "use_unified_vision_chunk": True,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "torch_dtype": "float32",
}

# vLLM takes Kimi's image processor from the checkpoint, as remote code. Every medium is 56 x 56
# pixels here: 4 x 4 patches, merged by 2 x 2 into 4 embeddings.
PROCESSOR = """\
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

    def preprocess(self, medias, return_tensors="pt"):
        images = [m["image"] if m["type"] == "image" else m["video_chunk"][0] for m in medias]
        pixels = [np.asarray(image.convert("RGB").resize((56, 56))) for image in images]
        grid = torch.tensor(np.stack(pixels)).float().div(127.5).sub(1)
        patches = grid.view(-1, 4, 14, 4, 14, 3).permute(0, 1, 3, 5, 2, 4).reshape(-1, 3, 14, 14)
        sizes = torch.tensor([[1, 4, 4]] * len(medias))
        return BatchFeature({"pixel_values": patches, "grid_thws": sizes})
"""
PROCESSOR_CONFIG: Config = {
    "image_processor_type": "TinyKimiImageProcessor",
    "auto_map": {"AutoImageProcessor": "tiny_processing.TinyKimiImageProcessor"},
    "media_proc_cfg": {},
}


class Maker:
    """Draws weights from one seeded stream."""

    def __init__(self, seed: int) -> None:
        self._stream = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, std: float) -> torch.Tensor:
        return torch.randn(*shape, generator=self._stream) * std

    def norm(self, size: int) -> torch.Tensor:
        weight = 1 + self.normal(size, std=0.1)
        weight[:EXPERTS] = 1  # the code counts alike for all experts
        return weight

    def linear(self, rows: int, columns: int, gain: float = 1.0) -> torch.Tensor:
        return self.normal(rows, columns, std=gain * columns**-0.5)

    def into_stream(self, columns: int, gain: float) -> torch.Tensor:
        weight = self.linear(HIDDEN, columns, gain)
        weight[:EXPERTS] = 0  # the code stays
        return weight

    def codes(self) -> torch.Tensor:
        """[VOCAB, EXPERTS]: one to three pluses a token. The router's bias chooses the rest."""
        order = torch.rand(VOCAB, EXPERTS, generator=self._stream).argsort(-1)
        pluses = torch.randint(1, 4, (VOCAB, 1), generator=self._stream)
        return torch.where(order < pluses, 1.5, -1.5)

    def order(self, size: int) -> torch.Tensor:
        return torch.randperm(size, generator=self._stream)

    def mlp(self, prefix: str, size: int, gain: float) -> Weights:
        return {
            f"{prefix}gate_proj.weight": self.linear(size, HIDDEN),
            f"{prefix}up_proj.weight": self.linear(size, HIDDEN),
            f"{prefix}down_proj.weight": self.into_stream(size, gain),
        }

    def attention(self, prefix: str, gain: float) -> Weights:
        return {
            f"{prefix}q_a_proj.weight": self.linear(Q_RANK, HIDDEN),
            f"{prefix}q_a_layernorm.weight": self.norm(Q_RANK),
            f"{prefix}q_b_proj.weight": self.linear(HEADS * (NOPE + ROPE), Q_RANK),
            f"{prefix}kv_a_proj_with_mqa.weight": self.linear(KV_RANK + ROPE, HIDDEN),
            f"{prefix}kv_a_layernorm.weight": self.norm(KV_RANK),
            f"{prefix}kv_b_proj.weight": self.linear(HEADS * (NOPE + VALUE), KV_RANK),
            f"{prefix}o_proj.weight": self.into_stream(HEADS * VALUE, gain),
        }


def text_weights(make: Maker, text: Config) -> Weights:
    """The language model under DeepSeek-V3's own names."""
    embedding = make.normal(VOCAB, HIDDEN, std=1.0)
    embedding[:, :EXPERTS] = make.codes()
    weights = {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": make.norm(HIDDEN),
        "lm_head.weight": make.linear(VOCAB, HIDDEN),
    }
    for layer in range(text["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        weights[f"{prefix}input_layernorm.weight"] = make.norm(HIDDEN)
        weights[f"{prefix}post_attention_layernorm.weight"] = make.norm(HIDDEN)
        weights |= make.attention(f"{prefix}self_attn.", gain=0.5)
        if layer < text["first_k_dense_replace"]:
            weights |= make.mlp(f"{prefix}mlp.", DENSE, gain=0.7)
        else:
            weights |= _experts(make, f"{prefix}mlp.")
    return weights


def _experts(make: Maker, prefix: str) -> Weights:
    gate = make.linear(EXPERTS, HIDDEN, gain=0.03)
    gate[:, :EXPERTS] += torch.eye(EXPERTS)
    weights = {
        f"{prefix}gate.weight": gate,
        # Steps smaller than a plus against a minus, larger than the noise.
        f"{prefix}gate.e_score_correction_bias": make.order(EXPERTS) * 0.05,
    }
    for expert in range(EXPERTS):
        weights |= make.mlp(f"{prefix}experts.{expert}.", EXPERT, gain=0.3)
    return weights | make.mlp(f"{prefix}shared_experts.", EXPERT, gain=0.3)


def vision_weights(make: Maker) -> Weights:
    """The vision tower and the projector, so that the real loader loads a real Kimi-K2.5."""
    size, merged = VISION_HIDDEN, 4 * VISION_HIDDEN
    tower, block = "vision_tower.", "vision_tower.encoder.blocks.0."
    shapes = {
        f"{tower}patch_embed.proj": (size, 3, PATCH, PATCH),
        f"{tower}encoder.final_layernorm": (size,),
        f"{block}norm0": (size,),
        f"{block}norm1": (size,),
        f"{block}wqkv": (3 * size, size),
        f"{block}wo": (size, size),
        f"{block}mlp.fc0": (VISION_DENSE, size),
        f"{block}mlp.fc1": (size, VISION_DENSE),
        "mm_projector.pre_norm": (size,),
        "mm_projector.proj.0": (merged, merged),
        "mm_projector.proj.2": (HIDDEN, merged),
    }
    weights = {f"{tower}patch_embed.pos_emb.weight": make.normal(8, 8, size, std=0.1)}
    for name, shape in shapes.items():
        weights[f"{name}.weight"] = make.normal(*shape, std=0.1)
        weights[f"{name}.bias"] = make.normal(shape[0], std=0.1)
    return weights


def write(folder: Path, config: Config, weights: Weights) -> None:
    """One checkpoint in Hugging Face's layout."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    whole = {name: weight.contiguous() for name, weight in weights.items()}
    save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})


def write_tokenizer(folder: Path) -> None:
    """Token t<i> is id i."""
    special = {0: "<pad>", 1: "<s>", 2: "</s>", 3: "<unk>", MEDIA: "<|media_pad|>"}
    vocabulary = {special.get(i, f"t{i}"): i for i in range(VOCAB)}
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


def write_target(folder: Path, text: Config) -> Weights:
    """A whole Kimi-K2.5 around this text model; returns the text model's weights."""
    make = Maker(SEED)
    inner = text_weights(make, text)
    outer = {f"language_model.{name}": weight for name, weight in inner.items()}
    write(folder, TARGET | {"text_config": text}, outer | vision_weights(make))
    write_tokenizer(folder)
    (folder / "tiny_processing.py").write_text(PROCESSOR)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR_CONFIG))
    return inner
