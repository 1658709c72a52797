"""What each release, and each revision of a series, writes into a config in speculators' format."""

from __future__ import annotations

from packaging.version import Version

from vpatch.preflight.mends import Mends
from vpatch.preflight.speculators import (
    FIRST,
    IDS,
    IN_PARTS,
    KEYS,
    NORMS,
    NUMBERING,
    PEAGLE_KEYS,
    Carried,
)

_BARE = Carried()
_WITH_NORMS = Carried({**_BARE.always, **dict.fromkeys(NORMS, False)})
_RELEASES = (
    ("0.15", _BARE),
    ("0.19", Carried({**_BARE.always, "norm_before_fc": False})),
    ("0.25", _WITH_NORMS),
)
_TYPES = (
    ("0.15", "eagle3"),
    ("0.20", "dflash"),
    ("0.22", "peagle"),
    ("0.25", "dspark"),
    ("0.29", "dflash2"),
)
_MORE = (*_BARE.named, "use_aux_hidden_state", NUMBERING)
_PATCHED_FIRST = Carried(_BARE.always, (*_MORE, *NORMS))
_PATCHED = Carried(_WITH_NORMS.always, _MORE)
_BOTH = Carried({}, (), KEYS)
_PEAGLE = Carried({"draft_vocab_size": None, FIRST: False, "norm_before_fc": False})
_PATCHED_PEAGLE = Carried(_PEAGLE.always, ("target_hidden_size", IDS, NUMBERING))
_PEAGLE_IN_PARTS = Carried({}, (), PEAGLE_KEYS, parts=True, first=False)


def types_of(version: Version) -> tuple[str, ...]:
    """The speculators_model_type that a release has."""
    return tuple(name for since, name in _TYPES if Version(since) <= version)


def of_eagle3(version: Version, mends: Mends | None) -> Carried:
    """What a release makes of EAGLE-3's; mends None: the release as it is."""
    if mends is None:
        return [carried for since, carried in _RELEASES if Version(since) <= version][-1]
    if mends.speculators:
        return IN_PARTS if mends.parts else _BOTH
    return _PATCHED if version >= Version("0.26") else _PATCHED_FIRST


def of_peagle(mends: Mends | None) -> Carried:
    """What a release makes of P-EAGLE's; mends None: the release as it is."""
    if mends is None:
        return _PEAGLE
    return _PEAGLE_IN_PARTS if mends.peagle else _PATCHED_PEAGLE
