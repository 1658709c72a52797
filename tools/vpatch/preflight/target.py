"""What a target's config.json says about EAGLE-3."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vpatch.errors import FindingError
from vpatch.preflight.checkpoint import Checkpoint

# The text models whose class hands over aux states as this repository's series have it.
KNOWN_TEXT_MODELS = ("kimi_k2", "deepseek_v3", "deepseek_v2")
# Keys and names that only a drafter's config has.
_DRAFTER_KEYS = ("draft_vocab_size", "eagle_config", "speculators_config")
_SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id")


@dataclass(frozen=True)
class Target:
    """The target.

    Attributes:
        model_type: Of the text model.
        outer_type: Of the whole.
        layers, hidden, vocab: Of the text model.
        placeholder: Whether the config has ``media_placeholder_token_id``, which V1 reads.
        multimodal: Whether it has a vision tower.
        dtype: As the config has it; bfloat16 where it has none.
        special: The ids of special tokens that it names.
        tokenizer: As Checkpoint's.
        heads: Attention heads of the text model; 0 where its config does not say.
    """

    name: str
    model_type: str
    outer_type: str
    layers: int
    hidden: int
    vocab: int
    placeholder: bool
    multimodal: bool
    dtype: str
    special: Mapping[str, Any]
    tokenizer: Mapping[str, str]
    heads: int = 0

    @property
    def default_layers(self) -> tuple[int, ...]:
        """What a release takes for a drafter that names no layers."""
        return (2, self.layers // 2, self.layers - 3)


def read_target(checkpoint: Checkpoint) -> Target:
    """Reads a target.

    Raises:
        FindingError: Its config lacks what every vLLM reads, or is a drafter's.
    """
    config = checkpoint.config
    if _is_drafter(config):
        raise FindingError(
            f"{checkpoint.name}/config.json is a drafter's, and --target takes the model that is "
            "served",
            hint="Name the target's folder, and this one with --drafter.",
            code="drafter-as-target",
        )
    text = config.get("text_config", config)
    if not isinstance(text, Mapping):
        raise lacks(checkpoint, "text_config")
    return Target(
        name=checkpoint.name,
        model_type=word(text, "model_type"),
        outer_type=word(config, "model_type"),
        layers=count(text, "num_hidden_layers", checkpoint),
        hidden=count(text, "hidden_size", checkpoint),
        vocab=count(text, "vocab_size", checkpoint),
        placeholder="media_placeholder_token_id" in config,
        multimodal="text_config" in config,
        dtype=dtype_of(text) or dtype_of(config) or "bfloat16",
        special=special_tokens(config) or special_tokens(text),
        tokenizer=checkpoint.tokenizer,
        heads=heads_of(text),
    )


def _is_drafter(config: Mapping[str, Any]) -> bool:
    named = config.get("architectures")
    names = named if isinstance(named, list) else []
    return any(key in config for key in _DRAFTER_KEYS) or any(
        isinstance(name, str) and "eagle" in name.lower() for name in names
    )


def heads_of(config: Mapping[str, Any]) -> int:
    """``num_attention_heads``, or 0: nothing here needs it but the number of ranks."""
    value = config.get("num_attention_heads")
    return value if type(value) is int and value > 0 else 0


def word(config: Mapping[str, Any], name: str) -> str:
    """A string of a config, or nothing."""
    value = config.get(name)
    return value if isinstance(value, str) else ""


def count(config: Mapping[str, Any], name: str, checkpoint: Checkpoint) -> int:
    """A positive integer of a config.

    Raises:
        FindingError: There is none.
    """
    value = config.get(name)
    if type(value) is not int or not 0 < value < 1 << 31:
        raise lacks(checkpoint, name)
    return value


def check_counts(config: Mapping[str, Any], names: Iterable[str], checkpoint: Checkpoint) -> None:
    """Integers that may be left out, and are positive where they are there.

    Raises:
        FindingError: One is something else.
    """
    for name in names:
        if config.get(name) is not None:
            count(config, name, checkpoint)


def dtype_of(config: Mapping[str, Any]) -> str:
    """``dtype``, or ``torch_dtype`` as it was called."""
    return word(config, "dtype") or word(config, "torch_dtype")


def special_tokens(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The ids of special tokens that a config names."""
    return {name: config[name] for name in _SPECIAL if config.get(name) is not None}


def lacks(checkpoint: Checkpoint, name: str) -> FindingError:
    """A config in which a value is not what it has to be."""
    return FindingError(
        f"{checkpoint.name}/config.json has no usable {name}",
        hint="Is this the config of a model? Download it again.",
        code="bad-checkpoint",
    )
