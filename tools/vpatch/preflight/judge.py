"""From a case to its verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from vpatch.preflight import at_config, at_load, method
from vpatch.preflight.case import Case
from vpatch.preflight.drafter import DEFAULT_STATES, FLAGS, NORMS, states_of
from vpatch.preflight.memory import STEP_TOKENS, memory_of, told
from vpatch.preflight.speculators import Carried, contradictions, layer_of
from vpatch.preflight.target import KNOWN_TEXT_MODELS
from vpatch.preflight.verdict import Fact, Verdict


def judge(case: Case) -> Verdict:
    """What will happen."""
    # Behind another method wait the problems of this one.
    stages = (method, at_config, at_load)
    found = tuple(chain.from_iterable(stage.problems(case) for stage in stages))
    return Verdict(found, tuple(_facts(case)), tuple(_notes(case)), _unknown(case))


def _unknown(case: Case) -> tuple[str, ...]:
    """What only weights tell, of a drafter that has none."""
    drafter = case.drafter
    if drafter.weighed:
        return ()
    reduced = drafter.draft_vocab != drafter.vocab
    return (
        *(["the shape of its fc"] * drafter.uses_aux),
        "whether it has a d2t" + " for its reduced vocabulary" * reduced,
        "whether it has embeddings and an lm_head of its own",
        "whether every weight has a place, and every place a weight",
    )


def _facts(case: Case) -> Iterator[Fact]:
    target, drafter = case.target, case.drafter
    yield Fact("release", case.release.name)
    yield Fact(
        "target", f"{target.model_type or 'no model_type'}, {target.layers} layers of "
        f"{target.hidden} values, vocabulary {target.vocab}"
    )  # fmt: skip
    form = ", speculators' format" if drafter.speculators else ""
    kind = {"llama": "Llama", "mla": "MLA", "other": "unknown"}[drafter.kind]
    yield Fact("architecture", f"{drafter.architecture or 'none'} ({kind}{form})")
    yield from _layers(case)
    yield Fact("hidden sizes", _sizes(case))
    yield Fact("vocabularies", _vocabularies(case))
    yield Fact("tokenizer", _tokenizer(case))
    yield Fact("norms", _norms(case))
    yield Fact("quantisation", drafter.quantization or f"none, {drafter.dtype}")
    yield Fact("tables", _tables(case))
    yield Fact("memory", _memory(case))


def _layers(case: Case) -> Iterator[Fact]:
    drafter = case.drafter
    if not drafter.uses_aux:
        yield Fact("layer ids", "none: it takes the target's last hidden state")
        return
    written = "; ".join(f"{place}: {value}" for place, value in drafter.ids.items())
    yield Fact("ids as written", f"{written or 'none'}; numbering {drafter.numbering or 'unsaid'}")
    source = "its defaults" if case.read_ids is None else "these"
    if case.others is not None:
        source = "by another method's names"
    yield Fact(
        "ids as taken",
        f"{_list(case.taken)} ({source}: inputs of layers); SGLang and SpecForge call them "
        f"{_list([each - 1 for each in case.taken])} (outputs)",
    )
    fc = drafter.weight("fc.weight")
    none = "no fc in its checkpoint" if drafter.weighed else "its checkpoint's is not known"
    shape = none if fc is None else f"its checkpoint's is {list(fc.shape)}"
    states = states_of(drafter, case.target.hidden)
    of = "" if fc is None or states is None else f": {states} of the target's states"
    yield Fact(
        "aux states",
        f"{len(case.captured)} come, fc is built for {case.states}, {shape}{of}",
    )


def _list(ids: Sequence[int]) -> str:
    return "[" + ", ".join(map(str, ids)) + "]"


def _sizes(case: Case) -> str:
    drafter, target = case.drafter, case.target
    same = "the target's" if drafter.hidden == target.hidden else f"the target has {target.hidden}"
    own = f", target_hidden_size {drafter.state_size}" * (drafter.state_size != drafter.hidden)
    return f"{drafter.hidden}{own}: {same}"


def _vocabularies(case: Case) -> str:
    drafter, target = case.drafter, case.target
    whole = "the target's" if drafter.vocab == target.vocab else f"the target has {target.vocab}"
    if drafter.draft_vocab == drafter.vocab:
        return f"{drafter.vocab}: {whole}; drafts from all of it"
    table = drafter.weight("d2t")
    none = "no d2t" if drafter.weighed else "whether it has a d2t is not known"
    mapped = none if table is None else f"d2t {list(table.shape)} (its values are not read)"
    return f"{drafter.vocab}: {whole}; drafts from {drafter.draft_vocab}, {mapped}"


def _tables_unread(case: Case) -> Iterator[str]:
    """What d2t holds is no header's to say."""
    if case.drafter.weight("d2t") is None:
        return
    if case.release.mends.tables and not case.built.table:
        yield (
            "it drafts from the whole vocabulary and has a d2t, whose values are not read here: "
            "zeros are dropped, any other is refused while it is loaded"
        )


