"""How each release of vLLM reads a drafter, as it is and with its series.

Tables, each line with its reason; a line holds from its release on, until a later one. Read from
the sources of v0.15.0 - v0.33.0 where docs/defects.md and the series come from; what an engine did
with them is in docs/preflight.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from packaging.version import Version

from vpatch.errors import UsageError
from vpatch.preflight import carried, speculators
from vpatch.preflight.drafter import DEFAULT_STATES, NORMS, Drafter, Place
from vpatch.preflight.mends import NONE, Mends
from vpatch.preflight.speculators import Carried

Runner = Literal["v1", "v2"]
Value = TypeVar("Value")
Table = Sequence[tuple[str, Value]]
OLDEST, NEWEST = Version("0.15.0"), Version("0.33.0")
PATCHED = tuple(map(Version, ("0.16.0", "0.17.1", "0.26.0", "0.32.0", "0.33.0")))
"""The releases whose series these tables know."""

_ALL: tuple[Place, ...] = ("top-level", "eagle_config", "eagle_config.layer_ids")
Where = tuple[Literal["top", "eagle_config"], ...]
Others = Sequence[tuple[str, int]]
Norms = Mapping[str, Where]
_TOP: Where = ("top",)
_BOTH: Where = ("eagle_config", "top")
_MRV2: Others = (
    ("dflash_config.target_layer_ids", 1),
    ("dspark_target_layer_ids", 1),
    ("target_layer_ids", 1),
    ("dflash_config.layer_ids", 0),
)

_DEFAULT_RUNNER: Table[Runner] = (
    ("0.15", "v1"),
    ("0.29", "v2"),  # for every model
)
_KIMI_ACCEPTED: Table[bool] = (
    ("0.15", False),  # a list of target types that Kimi is not on
    ("0.18", True),
)
_MLA_KNOWN: Table[bool] = (
    ("0.15", False),  # no class, and no config class for model_type kimi_k2
    ("0.18", True),
)
_PLACES_V1: Table[tuple[Place, ...]] = (
    ("0.15", ("top-level",)),
    ("0.22", ("top-level", "eagle_config")),
)
_PLACES_V2: Table[tuple[Place, ...]] = (
    ("0.15", ("top-level",)),
    ("0.27", ("top-level", "eagle_config.layer_ids")),
)
_FC_FOLLOWS_IDS: Table[bool] = (
    ("0.15", False),  # three states, whatever the config says
    ("0.22", True),  # num_aux_hidden_states, or as many as are in eagle_config
)
_LAST_LAYER: Table[bool] = (
    ("0.15", False),  # an id that is the number of layers is never met
    ("0.25", True),
)
# Layers under other methods' names that are taken for EAGLE-3's, with what is added to each.
_OTHERS_V1: Table[Others] = (
    ("0.15", ()),
    ("0.20", (("dflash_config.target_layer_ids", 0),)),
    ("0.22", (("dflash_config.target_layer_ids", 1),)),
)
_OTHERS_V2: Table[Others] = (
    ("0.15", ()),
    ("0.24", _MRV2[:1]),
    ("0.25", _MRV2[:3]),
    ("0.27", _MRV2),
)
_LLAMA_NORMS: Table[Norms] = (
    ("0.15", {"norm_before_residual": _TOP}),
    ("0.18", {"norm_before_residual": _TOP, "norm_before_fc": _TOP}),
    ("0.22", {**dict.fromkeys(NORMS, _TOP), "norm_before_fc": _BOTH}),
)
_MLA_NORMS: Table[Norms] = (
    ("0.15", {"norm_before_residual": _TOP}),
    ("0.22", dict.fromkeys(("norm_before_residual", "fc_norm", "norm_output"), _TOP)),
)
_MLA_NEEDS_YARN: Table[bool] = (
    ("0.15", False),
    ("0.18", True),  # every rope_scaling is taken for YaRN, transformers' default one too
    ("0.28", False),
)
_SPECULATORS: Table[Literal["as llama", "by type"]] = (
    ("0.15", "as llama"),  # whatever its layer is
    ("0.24", "by type"),
)
_D2T_ALWAYS: Table[bool] = (
    ("0.15", True),
    ("0.30", False),  # none where the draft vocabulary is as large as the target's
)
_DEFAULT_METHOD: Table[Literal["none", "draft_model"]] = (
    ("0.15", "none"),
    ("0.17", "draft_model"),
)
_LOADER_NAMES: Table[Literal["KeyError", "AutoWeightsLoader"]] = (
    ("0.15", "KeyError"),
    ("0.26", "AutoWeightsLoader"),
)
_UNKNOWN_SCHEMA: Table[bool] = (
    ("0.15", False),
    ("0.32", True),  # Kimi's config is transformers' own: no media_placeholder_token_id
)
_PIPELINE: Table[Literal["refused", "lost"]] = (
    ("0.15", "refused"),  # for the drafter's class, which has no pipeline
    ("0.30", "lost"),  # V1 goes on without the states; MRV2 refuses
)


@dataclass(frozen=True)
class ReleaseFacts:
    """A release, patched or as it is, with one of its model runners.

    Attributes:
        accepts_kimi: Whether the config lets Kimi be a target of EAGLE-3.
        knows_mla: Whether it has drafters with MLA.
        mla_speculators: Whether those in speculators' format too.
        speculators: What it takes a layer in that format for.
        speculators_types: The speculators_model_type that it has.
        places: Where the runner reads ids; the first one counts.
        fc_follows_ids: Whether `fc` is as wide as the ids say.
        checks: Whether impossible ids are refused at the config.
        numbering: Whether the config's numbering is read.
        options: Whether --speculative-config takes ids and numbering.
        captures_first, captures_last: Whether id 0, and the number of layers, give a state.
        llama_norms, mla_norms: Where drafters of a kind look for options of norms; the first place
            that has one counts.
        others: Where it looks for layers behind the ids' own places, and what it adds to them.
        hides: Whether an eagle_config keeps it from looking there.
        carried, carried_of_peagle: What it makes of speculators' format.
        d2t_always: Whether there is a place for d2t with every vocabulary.
        method: What a drafter is whose path does not say it, where --speculative-config does not.
        whole: Whether a checkpoint that lacks weights is refused.
        mends: What the series' later revisions mend, of a patched release.
    """

    version: Version
    patched: bool
    runner: Runner
    accepts_kimi: bool
    knows_mla: bool
    mla_speculators: bool
    speculators: Literal["as llama", "by type"]
    speculators_types: tuple[str, ...]
    keeps_deepseek_v3: bool
    places: tuple[Place, ...]
    fc_follows_ids: bool
    checks: bool
    checks_defaults: bool
    numbering: bool
    options: bool
    captures_first: bool
    captures_last: bool
    llama_norms: Norms
    mla_norms: Norms
    others: Others
    hides: bool
    carried: Carried
    carried_of_peagle: Carried
    d2t_always: bool
    method: Literal["none", "draft_model"]
    mla_needs_yarn: bool
    whole: bool
    loader: Literal["KeyError", "AutoWeightsLoader"]
    needs_old_schema: bool
    pipeline: Literal["refused", "lost"]
    mends: Mends

    @property
    def name(self) -> str:
        """As a person calls it."""
        return f"v{self.version}, {'patched' if self.patched else 'as it is'}, {self.runner}"

    def norms(self, drafter: Drafter) -> Norms:
        """The options of norms that this drafter's class knows, and where it looks for them."""
        return self.mla_norms if drafter.kind == "mla" else self.llama_norms

    def norm(self, drafter: Drafter, name: str) -> bool:
        """Whether this drafter's class has one of its options set."""
        places = {"top": drafter.config, "eagle_config": drafter.eagle_config}
        looked = (places[place].get(name) for place in self.norms(drafter).get(name, ()))
        return bool(next((value for value in looked if value is not None), False))

    def reads(self, drafter: Drafter) -> Drafter:
        """The drafter with the config that its class gets."""
        if not drafter.speculators:
            return drafter
        return drafter.with_config(speculators.put_together(drafter.written, self.carries(drafter)))

    def carries(self, drafter: Drafter) -> Carried:
        """What it makes of this drafter's config in speculators' format."""
        peagle = speculators.is_peagle(drafter.written)
        return self.carried_of_peagle if peagle else self.carried

    def states(self, drafter: Drafter) -> int:
        """How many states the drafter's `fc` is built for."""
        declared = drafter.config.get("num_aux_hidden_states")
        if not self.fc_follows_ids:
            return DEFAULT_STATES
        if isinstance(declared, int) and declared > 0:
            return int(declared)
        sized = _ALL if self.patched else ("eagle_config",)
        ids = next(
            (drafter.ids[place] for place in _ALL if place in drafter.ids and place in sized), None
        )
        return len(ids) if isinstance(ids, (list, str)) else DEFAULT_STATES


