"""What a drafter's config.json and headers say, before any release reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from vpatch.preflight.checkpoint import Beside, Checkpoint
from vpatch.preflight.headers import Tensor
from vpatch.preflight.speculators import IDS, NUMBERING, is_peagle, is_speculators, meant
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
DEFAULT_STATES = 3
NORMS = ("norm_before_fc", "fc_norm", "norm_output", "norm_before_residual")
FLAGS = ("norm_before_fc", "fc_norm", "norm_before_residual", "norm_output", "use_aux_hidden_state")
"""Options that are true or false, in the order in which the series' reader looks at them."""
OTHER_NAMES = (
    *("dflash_config.target_layer_ids", "dflash_config.layer_ids"),
    *("dspark_target_layer_ids", "target_layer_ids"),
)
"""Where drafters of other methods name their layers, which they count in other ways."""
# Two names of one number; unpatched releases read the first for Qwen3 alone.
NUM_STATES = ("num_aux_layers", "num_aux_hidden_states")
# Integers of a layer that have a default where they are left out.
_COUNTS = (
    *("num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size"),
    *("target_hidden_size", "draft_vocab_size", "q_lora_rank", "kv_lora_rank"),
    *("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
)
_MOST = 1024
# Texts that say no, and that Python takes for true.
_NO = ("false", "no", "off", "0")
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
    *("Eagle3MiniMaxM2ForCausalLM", "Qwen3ForCausalLM", "MiniMaxM2ForCausalLM"),
)
"""Drafters of other models, that some releases have: their layers are not known here."""
_OF_SPECULATORS: Mapping[str, str] = {
    "llama": _LLAMA[1],
    "deepseek_v2": _MLA[0],
    "deepseek_v3": _MLA[1],
    "kimi_k2": _MLA[1],
    "qwen3": OTHERS[0],
}
_OF_PEAGLE = {_LLAMA[1]: "PeagleLlamaForCausalLM", OTHERS[0]: "PeagleQwen3ForCausalLM"}


@dataclass(frozen=True)
class Drafter:
    """The drafter, as its files say.

    Attributes:
        name, local, tensors, tokenizer: As Checkpoint's.
        config: What it says: of a config in speculators' format the layer's, with what stands
            beside it.
        written: The config as it stands in the file.
        speculators: Whether its config is in that format.
        architecture: The config's first one; of speculators' format what it becomes.
        kind: Whose layer it has.
        ids: By place, as written; places that have none are left out.
        beside: Files of its folder that the checkpoint's index does not name, up to `fc`'s.
        weighed: Whether it has safetensors files: without, nothing is known of its weights.
    """

    name: str
    local: bool
    config: Mapping[str, Any]
    written: Mapping[str, Any]
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
    beside: tuple[Beside, ...] = ()
    weighed: bool = True

    def with_config(self, config: Mapping[str, Any]) -> Drafter:
        """The same drafter, as a release that puts its config together so has it."""
        draft = _draft_vocab(config, self.vocab)
        return replace(self, config=config, ids=_ids(config), draft_vocab=draft)

    @property
    def architectures(self) -> tuple[str, ...]:
        """All that its config names, before vLLM adds Eagle3 to one."""
        named = self.config.get("architectures")
        if self.speculators or not isinstance(named, list):
            return (self.architecture,)
        return tuple(map(str, named))

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

    def places_of(self, name: str) -> Mapping[str, Any]:
        """What the config says of a flag, by where."""
        places = {name: self.config.get(name), f"eagle_config.{name}": self.eagle_config.get(name)}
        return {place: value for place, value in places.items() if value is not None}

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A flag of the config, in either place, as Python takes its value."""
        return bool([default, *self.places_of(name).values()][-1])

    def means(self, name: str) -> bool:
        """A flag of the config as whoever wrote it means it: a text says what it says."""
        value = [False, *self.places_of(name).values()][-1]
        return value.strip().lower() not in _NO if isinstance(value, str) else bool(value)

    def contradicts(self, name: str) -> bool:
        """Whether the two places of a flag say different things."""
        return len(set(map(bool, self.places_of(name).values()))) > 1

    def other_ids(self) -> Iterator[tuple[str, Any]]:
        """Layers under the names of other methods: places, and what stands there."""
        for place in OTHER_NAMES:
            outer, _, inner = place.partition(".")
            value = self.config.get(outer)
            if inner:
                value = value.get(inner) if isinstance(value, dict) else None
            if value:
                yield place, value

    def weight(self, name: str) -> Tensor | None:
        """A weight, by its name in layout()."""
        return next((one for own, one in self.tensors.items() if layout(own) == name), None)


def read_drafter(checkpoint: Checkpoint) -> Drafter:
    """Reads a drafter.

    Raises:
        FindingError: Its config lacks what every vLLM reads.
    """
    speculators = is_speculators(checkpoint.config)
    config = meant(checkpoint.config) if speculators else checkpoint.config
    vocab = count(config, "vocab_size", checkpoint)
    check_counts(config, _COUNTS, checkpoint)
    _check_sizes(config, checkpoint)
    architecture = _architecture(config, speculators=speculators)
    kind = _kind(architecture, config)
    if is_peagle(checkpoint.config):  # the same class by another name
        architecture = _OF_PEAGLE.get(architecture, "")
    return Drafter(
        name=checkpoint.name,
        local=checkpoint.local,
        config=config,
        written=checkpoint.config,
        own_type=word(checkpoint.config, "model_type"),
        speculators=speculators,
        architecture=architecture,
        kind=kind,
        model_type=word(config, "model_type"),
        layers=count(config, "num_hidden_layers", checkpoint),
        hidden=count(config, "hidden_size", checkpoint),
        vocab=vocab,
        draft_vocab=_draft_vocab(config, vocab),
        ids=_ids(config),
        tensors=checkpoint.tensors,
        tokenizer=checkpoint.tokenizer,
        special=special_tokens(config),
        dtype=dtype_of(config) or "bfloat16",
        beside=checkpoint.beside,
        weighed=checkpoint.weighed,
    )


def _draft_vocab(config: Mapping[str, Any], vocab: int) -> int:
    value = config.get("draft_vocab_size")
    return value if type(value) is int and value > 0 else vocab


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


def _architecture(config: Mapping[str, Any], *, speculators: bool) -> str:
    if speculators:
        return _OF_SPECULATORS.get(word(config, "model_type") or "llama", "")
    named = config.get("architectures")
    if not isinstance(named, list) or not named:
        return ""
    known = (each for each in named if each in (*_LLAMA, *_MLA, *OTHERS))
    return str(next(known, named[0]) if all(isinstance(each, str) for each in named) else named[0])


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