def _tokenizer(case: Case) -> str:
    own, target = case.drafter, case.target
    both = own.tokenizer.keys() & target.tokenizer.keys()
    apart = sorted(name for name in both if own.tokenizer[name] != target.tokenizer[name])
    if apart:
        return f"{', '.join(apart)} is not the target's"
    if both:
        return f"{', '.join(sorted(both))} is the target's"
    named = own.special.keys() & target.special.keys()
    other = sorted(name for name in named if own.special[name] != target.special[name])
    if other:
        return ", ".join(
            f"{name} is {own.special[name]}, the target's {target.special[name]}" for name in other
        )
    if named:
        return f"{', '.join(sorted(named))} as the target's; it has no tokenizer to compare"
    return "it has none of its own: the target's is used"


def _norms(case: Case) -> str:
    drafter = case.drafter
    told_norms = [name for name in NORMS if drafter.means(name)]
    return ", ".join(told_norms) or "none of " + ", ".join(NORMS)


def _tables(case: Case) -> str:
    drafter = case.drafter
    if not drafter.tensors:
        return "not known: no headers were read"
    has = {"embed_tokens": drafter.own_embeddings, "lm_head": drafter.own_head}
    return ", ".join(f"{'own' if own else 'no'} {name}" for name, own in has.items())


def _memory(case: Case) -> str:
    found = memory_of(case)
    ranks = case.parallel.tensor
    where = f"each of {ranks} ranks" if ranks > 1 else "one rank"
    weights = told(found.weights) if case.drafter.weighed else "an unknown number"
    return (
        f"{weights} of weights, {told(found.cache)} of KV cache a token, "
        f"{told(found.buffers)} of buffers at {STEP_TOKENS} tokens a step; on {where}"
    )


def _notes(case: Case) -> Iterator[str]:
    drafter, target = case.drafter, case.target
    if target.model_type not in KNOWN_TEXT_MODELS:
        yield f"the target is no Kimi: what this release does with {target.model_type} is not known"
    if drafter.uses_aux and not drafter.ids:
        yield (
            f"it names no layers: it gets {_list(case.taken)}; whether it was trained on them, "
            "nothing here tells"
        )
        if place := next((place for place, _ in drafter.other_ids()), None):
            yield f"its config names layers as {place}, which is how drafters of another method do"
        if case.captured != case.taken:
            yield f"{_list(case.taken)} come in the order {_list(case.captured)}"
    unsaid = drafter.numbering is None and not case.outputs_of_default
    if drafter.uses_aux and drafter.ids and unsaid and case.taken[0] in (0, 1):
        yield (
            f"its first id is {case.taken[0]} and nothing says how it counts: if ids are outputs "
            f"of layers, as in SGLang, it needs {_list([each + 1 for each in case.taken])}"
        )
    yield from _of_flags(case)
    yield from _tables_unread(case)
    yield from _of_tokens(case)
    if drafter.quantization is not None:
        yield "it is quantised: its weights' names and shapes are not compared"
    if drafter.kind == "other":
        yield "its class is not known here: its weights are not compared"
    if drafter.uses_aux and states_of(drafter, target.hidden) is None and drafter.tensors:
        yield f"its fc is no whole number of states of {target.hidden} values"
    if len(case.captured) > DEFAULT_STATES and case.release.runner == "v2":
        yield f"{len(case.captured)} states a token: buffers grow with them"


def _of_flags(case: Case) -> Iterator[str]:
    """What stands in two places and differs, where nothing refuses it."""
    drafter, release = case.drafter, case.release
    found = [] if release.checks and release.mends.flags else list(FLAGS)
    said = [dict(drafter.places_of(name)) for name in found if drafter.contradicts(name)]
    if not release.checks and len(set(map(str, drafter.ids.values()))) > 1:
        said.append({str(place): value for place, value in drafter.ids.items()})
    if drafter.speculators and not release.carries(drafter).both:
        for name in contradictions(drafter.written, Carried()):
            inner = layer_of(drafter.written)[name]
            said.append({name: drafter.written[name], f"transformer_layer_config.{name}": inner})
    for places in said:
        shown = " and ".join(f"{place} {value}" for place, value in places.items())
        yield (
            f"its config contradicts itself: {shown}; which one it was trained with, nothing here "
            "tells"
        )


def _of_tokens(case: Case) -> Iterator[str]:
    drafter, target = case.drafter, case.target
    if "is not the target's" in _tokenizer(case) or ", the target's" in _tokenizer(case):
        yield f"tokenizer: {_tokenizer(case)}; it drafts in the target's tokens all the same"
    if drafter.vocab != target.vocab:
        yield (
            f"its vocab_size is {drafter.vocab} and the target's {target.vocab}: is it this "
            "target's drafter?"
        )
