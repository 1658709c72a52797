"""Values of other types, layers' types, architectures and P-EAGLE: what each tree makes of them.

What v0.32.0 does at its config, as it is and with revision 9, was asked of its own Python; of the
revision behind it the source was read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from preflight_lab import IDS, LLAMA, MLA, NUMBERING, REVISION_9, preflight, weights_of, write
from vpatch.errors import FindingError
from vpatch.preflight.checkpoint import read_checkpoint
from vpatch.preflight.mends import ALL, NONE, Mends
from vpatch.preflight.verdict import Verdict

PATCHED = ("0.26.0", "0.32.0", "0.33.0")
NORMS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")


def judged(
    folder: Path, config: Mapping[str, Any], mends: Mends | None, release: str = "0.32.0",
    **more: Any,
) -> Verdict:  # fmt: skip
    """On V1; mends None: the release as it is."""
    asked: dict[str, Any] = {"runner": "v1", "weights": weights_of(LLAMA), **more}
    patched = mends is not None
    return preflight(folder, config, release, patched=patched, mends=mends or NONE, **asked)


def said(verdict: Verdict) -> tuple[str, str, str, str]:
    assert verdict.first is not None, verdict.facts
    return verdict.first.check, verdict.first.effect, verdict.first.when, verdict.first.said


def speculators(inside: Mapping[str, Any] | None = None, **beside: Any) -> dict[str, Any]:
    layer = {key: value for key, value in LLAMA.items() if key != "eagle_config"}
    found = {
        "speculators_model_type": "eagle3",
        "architectures": ["Eagle3Speculator"],
        "transformer_layer_config": {**layer, **(inside or {})},
        "draft_vocab_size": 384,
        "norm_before_residual": True,
        IDS: [2, 20, 50],
        **beside,
    }
    return {key: value for key, value in found.items() if value is not ...}


# -- eagle_config that is no object ---------------------------------------------------------------


@pytest.mark.parametrize("value", [True, 1, 5])
@pytest.mark.parametrize("beside", [True, False])
def test_an_eagle_config_of_another_type(value: Any, beside: bool, tmp_path: Path) -> None:
    place = {"eagle_config": value}
    config = speculators(**place) if beside else speculators(place)
    check, effect, when, text = said(judged(tmp_path, config, REVISION_9))
    assert (check, effect, when) == ("speculators", "error", "config")
    assert text == f"argument of type '{type(value).__name__}' is not iterable"
    assert judged(tmp_path, config, ALL).word == "works"
    as_it_is = judged(tmp_path, config, None)
    if beside:
        assert as_it_is.word == "works"
    else:
        assert said(as_it_is)[1:3] == ("error", "load")
    whole = {name: name == NORMS[0] for name in NORMS}
    assert judged(tmp_path, {**config, **whole}, REVISION_9).word == "works"


@pytest.mark.parametrize("value", ["x", [1]])
def test_a_text_in_the_place_of_an_eagle_config(value: Any, tmp_path: Path) -> None:
    for config in (speculators({"eagle_config": value}), {**LLAMA, "eagle_config": value}):
        for mends in (REVISION_9, ALL):
            assert judged(tmp_path, config, mends).word == "works"
        assert said(judged(tmp_path, config, None))[1:3] == ("error", "load")


def test_nothing_in_the_place_of_an_eagle_config(tmp_path: Path) -> None:
    config = {**LLAMA, "eagle_config": 0}
    text = said(judged(tmp_path, config, None))[3]
    assert text == "'int' object has no attribute 'get'"
    assert judged(tmp_path, config, None, runner="v2").word == "works"
    assert judged(tmp_path, {**LLAMA, "eagle_config": None}, None).word == "works"


def test_parts_of_an_eagle_config_are_put_together(tmp_path: Path) -> None:
    config = speculators(
        {"eagle_config": {"use_aux_hidden_state": True}},
        **{IDS: ..., "eagle_config": {IDS: [2, 30, 58]}},
    )
    assert "eagle_config is" in said(judged(tmp_path, config, REVISION_9))[3]
    verdict = judged(tmp_path, config, ALL)
    assert verdict.word == "works"
    facts = {fact.name: fact.said for fact in verdict.facts}
    assert facts["ids as taken"].startswith("[2, 30, 58]")
    config["transformer_layer_config"]["eagle_config"] = {IDS: [2, 20, 50]}
    text = said(judged(tmp_path, config, ALL))[3]
    assert f"contradicts itself: {IDS} is" in text


@pytest.mark.parametrize("beside", [True, False])
def test_a_null_in_eagle_config_says_nothing(beside: bool, tmp_path: Path) -> None:
    place = {"eagle_config": {"norm_before_residual": None}}
    config = speculators(**place) if beside else speculators(place)
    del config["norm_before_residual"]
    assert said(judged(tmp_path, config, REVISION_9))[:3] == ("norms", "wrong-result", "never")
    assert judged(tmp_path, config, ALL).word == "works"
    assert judged(tmp_path, config, None).word == "works"


# -- a layer's type, a text_config ----------------------------------------------------------------


@pytest.mark.parametrize("value", [None, "", 5, "mistral"])
def test_a_layers_type(value: Any, tmp_path: Path) -> None:
    config = speculators({"model_type": value})
    for mends in (None, NONE, REVISION_9, ALL):
        check, effect, when, text = said(judged(tmp_path, config, mends))
        assert (check, effect, when) == ("speculators", "error", "config")
        assert text == f"Unsupported model_type {value} for Eagle3 speculator"
    assert judged(tmp_path, config, None, "0.23.0").word == "works"
    left_out = speculators()
    del left_out["transformer_layer_config"]["model_type"]
    assert judged(tmp_path, left_out, ALL).word == "works"


@pytest.mark.parametrize("value", [[], {}])
def test_a_layers_type_that_is_no_word(value: Any, tmp_path: Path) -> None:
    check, effect, when, text = said(judged(tmp_path, speculators({"model_type": value}), ALL))
    assert (check, effect, when) == ("speculators", "error", "config")
    assert text == f"unhashable type: '{type(value).__name__}'"


@pytest.mark.parametrize("value", [{}, [], 5, "x", {"hidden_size": 64, "num_attention_heads": 4}])
@pytest.mark.parametrize("mends", [None, REVISION_9, ALL], ids=["as it is", "9", "all"])
def test_a_text_config(value: Any, mends: Mends | None, tmp_path: Path) -> None:
    place = {"text_config": value}
    for config in (speculators(place), {**LLAMA, IDS: [2, 20, 50], **place}):
        check, effect, when, text = said(judged(tmp_path, config, mends))
        assert (check, effect, when) == ("config-class", "error", "config")
        assert "does not have `num_attention_heads` attribute" in text
    none = {**LLAMA, IDS: [2, 20, 50], "text_config": None}
    assert judged(tmp_path, none, mends).word == "works"


@pytest.mark.parametrize("mends", [None, REVISION_9, ALL], ids=["as it is", "9", "all"])
def test_a_drafter_with_the_targets_type(mends: Mends | None, tmp_path: Path) -> None:
    config = {**LLAMA, IDS: [2, 20, 50], "model_type": "kimi_k25"}
    check, effect, when, text = said(judged(tmp_path, config, mends))
    assert (check, effect, when) == ("config-class", "error", "config")
    assert "does not have `num_attention_heads` attribute" in text
    left_out = judged(tmp_path, config, mends, options=LEFT_OUT)
    assert not left_out.options


def test_a_type_that_speculators_have_not(tmp_path: Path) -> None:
    config = speculators(speculators_model_type="eagle")
    assert said(judged(tmp_path, config, ALL))[1:] == ("error", "config", "Expected one of: {")
    peagle = speculators(speculators_model_type="peagle", mask_token_id=5)
    assert said(judged(tmp_path, peagle, None, "0.21.0"))[3] == "Expected one of: {"
    assert said(judged(tmp_path, peagle, ALL, "0.17.1"))[3] == "Expected one of: {"


# -- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["num_aux_layers", "num_aux_hidden_states"])
@pytest.mark.parametrize("value", [3.0, "3", True, [3]])
def test_a_number_of_states_that_is_no_integer(name: str, value: Any, tmp_path: Path) -> None:
    config = {**LLAMA, name: value}
    check, effect, when, text = said(judged(tmp_path, config, ALL))
    assert (check, effect, when) == ("aux-states", "error", "config")
    assert text == f"{name} in the drafter's config has to be an integer, not {value!r}."
    verdict = said(judged(tmp_path, config, REVISION_9))
    if value == 3.0:
        assert verdict[1:3] == ("error", "load")
    else:
        assert verdict[1:3] == ("error", "config")
    as_it_is = judged(tmp_path, config, None)
    if name == "num_aux_layers":
        assert as_it_is.word == "works"
    else:
        assert said(as_it_is)[1:3] == ("error", "load")


@pytest.mark.parametrize("value", ["64", 64.0])
def test_a_size_that_is_no_integer(value: Any, tmp_path: Path) -> None:
    with pytest.raises(FindingError, match="target_hidden_size"):
        judged(tmp_path, {**LLAMA, "target_hidden_size": value}, ALL)


@pytest.mark.parametrize("dtype", ["U8", "I64", "BOOL", "F16", "F32"])
def test_the_width_of_a_packed_fc_is_not_told(dtype: str, tmp_path: Path) -> None:
    weights = {**weights_of(LLAMA), "fc.weight": (dtype, (64, 96))}
    for mends, packed in ((REVISION_9, ("U8",)), (ALL, ("U8", "I64", "BOOL"))):
        when = said(judged(tmp_path, LLAMA, mends, weights=weights))[2]
        assert when == ("load" if dtype in packed else "config")


# -- d2t and the draft vocabulary -----------------------------------------------------------------


@pytest.mark.parametrize("config", [LLAMA, MLA], ids=["llama", "mla"])
@pytest.mark.parametrize("release", PATCHED)
@pytest.mark.parametrize("size", [None, ..., 400])
def test_a_d2t_of_another_length(
    size: Any, release: str, config: Mapping[str, Any], tmp_path: Path
) -> None:
    weights = weights_of({**config, "draft_vocab_size": 384})
    drafter = {**config, "draft_vocab_size": size}
    if size is ...:
        del drafter["draft_vocab_size"]
    verdict = judged(tmp_path, drafter, ALL, release, weights=weights)
    check, effect, when, text = said(verdict)
    assert (check, effect, when) == ("vocabularies", "error", "load")
    assert text == (
        "The EAGLE-3 drafter's checkpoint has a d2t of [384], but its draft_vocab_size is "
        f"{size if size == 400 else 512}."
    )
    assert verdict.first is not None
    assert verdict.first.remedy is not None
    assert "draft_vocab_size" in verdict.first.remedy.text
    before = judged(tmp_path, drafter, REVISION_9, release, weights=weights)
    assert said(before)[1:3] == ("error", "load")
    assert "d2t of" not in said(before)[3]


# -- architectures --------------------------------------------------------------------------------


LEFT_OUT = {"method": None}


@pytest.mark.parametrize(
    "name", ["PeagleLlamaForCausalLM", "PEagleDraftModel", "PeagleQwen3ForCausalLM",
             "EagleLlamaForCausalLM"],
)  # fmt: skip
@pytest.mark.parametrize("mends", [None, REVISION_9, ALL], ids=["as it is", "9", "all"])
def test_architectures_that_are_not_eagle_3s(
    name: str, mends: Mends | None, tmp_path: Path
) -> None:
    config = {**LLAMA, IDS: [2, 20, 50], "architectures": [name]}
    check, effect, when, text = said(judged(tmp_path, config, mends))
    assert (check, effect, when) == ("architecture", "error", "config")
    assert f"{name}'" in text
    left_out = judged(tmp_path, config, mends, options=LEFT_OUT)
    assert left_out.word == "error"
    assert not left_out.options
    assert said(left_out)[0] == "method"


@pytest.mark.parametrize("value", [None, [], [None]])
@pytest.mark.parametrize("mends", [None, REVISION_9, ALL], ids=["as it is", "9", "all"])
def test_no_architecture(value: Any, mends: Mends | None, tmp_path: Path) -> None:
    config = {**LLAMA, IDS: [2, 20, 50], "architectures": value}
    assert said(judged(tmp_path, config, mends))[:3] == ("architecture", "error", "config")
    left_out = judged(tmp_path, config, mends, options=LEFT_OUT)
    assert left_out.word == "error"
    assert not left_out.options


def test_the_option_and_what_is_behind_it(tmp_path: Path) -> None:
    """Neither of the two options is enough alone."""
    config = {**LLAMA, "eagle_config": {IDS: [1, 29, 57]}}
    verdict = judged(tmp_path, config, NONE, options=LEFT_OUT)
    assert verdict.word == "works-with"
    assert verdict.options == (
        '--speculative-config \'{"method": "eagle3", "' + NUMBERING + '": "layer-output"}\'',
    )
    lost = {**LLAMA, "architectures": ["LlamaForCausalLM"], IDS: [50, 20, 2]}
    assert judged(tmp_path, lost, ALL, options=LEFT_OUT).word == "error"


@pytest.mark.parametrize("mends", [None, ALL], ids=["as it is", "all"])
def test_an_architecture_gets_its_name_from_the_method(mends: Mends | None, tmp_path: Path) -> None:
    config = {**LLAMA, IDS: [2, 20, 50], "architectures": ["Qwen3ForCausalLM"]}
    assert judged(tmp_path, config, mends).word == "works"


def test_the_first_architecture_that_there_is(tmp_path: Path) -> None:
    config = {**LLAMA, "architectures": ["X", "LlamaForCausalLMEagle3"]}
    for mends in (None, REVISION_9, ALL):
        assert judged(tmp_path, config, mends).word == "works"


@pytest.mark.parametrize(("value", "what"), [("LlamaForCausalLMEagle3", "list"), ([5], "string")])
def test_architectures_of_another_type(value: Any, what: str, tmp_path: Path) -> None:
    text = said(judged(tmp_path, {**LLAMA, "architectures": value}, ALL))[3]
    assert text == f"Input should be a valid {what}"


# -- P-EAGLE --------------------------------------------------------------------------------------

PEAGLE: Mapping[str, Any] = {
    "speculators_model_type": "peagle",
    "mask_token_id": 5,
    "norm_before_residual": False,
}


@pytest.mark.parametrize("release", ["0.22.0", *PATCHED])
def test_ids_in_the_outer_eagle_config_of_peagle(release: str, tmp_path: Path) -> None:
    config = speculators(**PEAGLE, eagle_config={IDS: [2, 20, 50]})
    del config[IDS]
    for mends in (None, NONE, REVISION_9):
        if mends is None or release in PATCHED:
            verdict = judged(tmp_path, config, mends, release)
            assert said(verdict)[:3] == ("layer-ids", "wrong-result", "never")
    if release in PATCHED:
        assert judged(tmp_path, config, ALL, release).word == "works"


@pytest.mark.parametrize("release", PATCHED)
def test_draft_vocab_size_of_peagles_layer(release: str, tmp_path: Path) -> None:
    config = speculators(**PEAGLE)
    del config["draft_vocab_size"]
    for mends in (None, NONE, REVISION_9):
        assert said(judged(tmp_path, config, mends, release))[1:3] == ("error", "load")
    assert judged(tmp_path, config, ALL, release).word == "works"


@pytest.mark.parametrize("release", PATCHED)
def test_peagles_own_default(release: str, tmp_path: Path) -> None:
    config = speculators(**PEAGLE)
    del config["norm_before_residual"]
    for mends in (None, NONE, REVISION_9, ALL):
        verdict = judged(tmp_path, config, mends, release)
        assert verdict.word == "works"
        facts = {fact.name: fact.said for fact in verdict.facts}
        assert facts["norms"].startswith("none of")


def test_peagle_that_contradicts_itself(tmp_path: Path) -> None:
    config = speculators({IDS: [2, 30, 58]}, **PEAGLE)
    verdict = judged(tmp_path, config, REVISION_9)
    assert verdict.word == "works"
    assert any("contradicts itself" in note for note in verdict.notes)
    assert f"{IDS} is" in said(judged(tmp_path, config, ALL))[3]


def test_the_method_of_peagle_is_not_told_by_its_architecture(tmp_path: Path) -> None:
    verdict = judged(tmp_path, speculators(**PEAGLE), ALL, options=LEFT_OUT)
    assert verdict.word == "works-with"
    assert said(verdict)[0] == "method"
    without = speculators(**{**PEAGLE, "mask_token_id": ...})
    assert said(judged(tmp_path, without, ALL))[1:] == ("error", "config", "'mask_token_id'")


def test_a_layers_type_of_peagle(tmp_path: Path) -> None:
    config = speculators({"model_type": "kimi_k2"}, **PEAGLE)
    text = said(judged(tmp_path, config, ALL))[3]
    assert text == "Unsupported model_type kimi_k2 for PEagle speculator"


# -- what stays as it is --------------------------------------------------------------------------


@pytest.mark.parametrize("mends", [REVISION_9, ALL], ids=["9", "all"])
def test_ways_to_write_a_folder(mends: Mends, tmp_path: Path, monkeypatch: Any) -> None:
    drafter = write(tmp_path / "drafter", LLAMA, weights_of(LLAMA))
    index = {"weight_map": dict.fromkeys(weights_of(LLAMA), "model.safetensors")}
    (drafter / "model.safetensors.index.json").write_text(json.dumps(index))
    monkeypatch.chdir(tmp_path)
    for name in ("./drafter", f"{tmp_path}//drafter", f"{drafter}/.", f"{drafter}/"):
        found = read_checkpoint(name, weights=True)
        assert found.tensors
        assert not found.beside
    assert judged(tmp_path, LLAMA, mends).word == "works"


def test_an_index_without_its_files(tmp_path: Path) -> None:
    drafter = write(tmp_path / "drafter", LLAMA)
    index = {"weight_map": dict.fromkeys(weights_of(LLAMA), "model.safetensors")}
    (drafter / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(FindingError) as error:
        read_checkpoint(str(drafter), weights=True)
    assert error.value.code == "bad-checkpoint"


@pytest.mark.parametrize("mends", [REVISION_9, ALL], ids=["9", "all"])
def test_a_vocabulary_smaller_than_the_targets(mends: Mends, tmp_path: Path) -> None:
    config = {**LLAMA, "vocab_size": 448}
    assert judged(tmp_path, config, mends, weights=weights_of(config)).word == "works"


def test_revision_9_is_a_part_of_all() -> None:
    assert replace(
        ALL, parts=False, peagle=False, integers=False, rows=False
    ) == REVISION_9  # fmt: skip
