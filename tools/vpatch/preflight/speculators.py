"""A config in speculators' format: one of a layer, and what stands beside it for the whole drafter.

What such a config means, and what a release makes of it, are two things: many releases take a
value from one of the two places and drop the other's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

IDS = "eagle_aux_hidden_state_layer_ids"
NUMBERING = "eagle_aux_hidden_state_layer_numbering"
_EAGLE = "eagle_config"
_FIRST = "norm_before_residual"
# Those that a release takes, or may take, from beside the layer's config.
_NORMS = ("norm_before_fc", "fc_norm", "norm_output")
_KEYS = (
    *(_EAGLE, "draft_vocab_size", "target_hidden_size", _FIRST, *_NORMS),
    *("use_aux_hidden_state", IDS, NUMBERING, "use_multimodal_embeddings"),
)
_NOTHING: tuple[Any, ...] = (None, [], {})


@dataclass(frozen=True)
class Carried:
    """What a release writes into the layer's config, whatever that says.

    Attributes:
        always: Keys that it sets, with what they are where nothing stands beside the layer.
        named: Keys that it sets where something does.
        both: It looks into both places instead, and refuses what differs.
    """

    always: Mapping[str, Any] = field(
        default_factory=lambda: {"draft_vocab_size": None, _FIRST: True}
    )
    named: tuple[str, ...] = ("target_hidden_size", IDS)
    both: bool = False


FIRST = Carried()
WITH_ONE_NORM = Carried({**FIRST.always, "norm_before_fc": False})
WITH_NORMS = Carried({**FIRST.always, **dict.fromkeys(_NORMS, False)})
_MORE = (*FIRST.named, "use_aux_hidden_state", NUMBERING)
PATCHED_FIRST = Carried(FIRST.always, (*_MORE, *_NORMS))
PATCHED = Carried(WITH_NORMS.always, _MORE)
BOTH = Carried({}, (), both=True)


def is_speculators(config: Mapping[str, Any]) -> bool:
    """Whether a config is in that format."""
    return isinstance(config.get("speculators_model_type"), str)


def meant(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What it says of its drafter: each key where it stands, beside the layer's first."""
    layer = _layer(config)
    layer |= {key: config[key] for key in _KEYS if config.get(key) not in _NOTHING}
    inner = layer.get(_EAGLE)
    said = layer.get(_FIRST) is not None or (isinstance(inner, dict) and _FIRST in inner)
    return layer if said else {**layer, _FIRST: True}


def put_together(config: Mapping[str, Any], carried: Carried) -> Mapping[str, Any]:
    """The config that the drafter's class gets."""
    if carried.both:
        return meant(config)
    layer = _layer(config)
    layer |= {key: config.get(key, default) for key, default in carried.always.items()}
    return layer | {key: config[key] for key in carried.named if config.get(key) not in _NOTHING}


def contradictions(config: Mapping[str, Any]) -> Iterator[str]:
    """Keys that stand in both places and are not alike."""
    layer = _layer(config)
    for key in _KEYS:
        outer, inner = config.get(key), layer.get(key)
        if outer not in _NOTHING and inner not in _NOTHING and outer != inner:
            yield key


def _layer(config: Mapping[str, Any]) -> dict[str, Any]:
    inner = config.get("transformer_layer_config")
    layer = dict(inner) if isinstance(inner, dict) else {}
    quantised = config.get("quantization_config")
    return layer if quantised is None else {**layer, "quantization_config": quantised}
