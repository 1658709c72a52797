"""What fails while a drafter is loaded, at its first step, or never."""

from __future__ import annotations

from collections.abc import Iterator

from vpatch.preflight import at_weights, contents
from vpatch.preflight.case import OUTPUT, Case, option
from vpatch.preflight.drafter import DEFAULT_STATES, NORMS, NUM_STATES
from vpatch.preflight.speculators import IDS, NUMBERING
from vpatch.preflight.verdict import Problem, Remedy

_PATCH = Remedy("release", "the patched release")


def problems(case: Case) -> Iterator[Problem]:
    """In the order of an engine start; a user meets the first error."""
    yield from _runner(case)
    if _taken_for_llama(case):
        yield Problem(
            "speculators",
            "error",
            "load",
            "this release takes every drafter in speculators' format for a Llama one",
            remedy=_PATCH,
            topic="mla-drafter",
        )
        return
    yield from _rope(case)
    yield from _no_object(case)
    yield from _no_size(case)
    yield from _no_number(case)
    known = case.drafter.kind != "other" and case.drafter.quantization is None
    if known and case.drafter.tensors:
        yield from at_weights.problems(case)
    yield from _placeholder(case)
    yield from _last_state(case)
    yield from _embeddings(case)
    yield from contents.vocabularies(case)
    yield from _first_step(case)
    yield from _wrong_states(case)
    yield from _norms(case)


def _runner(case: Case) -> Iterator[Problem]:
    """MRV2 of the first two series' releases."""
    release = case.release
    if release.runner != "v2" or release.version.release >= (0, 18) or not release.patched:
        return
    remedy = Remedy("option", "VLLM_USE_V2_MODEL_RUNNER=0")
    if release.version.release < (0, 17):
        text = "does not hand the target's aux hidden states to an EAGLE-3 drafter"
    elif case.drafter.kind == "llama":
        text = "takes one KV-cache layout for target and drafter"
    else:
        return
    yield Problem(
        "runner", "error", "load", f"MRV2 of this release {text}", text=(text,), remedy=remedy
    )


def _taken_for_llama(case: Case) -> bool:
    drafter, release = case.drafter, case.release
    return drafter.speculators and drafter.kind == "mla" and release.speculators == "as llama"


def _rope(case: Case) -> Iterator[Problem]:
    drafter = case.drafter
    scaling = drafter.config.get("rope_scaling")
    yarn = isinstance(scaling, dict) and "factor" in scaling
    if drafter.kind == "mla" and case.release.mla_needs_yarn and not yarn:
        yield Problem(
            "rope",
            "error",
            "load",
            "this release takes every rope of a drafter with MLA for YaRN",
            text=("'factor'",),
            remedy=_PATCH,
            topic="mla-drafter",
        )


def _no_size(case: Case) -> Iterator[Problem]:
    """A size that is there and null, from which the width of fc is computed."""
    drafter, release = case.read, case.release
    ours = release.patched and drafter.kind == "mla" and release.version.release < (0, 18)
    computed = drafter.uses_aux or (drafter.kind == "mla" and not release.patched)
    null = drafter.config.get("target_hidden_size", drafter.hidden) is None
    if null and computed and not ours and not release.mends.sizes:
        yield Problem(
            "hidden-sizes",
            "error",
            "load",
            "its target_hidden_size is null, which this release multiplies",
            text=("unsupported operand type(s) for *: 'NoneType' and 'int'",),
            remedy=Remedy("config", "remove target_hidden_size from its config.json"),
            topic="aux-layers",
        )


def _no_object(case: Case) -> Iterator[Problem]:
    """An eagle_config of another type, which the release's own classes look into."""
    drafter, release = case.read, case.release
    found = drafter.config.get("eagle_config")
    looked = release.runner == "v1" or found  # MRV2 looks into none that is empty
    if release.patched or found is None or isinstance(found, dict) or not looked:
        return
    kind = type(found).__name__
    text = f"'{kind}' object has no attribute 'get'"
    if release.runner == "v2" and drafter.kind != "mla" and isinstance(found, (int, float)):
        text = f"argument of type '{kind}' is not iterable"
    yield Problem(
        "config",
        "error",
        "load",
        "its eagle_config is no object, and this release looks into it",
        text=(text,),
        remedy=Remedy("config", "remove eagle_config from its config.json"),
    )


def _no_number(case: Case) -> Iterator[Problem]:
    """A number of states that is none, from which the width of fc is computed."""
    drafter, release = case.read, case.release
    if not drafter.uses_aux or not release.fc_follows_ids:
        return
    for name in NUM_STATES if release.patched else NUM_STATES[1:]:
        value = drafter.config.get(name)
        if value is not None and not isinstance(value, int):
            yield Problem(
                "aux-states",
                "error",
                "load",
                f"its {name} is {value!r}, which is no integer",
                text=("must be tuple of ints",),
                remedy=Remedy("config", f"write {name} as an integer in its config.json"),
                topic="aux-layers",
            )


def _placeholder(case: Case) -> Iterator[Problem]:
    if case.target.multimodal and case.release.needs_old_schema and not case.target.placeholder:
        yield Problem(
            "placeholder",
            "error",
            "load",
            "V1 reads media_placeholder_token_id, which a config of the new schema lacks",
            text=("has no attribute 'media_placeholder_token_id'",),
            remedy=Remedy("config", "add media_placeholder_token_id to the target's config.json"),
            topic="kimi-config",
        )


