"""What a drafter's config.json and headers say, before any release reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vpatch.preflight.checkpoint import Checkpoint
from vpatch.preflight.headers import Tensor
from vpatch.preflight.target import (
    check_counts,
    count,
    dtype_of,
    lacks,
    special_tokens,
    word,
)
from vpatch.preflight.weights import layout

Kind = Literal["llama", "mla", "other"]
Place = Literal["top-level", "eagle_config", "eagle_config.layer_ids"]
IDS = "eagle_aux_hidden_state_layer_ids"
NUMBERING = "eagle_aux_hidden_state_layer_numbering"
DEFAULT_STATES = 3
# Two names of one number; unpatched releases read the first for Qwen3 alone.
NUM_STATES = ("num_aux_layers", "num_aux_hidden_states")
# Integers of a layer that have a default where they are left out.
_COUNTS = (
    *("num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size"),
    *("target_hidden_size", "draft_vocab_size", "q_lora_rank", "kv_lora_rank"),
    *("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
)
_MOST = 1024
# Names without Eagle3 get it from vLLM.
_LLAMA = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "LlamaForCausalLM")
_MLA = (
    "Eagle3DeepseekV2ForCausalLM",
    "Eagle3DeepseekV3ForCausalLM",
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
)
OTHERS = (
    *("Eagle3Qwen3ForCausalLM", "Eagle3Qwen2_5vlForCausalLM", "Eagle3Qwen3vlForCausalLM"),
    *("Eagle3MiniMaxM2ForCausalLM", "PEagleDraftModel", "PeagleLlamaForCausalLM"),
    "PeagleQwen3ForCausalLM",
)
"""Drafters of other models, that some releases have: their layers are not known here."""
_OF_SPECULATORS: Mapping[str, str] = {
    "llama": _LLAMA[1],
    "deepseek_v2": _MLA[0],
    "deepseek_v3": _MLA[1],
    "kimi_k2": _MLA[1],
    "qwen3": OTHERS[0],
}


@dataclass(frozen=True)
class Drafter:
    """The drafter, as its files say.

    Attributes:
        name, local, tensors, tokenizer: As Checkpoint's.
        config: What a model reads: of a config in speculators' format the layer's, with what
            stands beside it.
        speculators: Whether its config is in that format.
        architecture: The config's first one; of speculators' format what it becomes.
        kind: Whose layer it has.
        ids: By place, as written; places that have none are left out.
    """

    name: str
    local: bool
    config: Mapping[str, Any]
    own_type: str
    speculators: bool
    architecture: str
    kind: Kind
    model_type: str
    layers: int
    hidden: int
    vocab: int
    draft_vocab: int
    ids: Mapping[Place, Any]
    tensors: Mapping[str, Tensor]
    tokenizer: Mapping[str, str]
    special: Mapping[str, Any]
    dtype: str

    @property
    def eagle_config(self) -> Mapping[str, Any]:
        """The object inside of the config; empty where there is none."""
        found = self.config.get("eagle_config")
        return found if isinstance(found, dict) else {}

    @property
    def state_size(self) -> int:
        """Values of one state, as its config has it."""
        size = self.config.get("target_hidden_size")
        return size if type(size) is int else self.hidden

    @property
    def numbering(self) -> str | None:
        """The numbering that the config states, in either place."""
        top = self.config.get(NUMBERING)
        value = self.eagle_config.get(NUMBERING) if top is None else top
        return value if isinstance(value, str) else None

    @property
    def uses_aux(self) -> bool:
        """False for heads that take the target's last hidden state alone."""
        return self.flag("use_aux_hidden_state", default=True)

    @property
    def own_embeddings(self) -> bool:
        """Whether the checkpoint has a table of embeddings."""
        return self.weight("embed_tokens.weight") is not None

    @property
    def own_head(self) -> bool:
        """Whether the checkpoint has a head."""
        return self.weight("lm_head.weight") is not None

    @property
    def quantization(self) -> str | None:
        """The method of its quantisation, where it has one."""
        found = self.config.get("quantization_config") or self.config.get("compression_config")
        if not found:
            return None
        return word(found, "quant_method") or "unnamed" if isinstance(found, dict) else "unnamed"

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A flag of the config, in either place."""
        top, inner = self.config.get(name), self.eagle_config.get(name)
        value = top if inner is None else inner
        return default if value is None else bool(value)

    def contradicts(self, name: str) -> bool:
        """Whether the two places of a flag say different things."""
        top, inner = self.config.get(name), self.eagle_config.get(name)
        return top is not None and inner is not None and bool(top) != bool(inner)

    def weight(self, name: str) -> Tensor | None:
        """A weight, by its name in layout()."""
        return next((one for own, one in self.tensors.items() if layout(own) == name), None)


def read_drafter(checkpoint: Checkpoint) -> Drafter:
    """Reads a drafter.

    Raises:
        FindingError: Its config lacks what every vLLM reads.
    """
    speculators = isinstance(checkpoint.config.get("speculators_model_type"), str)
    config = _layer_config(checkpoint.config) if speculators else checkpoint.config
    vocab = count(config, "vocab_size", checkpoint)
    check_counts(config, _COUNTS, checkpoint)
    _check_sizes(config, checkpoint)
    draft = config.get("draft_vocab_size")
    architecture = _architecture(config, speculators=speculators)
    return Drafter(
        name=checkpoint.name,
        local=checkpoint.local,
        config=config,
        own_type=word(checkpoint.config, "model_type"),
        speculators=speculators,
        architecture=architecture,
        kind=_kind(architecture, config),
        model_type=word(config, "model_type"),
        layers=count(config, "num_hidden_layers", checkpoint),
        hidden=count(config, "hidden_size", checkpoint),
        vocab=vocab,
        draft_vocab=draft if type(draft) is int and draft > 0 else vocab,
        ids=_ids(config),
        tensors=checkpoint.tensors,
        tokenizer=checkpoint.tokenizer,
        special=special_tokens(config),
        dtype=dtype_of(config) or "bfloat16",
    )


def _check_sizes(config: Mapping[str, Any], checkpoint: Checkpoint) -> None:
    """What is counted, name by name: no drafter has that many."""
    inner = config.get("eagle_config")
    for name in ("num_hidden_layers", *NUM_STATES):
        value = config.get(name)
        if type(value) is int and value > _MOST:
            raise lacks(checkpoint, name)
    for place in (config, inner if isinstance(inner, dict) else {}):
        for name in (IDS, "layer_ids"):
            value = place.get(name)
            if isinstance(value, (list, str)) and len(value) > _MOST:
                raise lacks(checkpoint, name)


def _layer_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """As vLLM puts a config of speculators' format together."""
    inner = config.get("transformer_layer_config")
    layer = dict(inner) if isinstance(inner, dict) else {}
    beside = ("draft_vocab_size", "target_hidden_size", "norm_before_fc", "fc_norm", "norm_output")
    kept = (*beside, "use_aux_hidden_state", IDS, NUMBERING, "quantization_config")
    layer |= {name: config[name] for name in kept if config.get(name) is not None}
    return layer | {"norm_before_residual": config.get("norm_before_residual", True)}


