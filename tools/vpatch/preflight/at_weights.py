"""What a drafter's weights are refused for, or do not hold, once its class is there."""

from __future__ import annotations

from collections.abc import Iterator

from vpatch.preflight import contents
from vpatch.preflight.case import Case
from vpatch.preflight.verdict import Problem, Remedy
from vpatch.preflight.weights import TABLES, layout, misshapen, missing, unknown

_PATCH = Remedy("release", "the patched release")
_LATER = Remedy("release", "a later revision of this release's series")
_NAMED = 3
_NORMS = {"norm_before_fc": "input_norm", "fc_norm": "fc_norm"}


def problems(case: Case) -> Iterator[Problem]:
    """In the order of loading; then what is seen once all of it is loaded, or never."""
    yield from _rows_of_table(case)
    shapes = misshapen(case.built)
    nowhere = [name for name in unknown(case.built) if not _passed_over(case, name)]
    for own in case.drafter.tensors.values():
        if own.name in shapes:
            yield _shape(layout(own.name), own.shape, shapes[own.name])
        elif own.name in nowhere[:1]:
            yield _no_place(case, own.name)
    yield from contents.mistyped(case)
    yield from _lacking(case)
    yield from _biases(case)


def _passed_over(case: Case, name: str) -> bool:
    """What this release's loader leaves out without a word."""
    if layout(name) == "d2t":
        return case.release.mends.tables
    return name.endswith(".bias") and case.release.loader == "AutoWeightsLoader"


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


def _no_place(case: Case, found: str) -> Problem:
    if layout(found) == "d2t":
        return _table(case)
    own = any(
        found.startswith(module) and case.drafter.means(name) for name, module in _NORMS.items()
    )
    module = found.split(".", maxsplit=1)[0]
    mla_of_ours = case.drafter.kind == "mla" and case.release.version.release < (0, 18)
    text = (f"There is no module or parameter named '{module}'",)
    if case.release.loader == "KeyError":
        text = (
            ("The drafter has no parameter for weight",)
            if mla_of_ours
            else (f"KeyError: '{found}'",)
        )
    return Problem(
        "norms" if own else "weights",
        "error",
        "load",
        f"this release's class has no place for {found}",
        text=text,
        remedy=_PATCH if own else None,
        topic="mla-drafter" if own else None,
    )


def _table(case: Case) -> Problem:
    """A d2t where the draft vocabulary is the target's."""
    said = case.drafter.draft_vocab != case.read.draft_vocab
    remedy: Remedy = _LATER if case.release.patched else _PATCH
    if said:
        remedy = Remedy("config", "put draft_vocab_size beside transformer_layer_config")
    elif case.drafter.draft_vocab != _rows(case):
        remedy = Remedy("config", "correct draft_vocab_size in its config.json")
    return Problem(
        "vocabularies",
        "error",
        "load",
        "this release does not see draft_vocab_size inside transformer_layer_config, and has no "
        "place for d2t without one"
        if said
        else "it drafts from the whole vocabulary, with which this release has no place for d2t",
        text=("There is no module or parameter named 'draft_id_to_target_id'",),
        remedy=remedy,
        topic="mla-drafter",
    )


def _rows_of_table(case: Case) -> Iterator[Problem]:
    """A d2t for another draft vocabulary, which later revisions look at first."""
    table, size = case.drafter.weight("d2t"), case.read.draft_vocab
    if not case.release.mends.rows or table is None or table.shape == (size,):
        return
    yield Problem(
        "vocabularies",
        "error",
        "load",
        f"its d2t is {list(table.shape)}, and it drafts from {size} tokens by its config",
        text=(
            f"The EAGLE-3 drafter's checkpoint has a d2t of {list(table.shape)}, but its "
            f"draft_vocab_size is {size}.",
        ),
        remedy=Remedy("config", "correct draft_vocab_size in its config.json"),
        topic="mla-drafter",
    )


def _rows(case: Case) -> int:
    """How many tokens the checkpoint's d2t has."""
    table = case.drafter.weight("d2t")
    return table.shape[0] if table is not None and table.shape else 0


def _lacking(case: Case) -> Iterator[Problem]:
    lacking = missing(case.built)
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


def _biases(case: Case) -> Iterator[Problem]:
    """Those without a place, which this release's loader passes over."""
    found = [name for name in unknown(case.built) if name.endswith(".bias")]
    if not found or not _passed_over(case, found[0]):
        return
    whole = case.release.whole
    yield Problem(
        "weights",
        "error" if whole else "wrong-result",
        "load" if whole else "never",
        f"its checkpoint has {found[0]}, which this release's class does not apply; of zeros it "
        "does no harm, which its header does not tell",
        text=("The EAGLE-3 drafter's checkpoint has biases",) if whole else (),
    )
