"""What the series' one reader of a drafter's layers and options refuses at the config."""

from __future__ import annotations

from collections.abc import Iterator

from vpatch.preflight.case import NUMBERINGS, OUTPUT, Case
from vpatch.preflight.drafter import FLAGS, NUM_STATES
from vpatch.preflight.headers import Tensor
from vpatch.preflight.speculators import IDS, NUMBERING
from vpatch.preflight.verdict import Problem, Remedy

_LATER = Remedy("release", "a later revision of this release's series")
_UNPACKED = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2")
# Those that the first revisions read in both places.
_FIRST_FLAGS = ("norm_before_fc", "use_aux_hidden_state")


def problems(case: Case) -> Iterator[Problem]:
    """Every refusal that applies, in the order of the reader."""
    drafter, target = case.read, case.target
    for name in FLAGS if case.release.mends.flags else _FIRST_FLAGS:
        yield from _flag(case, name)
    if not drafter.uses_aux:
        if drafter.hidden != target.hidden:
            yield _refused("hidden-sizes", "its use_aux_hidden_state is false")
        return
    if case.release.mends.sizes and drafter.state_size != target.hidden:
        said = f"its config is for a target with hidden states of {drafter.state_size} values"
        yield _refused("hidden-sizes", said)
    problem = _written(case) or _other_names(case) or _impossible(case) or _width(case)
    if problem is not None:
        yield problem


def _flag(case: Case, name: str) -> Iterator[Problem]:
    drafter = case.read
    if case.release.mends.flags:
        for place, value in drafter.places_of(name).items():
            if value not in (True, False):
                yield _refused(
                    "config", f"{place} in the drafter's config has to be true or false, not"
                )
    if drafter.contradicts(name):
        yield _refused("config", f"The drafter's config contradicts itself: {name} is")


def _written(case: Case) -> Problem | None:
    drafter = case.read
    ids = {} if case.options.get(IDS) else drafter.ids
    for place, value in ids.items():
        if not isinstance(value, list) or any(type(each) is not int for each in value):
            return _refused("layer-ids", f"{_key(place)} in the drafter's config has to be a list")
    if len({tuple(value) for value in ids.values()}) > 1:
        return _refused("layer-ids", "The drafter's config names two sets of aux layers")
    stated = (drafter.config.get(NUMBERING), drafter.eagle_config.get(NUMBERING))
    numberings = [value for value in stated if value is not None]
    if any(value not in NUMBERINGS for value in numberings):
        return _refused("numbering", f"{NUMBERING} in the drafter's config has to be one of")
    if len(set(numberings)) > 1:
        return _refused("numbering", f"The drafter's config has two values of {NUMBERING}")
    unsaid = case.options.get(IDS) and not case.options.get(NUMBERING)
    if unsaid and drafter.numbering == OUTPUT:
        return _refused("numbering", "its config counts layers by their outputs", "Set")
    return None


def _key(place: str) -> str:
    return {"top-level": IDS, "eagle_config": f"eagle_config.{IDS}"}.get(place, place)


def _other_names(case: Case) -> Problem | None:
    place = next((place for place, _ in case.read.other_ids()), None)
    if place is None or case.read_ids is not None or not case.release.mends.names:
        return None
    said = f"its config names layers as {place}"
    return _refused("layer-ids", said, "which is how drafters of another method do")


def _impossible(case: Case) -> Problem | None:
    ids, layers = case.checked, case.target.layers
    if not case.release.checks_defaults and ids == case.target.default_layers:
        return None
    counted = case.options.get(NUMBERING) or case.read.numbering
    shift = int(counted == OUTPUT and case.read_ids is not None)
    shown = str([each - shift for each in ids])
    outside = [each - shift for each in ids if not 0 <= each <= layers]
    if outside:
        return _refused("layer-ids", shown, f"hold {outside}, but the target has {layers} layers")
    if len(set(ids)) != len(ids):
        return _refused("layer-ids", shown, "name a layer twice")
    if list(ids) != sorted(ids):
        return _refused("layer-ids", shown, "are not ascending")
    return None


def _width(case: Case) -> Problem | None:
    ids, drafter, hidden = case.checked, case.read, case.target.hidden
    for name in NUM_STATES:
        declared = drafter.config.get(name)
        if case.release.mends.integers and type(declared) not in (int, type(None)):
            said = f"{name} in the drafter's config has to be an integer, not {declared!r}."
            return _refused("aux-states", said)
        if declared is not None and declared != len(ids):
            return _refused("aux-states", f"its {name} is {declared}")
    fc, files = drafter.weight("fc.weight"), case.release.mends.files
    beside = None
    if not files:
        beside = next((each for each in drafter.beside if each.fc or not each.readable), None)
    if beside is not None and not beside.readable:
        return _of_no_drafter(beside.name, "is not a safetensors file")
    if beside is not None:
        fc = beside.fc
    # Without that mend it has no file of a hub's repository: the loader is who finds it.
    known = (drafter.local or files) and fc is not None and fc.shape and not _packed(case, fc)
    if known and fc is not None and fc.shape[-1] != len(ids) * hidden:
        said = f"{len(ids)} x {hidden} = {len(ids) * hidden} values a token"
        takes = f"but its fc takes {fc.shape[-1]}"
        if beside is not None:
            return _of_no_drafter(beside.name, said, takes)
        return _refused("aux-states", said, takes)
    return None


def _packed(case: Case, fc: Tensor) -> bool:
    """Whether an element may hold several values, as the revision sees it."""
    return fc.dtype not in _UNPACKED if case.release.mends.integers else fc.dtype == "U8"


def _of_no_drafter(name: str, *text: str) -> Problem:
    """A refusal for a file that is none of the checkpoint's."""
    return Problem(
        "aux-states",
        "error",
        "config",
        f"this revision looks for fc in {name} first, which the checkpoint's index does not name",
        text=text,
        remedy=_LATER,
        topic="aux-layers",
    )


def _refused(check: str, *text: str) -> Problem:
    return Problem(
        check,
        "error",
        "config",
        "its config cannot be what it was trained with: " + ", ".join(text),
        text=text,
        remedy=Remedy("config", "correct its config.json, or name other layers with the option"),
        topic="aux-layers",
    )