def _architecture(config: Mapping[str, Any], *, speculators: bool) -> str:
    if speculators:
        return _OF_SPECULATORS.get(word(config, "model_type") or "llama", "")
    named = config.get("architectures")
    return str(named[0]) if isinstance(named, list) and named else ""


def _kind(architecture: str, config: Mapping[str, Any]) -> Kind:
    if architecture in _LLAMA:
        return "llama"
    if architecture in _MLA:
        return "mla"
    return "mla" if "kv_lora_rank" in config and architecture.startswith("Eagle3") else "other"


def _ids(config: Mapping[str, Any]) -> Mapping[Place, Any]:
    inner = config.get("eagle_config")
    inner = inner if isinstance(inner, dict) else {}
    found: dict[Place, Any] = {
        "top-level": config.get(IDS),
        "eagle_config": inner.get(IDS),
        "eagle_config.layer_ids": inner.get("layer_ids"),
    }
    return {place: value for place, value in found.items() if value not in (None, [])}


def states_of(drafter: Drafter, hidden: int) -> int | None:
    """How many of the target's states its `fc` takes, by its shape; None where that is no number.

    Args:
        hidden: Of the target.
    """
    fc = drafter.weight("fc.weight")
    if fc is None or not fc.shape or fc.dtype == "U8":  # U8 packs several values into one
        return None
    states, rest = divmod(fc.shape[-1], hidden)
    return None if rest else states
