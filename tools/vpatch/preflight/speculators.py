"""A config in speculators' format: one of a layer, and what stands beside it for the whole drafter.

What such a config means, and what a release makes of it, are two things: many releases take a
value from one of the two places and drop the other's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

IDS = "eagle_aux_hidden_state_layer_ids"
NUMBERING = "eagle_aux_hidden_state_layer_numbering"
PEAGLE = "peagle"
EAGLE = "eagle_config"
FIRST = "norm_before_residual"
# Those that a release takes, or may take, from beside the layer's config.
NORMS = ("norm_before_fc", "fc_norm", "norm_output")
SIZES = ("draft_vocab_size", "target_hidden_size")
KEYS = (
    *(EAGLE, *SIZES, FIRST, *NORMS),
    *("use_aux_hidden_state", IDS, NUMBERING, "use_multimodal_embeddings"),
)
PEAGLE_KEYS = (EAGLE, *SIZES, FIRST, "norm_before_fc", IDS, NUMBERING)
_NOTHING: tuple[Any, ...] = (None, [], {})


@dataclass(frozen=True)
class Carried:
    """What a release writes into the layer's config, whatever that says.

    Attributes:
        always: Keys that it sets, with what they are where nothing stands beside the layer.
        named: Keys that it sets where something does.
        both: Keys for which it looks into both places instead, refusing what differs.
        parts: Whether it puts the parts of two objects together, and takes an eagle_config that is
            no object, and a null in one, for none.
        first: norm_before_residual where neither says it; of `both` alone.
    """

    always: Mapping[str, Any] = field(
        default_factory=lambda: {"draft_vocab_size": None, FIRST: True}
    )
    named: tuple[str, ...] = ("target_hidden_size", IDS)
    both: tuple[str, ...] = ()
    parts: bool = False
    first: bool = True


IN_PARTS = Carried({}, (), KEYS, parts=True)


def is_speculators(config: Mapping[str, Any]) -> bool:
    """Whether a config is in that format."""
    return isinstance(config.get("speculators_model_type"), str)


def is_peagle(config: Mapping[str, Any]) -> bool:
    """Whether it is P-EAGLE's."""
    return config.get("speculators_model_type") == PEAGLE


def meant(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What it says of its drafter: each key where it stands, beside the layer's first."""
    return _in_both(config, replace(IN_PARTS, first=not is_peagle(config)))


def put_together(config: Mapping[str, Any], carried: Carried) -> Mapping[str, Any]:
    """The config that the drafter's class gets."""
    if carried.both:
        return _in_both(config, carried)
    layer = layer_of(config)
    layer |= {key: config.get(key, default) for key, default in carried.always.items()}
    return layer | {key: config[key] for key in carried.named if config.get(key) not in _NOTHING}


def _in_both(config: Mapping[str, Any], carried: Carried) -> Mapping[str, Any]:
    layer = layer_of(config)
    for key in carried.both:
        outer, inner = config.get(key), layer.get(key)
        if outer in _NOTHING:
            continue
        together = carried.parts and isinstance(outer, dict) and isinstance(inner, dict)
        layer[key] = {**(inner or {}), **_said(outer)} if together else outer
    found = layer.get(EAGLE)
    inside = found if isinstance(found, dict) else {}
    named = inside.get(FIRST) is not None if carried.parts else FIRST in inside
    if layer.get(FIRST) is not None or named:
        return layer
    return {**layer, FIRST: carried.first}


def _said(values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in _NOTHING}


def contradictions(config: Mapping[str, Any], carried: Carried = IN_PARTS) -> Iterator[str]:
    """Keys that stand in both places and are not alike.

    Args:
        config: In speculators' format.
        carried: What a release looks at; without one, whatever stands there.
    """
    layer = layer_of(config)
    for key in carried.both or KEYS:
        outer, inner = config.get(key), layer.get(key)
        if outer in _NOTHING or inner in _NOTHING or outer == inner:
            continue
        if carried.parts and isinstance(outer, dict) and isinstance(inner, dict):
            yield from (
                each
                for each, value in _said(outer).items()
                if inner.get(each) not in _NOTHING and inner[each] != value
            )
        else:
            yield key


def uncountable(config: Mapping[str, Any], carried: Carried) -> str | None:
    """The type of an eagle_config that a release looks for norms in, and cannot; None: it can.

    Args:
        config: In speculators' format.
        carried: What the release looks at.
    """
    found = put_together(config, carried)
    inside = found.get(EAGLE)
    if not carried.both or carried.parts or not isinstance(inside, (int, float)) or not inside:
        return None
    layer = layer_of(config)
    places = (config, layer)
    named = all(any(each.get(key) not in _NOTHING for each in places) for key in (FIRST, *NORMS))
    return None if named else type(inside).__name__


def layer_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The layer's config, a copy, with the quantisation beside it."""
    inner = config.get("transformer_layer_config")
    layer = dict(inner) if isinstance(inner, dict) else {}
    quantised = config.get("quantization_config")
    return layer if quantised is None else {**layer, "quantization_config": quantised}
