"""What fails while a drafter is loaded, at its first step, or never."""

from __future__ import annotations

from collections.abc import Iterator

from vpatch.preflight import contents
from vpatch.preflight.case import OUTPUT, Case, option
from vpatch.preflight.drafter import DEFAULT_STATES, IDS, NUMBERING
from vpatch.preflight.verdict import Problem, Remedy
from vpatch.preflight.weights import TABLES, misshapen, missing, unknown

_PATCH = Remedy("release", "the patched release")
_NAMED = 3


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
    known = case.drafter.kind != "other" and case.drafter.quantization is None
    if known and case.drafter.tensors:
        yield from _weights(case)
    yield from _placeholder(case)
    yield from _last_state(case)
    yield from _embeddings(case)
    yield from contents.vocabularies(case)
    yield from _first_step(case)
    yield from _wrong_states(case)
    yield from _ignored_options(case)


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


def _weights(case: Case) -> Iterator[Problem]:
    drafter, states = case.drafter, case.states
    for name, shape in misshapen(drafter, states):
        own = drafter.weight(name)
        if own is not None:
            yield _shape(name, own.shape, shape)
    yield from contents.mistyped(case)
    yield from _unknown(case)
    lacking = missing(drafter, states)
    if not lacking:
        return
    named = ", ".join(lacking[:_NAMED]) + (", ..." if lacking[_NAMED:] else "")
    if case.release.whole:
        yield Problem(
            "weights",
            "error",
            "load",
            f"its checkpoint lacks {named}",
            text=("The EAGLE-3 drafter's checkpoint lacks", "would stay uninitialized"),
            topic="mla-drafter",
        )
    elif "lm_head.weight" in lacking:
        yield Problem(
            "tables",
            "wrong-result",
            "never",
            "its checkpoint lacks lm_head.weight: the first rows of the target's stand in, which "
            "are other tokens'",
            topic="mla-drafter",
        )
    else:
        yield Problem(
            "weights",
            "wrong-result",
            "never",
            f"its checkpoint lacks {named}, which stays as it was made",
            topic="mla-drafter",
        )


def _shape(name: str, own: tuple[int, ...], built: tuple[int, ...]) -> Problem:
    text: tuple[str, ...] = ()
    if name == "fc.weight":
        text = (
            f"Tried to load weights of size torch.Size({list(own)})to a parameter of size "
            f"torch.Size({list(built)})",
        )
    elif len(own) == 1:
        text = (f"weight (torch.Size({list(own)})) into parameter (torch.Size({list(built)}))",)
    check = {"fc.weight": "aux-states", "d2t": "vocabularies"}.get(
        name, "vocabularies" if name in TABLES else "hidden-sizes"
    )
    why = f"{name} is {list(own)} in its checkpoint, and its config makes it {list(built)}"
    return Problem(check, "error", "load", why, text=text, remedy=_of_shape(name))


def _of_shape(name: str) -> Remedy | None:
    if name != "fc.weight":
        return None
    return Remedy("config", "num_aux_hidden_states in its config.json says how many states it has")


def _unknown(case: Case) -> Iterator[Problem]:
    names = unknown(case.drafter, case.states)
    unheard = [name for name in ("norm_before_fc", "fc_norm") if _not_obeyed(case, name)]
    norms = {"norm_before_fc": "input_norm", "fc_norm": "fc_norm"}
    own = [
        name
        for name in case.drafter.tensors
        if any(name.startswith(norms[each]) for each in unheard)
    ]
    found = next(iter([*own, *names]), None)
    if found is None:
        return
    module = found.split(".")[0]
    mla_of_ours = case.drafter.kind == "mla" and case.release.version.release < (0, 18)
    text = (f"There is no module or parameter named '{module}'",)
    if case.release.loader == "KeyError":
        text = (
            ("The drafter has no parameter for weight",)
            if mla_of_ours
            else (f"KeyError: '{found}'",)
        )
    yield Problem(
        "norms" if own else "weights",
        "error",
        "load",
        f"this release's class has no place for {found}",
        text=text,
        remedy=_PATCH if own else None,
        topic="mla-drafter" if own else None,
    )


def _not_obeyed(case: Case, name: str) -> bool:
    return case.drafter.flag(name) and name not in case.release.norms(case.drafter)


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
    seen = drafter.eagle_config.get("use_aux_hidden_state") is not None
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
    checked = release.checks and case.taken != target.default_layers
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
    if got != case.states * drafter.state_size:
        yield Problem(
            "aux-states",
            "error",
            "first-step",
            f"{len(case.captured)} states of {target.hidden} values come, and fc takes "
            f"{case.states} of {drafter.state_size}",
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
    elif case.ignored() and case.read_ids is None:
        where = " and ".join(case.ignored())
        why += f": {release.runner} of this release does not look into {where}"
        if release.version.release >= (0, 18):
            told = f'"{IDS}": {list(wanted)}'
            if len(wanted) != DEFAULT_STATES:  # ids at the top do not widen fc
                told += f' and "num_aux_hidden_states": {len(wanted)}'
            remedy = Remedy("config", f"put {told} at the top of its config.json")
    elif sorted(wanted) == sorted(got):
        why += ": states come in ascending order"
        remedy = None
    yield Problem("layer-ids", "wrong-result", "never", why, remedy=remedy, topic="aux-layers")


def _ignored_options(case: Case) -> Iterator[Problem]:
    for name in ("norm_before_fc", "fc_norm", "norm_output"):
        if _not_obeyed(case, name):
            yield Problem(
                "norms",
                "wrong-result",
                "never",
                f"this release's class does not know {name}",
                remedy=_PATCH,
                topic="mla-drafter",
            )