def facts_of(
    version: Version, *, patched: bool, runner: Runner | None = None, mends: Mends = NONE
) -> ReleaseFacts:
    """The facts of a release.

    Args:
        version: Of vLLM; a local part is of no account.
        patched: With its series.
        runner: The model runner; None: the one that it takes for Kimi on a GPU.
        mends: What its series has of later revisions.

    Raises:
        UsageError: The release is older than Kimi-K2.5, or its series is not known here.
    """
    plain = Version(".".join(map(str, version.release)))
    if plain < OLDEST:
        raise UsageError(
            f"v{plain} has no Kimi-K2.5: v{OLDEST} is the first release that has it",
            hint="`vpatch releases` lists those that have.",
            code="release-too-old",
        )
    if patched and plain not in PATCHED:
        raise UsageError(
            f"what the series of v{plain} does is not known to preflight",
            hint="Take --unpatched for the release as it is.",
            code="series-unknown",
        )
    own: Runner = _at(plain, _DEFAULT_RUNNER)
    return _facts(plain, runner or own, mends if patched else None)


def _facts(version: Version, runner: Runner, mends: Mends | None) -> ReleaseFacts:
    patched = mends is not None
    of_runner, others = (_PLACES_V1, _OTHERS_V1) if runner == "v1" else (_PLACES_V2, _OTHERS_V2)
    return ReleaseFacts(
        version=version,
        patched=patched,
        runner=runner,
        accepts_kimi=patched or _at(version, _KIMI_ACCEPTED),
        knows_mla=patched or _at(version, _MLA_KNOWN),
        mla_speculators=patched,
        speculators="by type" if patched else _at(version, _SPECULATORS),
        speculators_types=carried.types_of(version),
        keeps_deepseek_v3=patched,
        places=_ALL if patched else _at(version, of_runner),
        fc_follows_ids=patched or _at(version, _FC_FOLLOWS_IDS),
        checks=patched,
        # Later series leave a target too shallow for its default layers to the run.
        checks_defaults=patched and version < Version("0.26"),
        numbering=patched,
        options=patched,
        captures_first=patched,
        captures_last=patched or _at(version, _LAST_LAYER),
        llama_norms=_norms(mends) if mends else _at(version, _LLAMA_NORMS),
        mla_norms=_norms(mends) if mends else _at(version, _MLA_NORMS),
        others=_at(version, others),
        hides=not patched and runner == "v1" and version >= Version("0.22"),
        carried=carried.of_eagle3(version, mends),
        carried_of_peagle=carried.of_peagle(mends),
        d2t_always=_at(version, _D2T_ALWAYS),
        method=_at(version, _DEFAULT_METHOD),
        mla_needs_yarn=not patched and _at(version, _MLA_NEEDS_YARN),
        # The series of v0.16 and v0.17 leave it to the loader, which does not look.
        whole=patched and version >= Version("0.26"),
        loader=_at(version, _LOADER_NAMES),
        needs_old_schema=not patched and runner == "v1" and _at(version, _UNKNOWN_SCHEMA),
        pipeline="refused" if patched or runner == "v2" else _at(version, _PIPELINE),
        mends=mends or NONE,
    )


def _norms(mends: Mends) -> Norms:
    return {**dict.fromkeys(NORMS, _BOTH if mends.flags else _TOP), "norm_before_fc": _BOTH}


def _at(version: Version, table: Table[Value]) -> Value:
    return [value for since, value in table if Version(since) <= version][-1]
