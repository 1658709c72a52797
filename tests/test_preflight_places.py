"""What releases make of a config that says things in two places, or under other names.

Read in the sources of each; what v0.32.0's engine did is in test_preflight_forms.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.version import Version

from preflight_lab import IDS, LLAMA, MLA, NUMBERING, TARGET, preflight, weights_of, write
from vpatch.errors import VpatchError
from vpatch.preflight.case import Case, Parallel
from vpatch.preflight.checkpoint import read_checkpoint
from vpatch.preflight.drafter import FLAGS, OTHER_NAMES, read_drafter
from vpatch.preflight.judge import judge
from vpatch.preflight.mends import ALL, NONE, Mends
from vpatch.preflight.releases import Runner, facts_of
from vpatch.preflight.target import read_target
from vpatch.preflight.verdict import Verdict

PATCHED = ("0.16.0", "0.17.1", "0.26.0", "0.32.0", "0.33.0")


def first(verdict: Verdict) -> tuple[str, str, str]:
    assert verdict.first is not None, verdict.facts
    return verdict.first.check, verdict.first.effect, verdict.first.when


def text(verdict: Verdict) -> str:
    return "" if verdict.first is None else verdict.first.said


# -- options of norms -----------------------------------------------------------------------------


@pytest.mark.parametrize("release", PATCHED)
@pytest.mark.parametrize("drafter", [LLAMA, MLA], ids=["llama", "mla"])
@pytest.mark.parametrize("name", ["norm_before_residual", "norm_output"])
def test_norm_inside_eagle_config(
    name: str, drafter: Mapping[str, Any], release: str, tmp_path: Path
) -> None:
    nested = {**drafter, "eagle_config": {IDS: [2, 20, 50], name: True}}
    verdict = preflight(tmp_path, nested, release, patched=True, runner="v1")
    assert first(verdict) == ("norms", "wrong-result", "never")
    assert verdict.first is not None
    assert "eagle_config" in verdict.first.why
    asked: dict[str, Any] = {"patched": True, "runner": "v1", "mends": ALL}
    assert preflight(tmp_path, nested, release, **asked).word == "works"
    if release >= "0.26":
        as_it_is = preflight(tmp_path, {**nested, IDS: [2, 20, 50]}, release, runner="v2")
        assert "norms" in [one.check for one in as_it_is.problems]


@pytest.mark.parametrize("release", PATCHED)
@pytest.mark.parametrize("name", FLAGS)
def test_a_text_is_refused(name: str, release: str, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"patched": True, "runner": "v1", "mends": ALL}
    for place in ({name: "false"}, {"eagle_config": {IDS: [2, 20, 50], name: "false"}}):
        verdict = preflight(tmp_path, {**LLAMA, **place}, release, **asked)
        assert first(verdict) == ("config", "error", "config")
        assert f"{name} in the drafter's config has to be true or false" in text(verdict)
    both = {**LLAMA, name: False, "eagle_config": {IDS: [2, 20, 50], name: True}}
    assert "contradicts itself" in text(preflight(tmp_path, both, release, **asked))
    number = {**LLAMA, name: 1 if name == "use_aux_hidden_state" else 0}
    assert preflight(tmp_path, number, release, **asked).word == "works"


def test_a_text_that_says_no_counts_as_true(tmp_path: Path) -> None:
    for name in ("norm_before_residual", "norm_output"):
        for value, effect in (("false", "wrong-result"), ("true", "works"), (False, "works")):
            config = {**LLAMA, IDS: [2, 20, 50], name: value}
            verdict = preflight(tmp_path, config, "0.32.0", runner="v1")
            assert verdict.as_given == effect


@pytest.mark.parametrize("patched", [False, True])
def test_what_differs_and_is_not_refused_is_said(patched: bool, tmp_path: Path) -> None:
    config = {
        **LLAMA,
        "norm_output": False,
        "eagle_config": {IDS: [2, 20, 50], "norm_output": True},
    }
    verdict = preflight(tmp_path, config, "0.32.0", runner="v1", patched=patched)
    assert verdict.word == "works"
    said = "contradicts itself: norm_output False and eagle_config.norm_output True"
    assert any(said in note for note in verdict.notes)


@pytest.mark.parametrize(
    ("release", "nested", "wanted"),
    [("0.18.0", False, "works"), ("0.18.0", True, "norms"), ("0.22.0", True, "works")],
)
def test_norm_before_fc_of_older_releases(
    release: str, nested: bool, wanted: str, tmp_path: Path
) -> None:
    flag = {"norm_before_fc": True}
    config = {**LLAMA, IDS: [2, 20, 50], **({"eagle_config": flag} if nested else flag)}
    weights = {**weights_of(LLAMA), "input_norm.weight": ("BF16", (192,))}
    verdict = preflight(tmp_path, config, release, weights=weights, runner="v1")
    if wanted == "works":
        assert verdict.word == "works", verdict.problems
    else:
        assert first(verdict) == ("norms", "error", "load")


# -- speculators' format --------------------------------------------------------------------------


def speculators(layer: Mapping[str, Any], **beside: Any) -> dict[str, Any]:
    inner = {key: value for key, value in layer.items() if key != "eagle_config"}
    return {
        "speculators_model_type": "eagle3",
        "architectures": ["Eagle3Speculator"],
        "transformer_layer_config": inner,
        "draft_vocab_size": layer.get("draft_vocab_size"),
        "norm_before_residual": True,
        IDS: [2, 20, 50],
        **beside,
    }


def told(
    folder: Path, config: Mapping[str, Any], release: str, weights: Any = None, **more: Any
) -> Verdict:
    return preflight(folder, config, release, weights=weights or weights_of(LLAMA), **more)


@pytest.mark.parametrize("release", PATCHED)
def test_a_norm_in_the_layers_config_is_overwritten(release: str, tmp_path: Path) -> None:
    config = speculators({**LLAMA, "norm_before_residual": False}, norm_before_residual=None)
    del config["norm_before_residual"]
    asked: dict[str, Any] = {"patched": True, "runner": "v1"}
    verdict = told(tmp_path, config, release, **asked)
    assert first(verdict) == ("norms", "wrong-result", "never")
    assert told(tmp_path, config, release, mends=ALL, **asked).word == "works"


@pytest.mark.parametrize("release", PATCHED)
def test_eagle_config_beside_the_layers_config(release: str, tmp_path: Path) -> None:
    config = speculators(LLAMA, eagle_config={IDS: [2, 20, 50]})
    del config[IDS]
    asked: dict[str, Any] = {"patched": True, "runner": "v1"}
    assert first(told(tmp_path, config, release, **asked)) == ("layer-ids", "wrong-result", "never")
    assert told(tmp_path, config, release, mends=ALL, **asked).word == "works"
    counted = speculators(LLAMA, eagle_config={IDS: [1, 19, 49], NUMBERING: "layer-output"})
    del counted[IDS]
    found = told(tmp_path, counted, release, mends=ALL, **asked)
    assert found.word == "works"
    assert any("[2, 20, 50]" in fact.said for fact in found.facts if fact.name == "ids as taken")


@pytest.mark.parametrize("release", PATCHED)
@pytest.mark.parametrize(
    ("name", "outer", "inner"),
    [
        ("draft_vocab_size", 384, 256),
        ("target_hidden_size", 64, 128),
        ("norm_before_residual", True, False),
        ("norm_output", True, False),
        (IDS, [2, 20, 50], [2, 30, 58]),
        ("eagle_config", {"layer_ids": [2, 20, 50]}, {"layer_ids": [2, 30, 58]}),
    ],
)
def test_two_values_are_refused(
    name: str, outer: Any, inner: Any, release: str, tmp_path: Path
) -> None:
    config = speculators(LLAMA, **{name: outer})
    config["transformer_layer_config"][name] = inner
    verdict = told(tmp_path, config, release, patched=True, runner="v1", mends=ALL)
    assert first(verdict) == ("speculators", "error", "config")
    shown = "layer_ids" if name == "eagle_config" else name
    assert f"contradicts itself: {shown} is ... in transformer_layer_config" in text(verdict)
    config["transformer_layer_config"][name] = outer
    alike = told(tmp_path, config, release, patched=True, runner="v1", mends=ALL)
    assert alike.word == "works", alike.problems


@pytest.mark.parametrize(
    ("release", "wanted"), [("0.22.0", "norms"), ("0.24.0", "norms"), ("0.25.0", "works")]
)
def test_when_a_norm_came_to_speculators_format(release: str, wanted: str, tmp_path: Path) -> None:
    normed = {**LLAMA, "fc_norm": True}
    config = speculators(LLAMA, fc_norm=True)
    verdict = told(tmp_path, config, release, weights_of(normed), runner="v1")
    assert verdict.word == "works" if wanted == "works" else first(verdict)[0] == "norms"


# -- names of other methods -----------------------------------------------------------------------

OTHER: Mapping[str, Mapping[str, Any]] = {
    "dflash_config.target_layer_ids": {"dflash_config": {"target_layer_ids": [1, 19, 49]}},
    "dflash_config.layer_ids": {"dflash_config": {"layer_ids": [2, 20, 50]}},
    "dspark_target_layer_ids": {"dspark_target_layer_ids": [1, 19, 49]},
    "target_layer_ids": {"target_layer_ids": [1, 19, 49]},
}
BARE = {**LLAMA, "eagle_config": {}}


def test_names_are_those_of_the_series() -> None:
    assert tuple(OTHER) == OTHER_NAMES


@pytest.mark.parametrize(
    ("release", "runner", "names", "taken"),
    [
        ("0.18.0", "v1", OTHER_NAMES[:0], ""),
        ("0.20.0", "v1", OTHER_NAMES[:1], "[1, 19, 49]"),
        ("0.22.0", "v1", OTHER_NAMES[:1], "[2, 20, 50]"),
        ("0.33.0", "v1", OTHER_NAMES[:1], "[2, 20, 50]"),
        ("0.23.0", "v2", OTHER_NAMES[:0], ""),
        ("0.24.0", "v2", OTHER_NAMES[:1], "[2, 20, 50]"),
        ("0.25.0", "v2", (OTHER_NAMES[0], *OTHER_NAMES[2:]), "[2, 20, 50]"),
        ("0.33.0", "v2", OTHER_NAMES, "[2, 20, 50]"),
    ],
)
@pytest.mark.parametrize("place", OTHER)
def test_which_releases_take_them(
    place: str, release: str, runner: Runner, names: tuple[str, ...], taken: str, tmp_path: Path
) -> None:
    verdict = preflight(tmp_path, {**BARE, **OTHER[place]}, release, runner=runner)
    if place not in names:
        assert verdict.word == "works"
        assert any(f"as {place}" in note for note in verdict.notes)
        return
    assert first(verdict) == ("layer-ids", "wrong-result", "never")
    assert verdict.first is not None
    assert place in verdict.first.why
    assert taken in verdict.first.why


@pytest.mark.parametrize("release", ["0.26.0", "0.32.0", "0.33.0"])
@pytest.mark.parametrize("place", OTHER)
def test_they_are_refused(place: str, release: str, tmp_path: Path) -> None:
    config = {**BARE, **OTHER[place]}
    asked: dict[str, Any] = {"patched": True, "mends": ALL}
    verdict = preflight(tmp_path, config, release, **asked)
    assert first(verdict) == ("layer-ids", "error", "config")
    assert f"names layers as {place}" in text(verdict)
    named = preflight(tmp_path, config, release, options={IDS: [2, 20, 50]}, **asked)
    assert named.word == "works"
    beside = {**config, "eagle_config": {IDS: [2, 20, 50]}}
    assert preflight(tmp_path, beside, release, **asked).word == "works"


def test_an_eagle_config_hides_them_from_v1(tmp_path: Path) -> None:
    place = OTHER["dflash_config.target_layer_ids"]
    config = {**BARE, **place, "eagle_config": {"use_aux_hidden_state": True}}
    assert preflight(tmp_path, config, "0.32.0", runner="v1").word == "works"
    revision = preflight(tmp_path, config, "0.32.0", runner="v1", patched=True)
    assert first(revision) == ("layer-ids", "wrong-result", "never")


# -- sizes, files, d2t ----------------------------------------------------------------------------


@pytest.mark.parametrize("release", PATCHED)
def test_sizes_of_the_targets_states(release: str, tmp_path: Path) -> None:
    null, other = ({**LLAMA, "target_hidden_size": size} for size in (None, 128))
    asked: dict[str, Any] = {"patched": True, "runner": "v1"}
    assert first(preflight(tmp_path, null, release, **asked)) == ("hidden-sizes", "error", "load")
    assert preflight(tmp_path, null, release, mends=ALL, **asked).word == "works"
    refused = preflight(tmp_path, other, release, mends=ALL, **asked)
    assert first(refused) == ("hidden-sizes", "error", "config")
    assert "with hidden states of 128 values" in text(refused)
    as_it_is = preflight(tmp_path, null, "0.32.0", runner="v1")
    assert first(as_it_is) == ("hidden-sizes", "error", "load")


@pytest.mark.parametrize(
    ("release", "dies"), [("0.16.0", False), ("0.17.1", False), ("0.26.0", True), ("0.33.0", True)]
)
def test_null_and_the_series_own_mla_drafter(release: str, dies: bool, tmp_path: Path) -> None:
    null = {**MLA, "target_hidden_size": None}
    verdict = preflight(tmp_path, null, release, patched=True, runner="v1")
    assert (verdict.word == "error") is dies


def test_fc_of_a_hub(tmp_path: Path) -> None:
    write(tmp_path / "target", TARGET)
    write(tmp_path / "drafter", LLAMA, weights_of(LLAMA, states=5))
    drafter = read_drafter(read_checkpoint(str(tmp_path / "drafter"), weights=True))
    target = read_target(read_checkpoint(str(tmp_path / "target"), weights=False))
    for mends, when in ((NONE, "load"), (ALL, "config")):
        facts = facts_of(Version("0.33.0"), patched=True, mends=mends)
        case = Case(target, replace(drafter, local=False), facts, Parallel(), {})
        assert first(judge(case)) == ("aux-states", "error", when)


def test_files_that_the_index_does_not_name(tmp_path: Path) -> None:
    folder = write(tmp_path / "drafter", LLAMA, weights_of(LLAMA))
    index = {"weight_map": dict.fromkeys(weights_of(LLAMA), "model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for name, raw, seen in (("a", b"x", True), ("z", b"x", False)):
        (folder / f"{name}.safetensors").write_bytes(raw)
        found = read_checkpoint(str(folder), weights=True)
        assert [each.readable for each in found.beside] == ([False] if seen else [])
        (folder / f"{name}.safetensors").unlink()
    stale = write(tmp_path / "stale", LLAMA, {"fc.weight": ("BF16", (64, 320))})
    (stale / "model.safetensors").rename(folder / "a.safetensors")
    (beside,) = read_checkpoint(str(folder), weights=True).beside
    assert beside.fc is not None
    assert beside.fc.shape == (64, 320)
    (folder / "model.safetensors.index.json").unlink()


@pytest.mark.parametrize(("release", "dies"), [("0.29.0", False), ("0.30.0", True)])
@pytest.mark.parametrize("drafter", [LLAMA, MLA], ids=["llama", "mla"])
def test_d2t_of_the_whole_vocabulary(
    drafter: Mapping[str, Any], release: str, dies: bool, tmp_path: Path
) -> None:
    config = {**drafter, "draft_vocab_size": 512, IDS: [2, 20, 50]}
    weights = {**weights_of(config), "d2t": ("I64", (512,))}
    verdict = preflight(tmp_path, config, release, weights=weights)
    assert (verdict.word == "error") is dies
    if dies:
        assert first(verdict) == ("vocabularies", "error", "load")
        assert "draft_id_to_target_id" in text(verdict)


def test_values_of_d2t_are_no_headers(tmp_path: Path) -> None:
    config = {**LLAMA, "draft_vocab_size": 512}
    weights = {**weights_of(config), "d2t": ("I64", (512,))}
    verdict = preflight(tmp_path, config, "0.33.0", weights=weights, patched=True, mends=ALL)
    assert verdict.word == "works"
    assert any("zeros are dropped, any other is refused" in note for note in verdict.notes)
    reduced = preflight(tmp_path, LLAMA, "0.33.0", patched=True, mends=ALL)
    said = next(fact.said for fact in reduced.facts if fact.name == "vocabularies")
    assert "d2t [384] (its values are not read)" in said


# -- ids that do not say how they count, and the method -------------------------------------------


@pytest.mark.parametrize(("ids", "told_of"), [([0, 19, 49], True), ([2, 20, 50], False)])
def test_a_note_on_ids_that_begin_with_0(ids: list[int], told_of: bool, tmp_path: Path) -> None:
    config = {**LLAMA, "eagle_config": {IDS: ids}}
    verdict = preflight(tmp_path, config, "0.33.0", patched=True, mends=ALL)
    assert verdict.word == "works"
    assert any("its first id is 0" in note for note in verdict.notes) is told_of
    stated = {**config, NUMBERING: "layer-input"}
    notes = preflight(tmp_path, stated, "0.33.0", patched=True, mends=ALL).notes
    assert not any("its first id" in note for note in notes)


LEFT_OUT = {"method": None}


@pytest.mark.parametrize(
    ("release", "when"), [("0.16.0", "config"), ("0.17.0", "first-step"), ("0.33.0", "first-step")]
)
def test_method_left_out(release: str, when: str, tmp_path: Path) -> None:
    verdict = preflight(tmp_path, LLAMA, release, runner="v1", options=LEFT_OUT)
    assert first(verdict) == ("method", "error", when)
    helps = release == "0.33.0"  # the others refuse Kimi then
    assert verdict.options == ('--speculative-config \'{"method": "eagle3"}\'',) * helps
    path = preflight(tmp_path / "Kimi-EAGLE3", LLAMA, release, runner="v1", options=LEFT_OUT)
    assert "method" not in [one.check for one in path.problems]
    first_of_all = tmp_path / "eagle-3" / "eagle3"
    other = preflight(first_of_all, LLAMA, release, runner="v1", options=LEFT_OUT)
    assert first(other) == ("method", "error", "config")


@pytest.mark.parametrize("release", PATCHED)
def test_the_architecture_tells_the_method(release: str, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"patched": True, "runner": "v1", "options": LEFT_OUT}
    assert preflight(tmp_path, LLAMA, release, mends=ALL, **asked).word == "works"
    assert preflight(tmp_path, MLA, release, mends=ALL, **asked).word == "works"
    plain = {**LLAMA, "architectures": ["LlamaForCausalLM"]}
    assert preflight(tmp_path, plain, release, mends=ALL, **asked).first is not None
    ids = preflight(tmp_path, LLAMA, release, patched=True, options={**LEFT_OUT, IDS: [2, 20, 50]})
    assert "only supported with method='eagle3'" in text(ids)


# -- whatever a config says -----------------------------------------------------------------------

KEYS = (
    *FLAGS,
    *("eagle_config", "draft_vocab_size", "target_hidden_size", IDS, NUMBERING, "dflash_config"),
    *("dspark_target_layer_ids", "target_layer_ids", "num_aux_layers", "num_aux_hidden_states"),
    *("architectures", "transformer_layer_config", "speculators_model_type"),
)
SCALARS = st.sampled_from(
    (None, True, False, 0, 1, -1, 64, 1.5, "", "false", "layer-output", "[1, 2]", [2, 20, 50])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=6,
)
CONFIGS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    drafter=st.sampled_from((LLAMA, MLA)),
    beside=CONFIGS,
    inside=CONFIGS | st.none(),
    release=st.sampled_from(("0.15.0", "0.20.0", "0.25.0", "0.30.0", *PATCHED)),
    runner=st.sampled_from(("v1", "v2")),
    mends=st.sampled_from((None, NONE, ALL)),
    options=st.sampled_from(({}, LEFT_OUT, {IDS: [1, 2, 3]})),
)
def test_there_is_a_verdict_or_one_sentence(
    tmp_path: Path,
    drafter: Mapping[str, Any],
    beside: Mapping[str, Any],
    inside: Mapping[str, Any] | None,
    release: str,
    runner: Runner,
    mends: Mends | None,
    options: Mapping[str, Any],
) -> None:
    config = {**drafter, **beside}
    if inside is not None:
        config = {**speculators({**drafter, **inside}), **beside}
    patched = mends is not None and release in PATCHED
    try:
        verdict = preflight(
            tmp_path, config, release, weights=weights_of(drafter), patched=patched,
            runner=runner, mends=mends or NONE, options=options,
        )  # fmt: skip
    except VpatchError:
        return
    assert verdict.word in ("works", "works-with", "wrong-result", "error")
