"""Checkpoints without weights for preflight: configs, and headers over holes."""

from __future__ import annotations

import json
import math
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.version import Version

from vpatch.preflight.case import Case, Parallel
from vpatch.preflight.checkpoint import read_checkpoint
from vpatch.preflight.drafter import read_drafter
from vpatch.preflight.judge import judge
from vpatch.preflight.mends import ALL, NONE, Mends
from vpatch.preflight.releases import Runner, facts_of
from vpatch.preflight.target import read_target
from vpatch.preflight.verdict import Verdict

REPO = Path(__file__).resolve().parent.parent
FIXTURES = REPO / "tests" / "fixtures" / "drafters"
PUBLIC = tuple(sorted(path.stem for path in FIXTURES.glob("*--*.json")))
IDS = "eagle_aux_hidden_state_layer_ids"
NUMBERING = "eagle_aux_hidden_state_layer_numbering"
SIZES = {"BF16": 2, "F16": 2, "F32": 4, "I64": 8, "BOOL": 1, "U8": 1}
Weights = Mapping[str, tuple[str, Sequence[int]]]
REVISION_9 = replace(ALL, parts=False, peagle=False, integers=False, rows=False)
"""What v0.32.0's revisions 8 and 9 have."""

TARGET: Mapping[str, Any] = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "media_placeholder_token_id": 500,
    "text_config": {
        "model_type": "kimi_k2",
        "num_hidden_layers": 61,
        "hidden_size": 64,
        "vocab_size": 512,
    },
}
"""As deep as Kimi-K2.5, and as narrow as a test likes it."""
LLAMA: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "num_hidden_layers": 1,
    "hidden_size": 64,
    "vocab_size": 512,
    "draft_vocab_size": 384,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "eagle_config": {IDS: [2, 20, 50]},
}
MLA: Mapping[str, Any] = {
    "architectures": ["Eagle3DeepseekV2ForCausalLM"],
    "model_type": "kimi_k2",
    "num_hidden_layers": 1,
    "hidden_size": 64,
    "vocab_size": 512,
    "draft_vocab_size": 512,
    "num_attention_heads": 4,
    "q_lora_rank": 32,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "intermediate_size": 96,
    "rope_scaling": {"type": "yarn", "factor": 4.0},
    "eagle_config": {IDS: [2, 20, 50]},
}


def weights_of(
    config: Mapping[str, Any], states: int = 3, own: Sequence[str] = ("lm_head",)
) -> dict[str, tuple[str, Sequence[int]]]:
    """What a drafter's trainer saves."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    found: dict[str, Sequence[int]] = {
        "fc.weight": (hidden, states * hidden),
        "norm.weight": (hidden,),
        "midlayer.hidden_norm.weight": (hidden,),
        "midlayer.input_layernorm.weight": (hidden,),
        "midlayer.post_attention_layernorm.weight": (hidden,),
        "midlayer.mlp.gate_proj.weight": (inner, hidden),
        "midlayer.mlp.up_proj.weight": (inner, hidden),
        "midlayer.mlp.down_proj.weight": (hidden, inner),
    }
    attention = _mla(config) if "kv_lora_rank" in config else _llama(config)
    found |= {f"midlayer.self_attn.{name}.weight": shape for name, shape in attention.items()}
    if config.get("fc_norm"):
        found |= {f"fc_norm.{number}.weight": (hidden,) for number in range(states)}
    if "embed_tokens" in own:
        found["embed_tokens.weight"] = (config["vocab_size"], hidden)
    if "lm_head" in own:
        found["lm_head.weight"] = (config["draft_vocab_size"], hidden)
    typed: dict[str, tuple[str, Sequence[int]]] = {
        name: ("BF16", shape) for name, shape in found.items()
    }
    if config["draft_vocab_size"] != config["vocab_size"]:
        typed |= {
            "d2t": ("I64", (config["draft_vocab_size"],)),
            "t2d": ("BOOL", (config["vocab_size"],)),
        }
    return typed


def _llama(config: Mapping[str, Any]) -> dict[str, Sequence[int]]:
    hidden, size = config["hidden_size"], config["head_dim"]
    queries, kept = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    return {
        "q_proj": (queries, 2 * hidden),
        "k_proj": (kept, 2 * hidden),
        "v_proj": (kept, 2 * hidden),
        "o_proj": (hidden, queries),
    }


def _mla(config: Mapping[str, Any]) -> dict[str, Sequence[int]]:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    query, kept, rope = (
        config[name] for name in ("q_lora_rank", "kv_lora_rank", "qk_rope_head_dim")
    )
    nope, value = config["qk_nope_head_dim"], config["v_head_dim"]
    return {
        "q_a_proj": (query, 2 * hidden),
        "q_a_layernorm": (query,),
        "q_b_proj": (heads * (nope + rope), query),
        "kv_a_proj_with_mqa": (kept + rope, 2 * hidden),
        "kv_a_layernorm": (kept,),
        "kv_b_proj": (heads * (nope + value), kept),
        "o_proj": (hidden, heads * value),
    }


def header_of(weights: Weights) -> tuple[bytes, int]:
    """A safetensors file's first bytes, and its whole length."""
    entries, end = {}, 0
    for name, (dtype, shape) in weights.items():
        start, end = end, end + math.prod(shape) * SIZES[dtype]
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    raw = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    return struct.pack("<Q", len(raw)) + raw, 8 + len(raw) + end


def write(folder: Path, config: Mapping[str, Any], weights: Weights | None = None) -> Path:
    """A checkpoint's folder; its weights are a hole."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if weights is not None:
        raw, length = header_of(weights)
        with (folder / "model.safetensors").open("wb") as file:
            file.write(raw)
            file.truncate(length)
    return folder


def preflight(
    folder: Path,
    drafter: Mapping[str, Any],
    release: str,
    *,
    weights: Weights | None = None,
    target: Mapping[str, Any] = TARGET,
    patched: bool = False,
    runner: Runner | None = None,
    parallel: Parallel = Parallel(),  # noqa: B008 - frozen
    options: Mapping[str, Any] | None = None,
    mends: Mends = NONE,
) -> Verdict:
    """The verdict on a drafter that is written for it."""
    beside = write(folder / "target", target)
    own = write(folder / "drafter", drafter, weights_of(drafter) if weights is None else weights)
    case = Case(
        read_target(read_checkpoint(str(beside), weights=False)),
        read_drafter(read_checkpoint(str(own), weights=True)),
        facts_of(Version(release), patched=patched, runner=runner, mends=mends),
        parallel,
        options or {},
    )
    return judge(case)


def public(name: str) -> dict[str, Any]:
    """A fixture of a public drafter, or ``target-kimi-k2.5``."""
    found: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text())
    return found


def run(*args: str) -> tuple[int, dict[str, Any]]:
    """The command in a process; exactly one object on stdout."""
    ran = subprocess.run(
        [sys.executable, "-m", "vpatch", "preflight", *args, "--json"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.stdout.count("\n") == 1, ran.stdout + ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    assert found["schema"] == "vpatch/preflight/1"
    assert found["ok"] is (ran.returncode == 0)
    return ran.returncode, found