def _last_state(case: Case) -> Iterator[Problem]:
    """A drafter that takes the last hidden state alone, where the release does not see it."""
    drafter = case.drafter
    if drafter.uses_aux or case.release.patched:
        return
    seen = case.read.eagle_config.get("use_aux_hidden_state") is not None
    if not seen:
        why = "this release looks for use_aux_hidden_state in eagle_config only: fc stays as made"
        yield Problem("aux-states", "wrong-result", "never", why, topic="mla-drafter")
    elif drafter.kind == "mla":
        yield Problem(
            "aux-states",
            "error",
            "first-step",
            "this release's class has an fc for three states whatever use_aux_hidden_state says",
            text=("shapes cannot be multiplied",),
            on_cpu=("is invalid for input of size",),
            remedy=_PATCH,
            topic="mla-drafter",
        )


def _embeddings(case: Case) -> Iterator[Problem]:
    drafter, target = case.drafter, case.target
    if drafter.tensors and not drafter.own_embeddings and drafter.hidden != target.hidden:
        yield Problem(
            "hidden-sizes",
            "error",
            "first-step",
            f"it has no embeddings of its own, and the target's {target.hidden} values are not "
            f"its {drafter.hidden}",
        )


def _first_step(case: Case) -> Iterator[Problem]:
    drafter, release, target = case.drafter, case.release, case.target
    checked = release.checks and case.others is None and case.taken != target.default_layers
    if not drafter.uses_aux or checked:
        return
    if 0 in case.taken and not release.captures_first:
        yield Problem(
            "layer-ids",
            "error",
            "first-step",
            "id 0 is the embeddings, to which this release adds what is not there yet",
            text=("unsupported operand type(s) for +: 'Tensor' and 'NoneType'",),
            remedy=_PATCH,
            topic="aux-layers",
        )
    got = len(case.captured) * target.hidden
    if got != case.states * case.read.state_size:
        yield Problem(
            "aux-states",
            "error",
            "first-step",
            f"{len(case.captured)} states of {target.hidden} values come, and fc takes "
            f"{case.states} of {case.read.state_size}",
            text=("shapes cannot be multiplied",),
            on_cpu=("is invalid for input of size",),
            topic="aux-layers",
        )


def _wrong_states(case: Case) -> Iterator[Problem]:
    wanted, got = case.believed, case.captured
    if not case.drafter.uses_aux or wanted is None or wanted == got:
        return
    release = case.release
    why = f"it was trained on {list(wanted)} and gets {list(got)}"
    remedy: Remedy | None = Remedy("config", f"name {list(wanted)} where the release looks")
    if release.options and case.outputs_of_default and case.drafter.numbering is None:
        why = (
            f"its ids are the default layers {list(case.target.default_layers)} counted by their "
            f"outputs, as SGLang and SpecForge count; this release takes {list(got)}"
        )
        remedy = Remedy("option", option(**{NUMBERING: OUTPUT}))
    elif case.others is not None:
        place = next(place for place, _ in case.read.other_ids())
        why = (
            f"it names no layers as EAGLE-3 drafters do, and this release takes {list(got)} by its "
            f"{place}, as drafters of another method name and count them"
        )
        remedy = Remedy("config", f"name its layers as {IDS} in its config.json")
    elif case.ignored() and case.read_ids is None:
        where = " and ".join(case.ignored())
        beside = " beside transformer_layer_config" * case.drafter.speculators
        why += f": {release.runner} of this release does not look into {where}{beside}"
        if release.version.release >= (0, 18):
            told = f'"{IDS}": {list(wanted)}'
            if len(wanted) != DEFAULT_STATES:  # ids at the top do not widen fc
                told += f' and "num_aux_hidden_states": {len(wanted)}'
            remedy = Remedy("config", f"put {told} at the top of its config.json")
    elif sorted(wanted) == sorted(got):
        why += ": states come in ascending order"
        remedy = None
    yield Problem("layer-ids", "wrong-result", "never", why, remedy=remedy, topic="aux-layers")


def _norms(case: Case) -> Iterator[Problem]:
    """Options that the class has set otherwise than the config says."""
    for name in NORMS:
        has = case.release.norm(case.read, name)
        if case.drafter.means(name) == has or case.drafter.contradicts(name):
            continue
        why, remedy = _of_norm(case, name)
        yield Problem("norms", "wrong-result", "never", why, remedy=remedy, topic="mla-drafter")


def _of_norm(case: Case, name: str) -> tuple[str, Remedy]:
    drafter, carried = case.drafter, case.release.carried
    if any(isinstance(value, str) for value in drafter.places_of(name).values()):
        told = Remedy("config", f"write {name} as true or false in its config.json")
        return f"its {name} is a text, which counts as true", told
    if name not in case.release.norms(drafter):
        return f"this release's class does not know {name}", _PATCH
    if not drafter.speculators:
        told = Remedy("config", f"put {name} at the top of its config.json")
        return f"this release does not look for {name} in eagle_config", told
    where = "beside" if name in {**carried.always, **dict.fromkeys(carried.named)} else "inside"
    told = Remedy("config", f"put {name} {where} transformer_layer_config in its config.json")
    return f"this release takes {name} from {where} transformer_layer_config alone", told
