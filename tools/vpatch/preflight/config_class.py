"""What is refused while a drafter's config becomes one of a class, and of an architecture."""

from __future__ import annotations

from collections.abc import Iterator

from vpatch.preflight.case import Case
from vpatch.preflight.drafter import OTHERS
from vpatch.preflight.speculators import contradictions, is_peagle, layer_of, uncountable
from vpatch.preflight.verdict import Problem, Remedy

_NO_ARCHITECTURE = "are not supported for now."
_PATCH = Remedy("release", "the patched release")
_LATER = Remedy("release", "a later revision of this release's series")
_TYPES = ("qwen3", "llama")
_MLA_TYPES = ("deepseek_v2", "deepseek_v3", "kimi_k2")


def problems(case: Case) -> Iterator[Problem]:
    """Every refusal that applies; a user meets the first."""
    if case.drafter.speculators:
        yield from _speculators(case)
    elif case.drafter.model_type == "kimi_k2" and not case.release.knows_mla:
        yield Problem(
            "config-class",
            "error",
            "config",
            "neither this release nor its Transformers has a config for model_type kimi_k2",
            text=("model type `kimi_k2` but Transformers does not recognize this architecture",),
            remedy=_PATCH,
            topic="eagle3-interface",
        )
    yield from _architecture(case)
    yield from _text_config(case)


def _text_config(case: Case) -> Iterator[Problem]:
    """A config within, which stays an object without attributes."""
    drafter = case.drafter
    of_target = drafter.model_type == "kimi_k25" and not drafter.speculators
    if of_target or drafter.config.get("text_config") is not None:
        what = "model_type: kimi_k25 has" if of_target else "config has"
        yield Problem(
            "config-class",
            "error",
            "config",
            f"its {what} a text_config, and vLLM looks for its layer there",
            text=(
                "The text_config extracted from the model config does not have "
                "`num_attention_heads` attribute",
            ),
            remedy=Remedy("config", "set the model_type of its layer in its config.json")
            if of_target
            else Remedy("config", "remove text_config from its config.json"),
        )


def _speculators(case: Case) -> Iterator[Problem]:
    drafter, release = case.drafter, case.release
    carried = release.carries(drafter)
    if drafter.own_type:
        yield Problem(
            "config-class",
            "error",
            "config",
            "its config names a model_type that no Transformers has",
            text=(f"model type `{drafter.own_type}` but Transformers does not recognize",),
            remedy=Remedy("config", "remove model_type from its config.json"),
        )
    for name in contradictions(drafter.written, carried) if carried.both else ():
        yield Problem(
            "speculators",
            "error",
            "config",
            f"{name} is not the same beside transformer_layer_config and in it",
            text=(
                f"The speculators config contradicts itself: {name} is",
                "in transformer_layer_config",
            ),
            remedy=Remedy("config", "keep the one that the drafter was trained with"),
            topic="mla-drafter",
        )
    if kind := uncountable(drafter.written, carried):
        yield Problem(
            "speculators",
            "error",
            "config",
            "its eagle_config is no object, and this revision looks for options in it",
            text=(f"argument of type '{kind}' is not iterable",),
            remedy=_LATER,
        )
    yield from _layer_type(case)


def _layer_type(case: Case) -> Iterator[Problem]:
    """Where a release goes by what the layer is."""
    drafter, release = case.drafter, case.release
    layer = layer_of(drafter.written)
    of_peagle = is_peagle(drafter.written)
    if drafter.written["speculators_model_type"] not in release.speculators_types:
        why = f"this release has no speculators of type {drafter.written['speculators_model_type']}"
        yield Problem(
            "speculators",
            "error",
            "config",
            why,
            text=("Expected one of: {",),
        )
        return
    known = (*_TYPES, *(_MLA_TYPES if release.mla_speculators and not of_peagle else ()))
    written = layer.get("model_type", "llama")
    if release.speculators != "by type" or written in known:
        if of_peagle and "mask_token_id" not in drafter.written:
            why = "its config names no mask_token_id beside transformer_layer_config"
            yield Problem(
                "speculators",
                "error",
                "config",
                why,
                text=("'mask_token_id'",),
            )
        return
    mla = written in _MLA_TYPES and not of_peagle
    text = f"Unsupported model_type {written} for {'PEagle' if of_peagle else 'Eagle3'} speculator"
    if isinstance(written, (list, dict)):
        text = f"unhashable type: '{type(written).__name__}'"
    yield Problem(
        "speculators",
        "error",
        "config",
        "this release takes no drafters with MLA in speculators' format"
        if mla
        else f"this release takes no layer of model_type {written} in speculators' format",
        text=(text,),
        remedy=_PATCH if mla else Remedy("config", "correct model_type in its config.json"),
        topic="mla-drafter" if mla else None,
    )


def _architecture(case: Case) -> Iterator[Problem]:
    drafter, release = case.drafter, case.release
    if drafter.model_type == "deepseek_v3" and not release.keeps_deepseek_v3:
        yield Problem(
            "architecture",
            "error",
            "config",
            "this release takes every drafter with model_type deepseek_v3 for an MTP model",
            text=(
                "Model architectures ['Eagle3DeepSeekMTPModel']",
                _NO_ARCHITECTURE,
            ),
            remedy=Remedy("config", 'set "model_type": "kimi_k2" in its config.json')
            if release.knows_mla
            else _PATCH,
            topic="mla-drafter",
        )
    elif _unknown(case) or _too_early(case):
        yield _no_drafter(case)


def _no_drafter(case: Case) -> Problem:
    architecture = case.drafter.architecture
    named = case.drafter.config.get("architectures")
    # None: that of its model_type. One that vLLM has for another method gets Eagle3 before it.
    name = f"{named[0]}'" if named and isinstance(named, list) else "Eagle3"
    text: tuple[str, ...] = ("Model architectures ['", name, _NO_ARCHITECTURE)
    if named and not isinstance(named, list):
        text = ("Input should be a valid list",)
    elif named and not isinstance(named[0], str):
        text = ("Input should be a valid string",)
    return Problem(
        "architecture",
        "error",
        "config",
        f"this release has no drafter {architecture or 'without an architecture in its config'}",
        text=text,
        remedy=_PATCH if case.drafter.kind == "mla" else None,
        topic="eagle3-interface" if case.drafter.kind == "mla" else None,
    )


def _too_early(case: Case) -> bool:
    """An MLA drafter where there are none; one in speculators' format is taken for a Llama."""
    return case.drafter.kind == "mla" and not case.release.knows_mla and not _any_layer(case)


def _unknown(case: Case) -> bool:
    drafter = case.drafter
    if drafter.kind != "other" or drafter.speculators:
        return False  # what a layer is, is looked at above
    return drafter.architecture not in OTHERS


def _any_layer(case: Case) -> bool:
    return case.drafter.speculators and case.release.speculators == "as llama"
