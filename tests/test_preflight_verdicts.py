"""What preflight says, against what engines did, and of each drafter that people serve."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from preflight_lab import (
    IDS,
    LLAMA,
    MLA,
    NUMBERING,
    PUBLIC,
    TARGET,
    preflight,
    public,
    weights_of,
)
from vpatch.errors import UsageError
from vpatch.preflight.case import Parallel
from vpatch.preflight.verdict import Verdict

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "ci"))

import preflight_table  # noqa: E402

ROWS = tuple(preflight_table.rows(preflight_table.KEPT))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.release}-{row.drafter}")
def test_engine_does_what_preflight_says(row: preflight_table.Row) -> None:
    assert row.disagreement is None


def test_table_is_whole_and_not_of_one_verdict() -> None:
    releases = {row.release for row in ROWS}
    assert releases == {
        f"{tag}, {form}" for tag in ("v0.17.1", "v0.32.0") for form in ("patched", "as it is")
    }
    for release in releases:
        assert len([row for row in ROWS if row.release == release]) >= 15
    assert {row.came["did"] for row in ROWS} == {"works", "wrong-result", "error"}
    assert {row.came.get("when") for row in ROWS} >= {"config", "load", "first-step"}


def test_table_of_the_docs_is_fresh() -> None:
    assert preflight_table.table(ROWS) in preflight_table.PAGE.read_text(encoding="utf-8")


def test_a_disagreement_is_seen() -> None:
    row = next(row for row in ROWS if row.verdict.as_given == "error")
    for wrong in (
        {"did": "works"},
        {**row.came, "when": "never"},
        {**row.came, "text": "KeyError: another"},
    ):
        told = preflight_table.Row(row.drafter, row.release, row.verdict, wrong)
        assert told.disagreement is not None


# By release, whether patched, runner (None: the release's own): what comes, by the first letters of
# PUBLIC's drafters.
def _of(name: str, tmp_path: Path, release: str, **more: Any) -> Verdict:
    fixture = public(name)
    weights = weights_of(fixture["config"], fixture["states"], fixture["own"])
    target = public("target-kimi-k2.5")["config"]
    return preflight(tmp_path, fixture["config"], release, weights=weights, target=target, **more)


OUTPUTS = ("cm00cm--Kimi-K2.7-Code-EAGLE3", "lightseekorg--kimi-k2.7-coder-eagle3.1-mla")
NEW_MLA = ("lightseekorg--kimi-k2.6-eagle3.1-mla", "lightseekorg--kimi-k2.7-coder-eagle3.1-mla")


@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.parametrize("release", ["0.15.1", "0.16.0", "0.17.1"])
def test_no_public_drafter_works_on_the_first_releases(
    name: str, release: str, tmp_path: Path
) -> None:
    first = _of(name, tmp_path, release).first
    assert first is not None
    assert first.effect == "error"
    assert first.when == "config"
    mla = "kv_lora_rank" in public(name)["config"]
    assert first.check == ("config-class" if mla else "target-accepted")


@pytest.mark.parametrize("name", PUBLIC)
@pytest.mark.parametrize("release", ["0.16.0", "0.17.1", "0.26.0", "0.32.0", "0.33.0"])
def test_every_public_drafter_works_patched(name: str, release: str, tmp_path: Path) -> None:
    verdict = _of(name, tmp_path, release, patched=True, runner="v1")
    if name in OUTPUTS:
        assert verdict.word == "works-with"
        assert NUMBERING in verdict.options[0]
        given = {NUMBERING: "layer-output"}
        told = _of(name, tmp_path, release, patched=True, runner="v1", options=given)
        assert told.word == "works"
    else:
        assert verdict.word == "works", verdict.problems


@pytest.mark.parametrize("name", PUBLIC)
def test_public_drafters_on_the_newest_release_as_it_is(name: str, tmp_path: Path) -> None:
    # MRV2 ignores where they keep their ids and takes its default: what all of them want.
    assert _of(name, tmp_path, "0.33.0").word == "works"
    # V1 reads them, and takes outputs for inputs.
    told = _of(name, tmp_path, "0.33.0", runner="v1")
    assert told.as_given == ("wrong-result" if name in OUTPUTS else "works")


@pytest.mark.parametrize("name", NEW_MLA)
def test_norms_of_eagle_3_1_came_later(name: str, tmp_path: Path) -> None:
    first = _of(name, tmp_path, "0.18.0").first
    assert first is not None
    assert (first.check, first.effect, first.when) == ("norms", "error", "load")
    assert _of(name, tmp_path, "0.22.0", runner="v2").word == "works"


def _first(verdict: Verdict) -> tuple[str, str, str]:
    assert verdict.first is not None, verdict.facts
    return verdict.first.check, verdict.first.effect, verdict.first.when


@pytest.mark.parametrize(
    ("release", "runner", "ids", "wanted"),
    [
        ("0.18.0", "v1", {"eagle_config": {IDS: [2, 20, 50]}}, False),
        ("0.22.0", "v1", {"eagle_config": {IDS: [2, 20, 50]}}, True),
        ("0.29.0", None, {"eagle_config": {IDS: [2, 20, 50]}}, False),
        ("0.29.0", "v1", {"eagle_config": {IDS: [2, 20, 50]}}, True),
        ("0.29.0", None, {"eagle_config": {"layer_ids": [2, 20, 50]}}, True),
        ("0.26.0", "v2", {"eagle_config": {"layer_ids": [2, 20, 50]}}, False),
        ("0.33.0", None, {"eagle_config": {}, IDS: [2, 20, 50]}, True),
    ],
)
def test_where_each_release_reads_ids(
    release: str, runner: Any, ids: Mapping[str, Any], wanted: bool, tmp_path: Path
) -> None:
    verdict = preflight(tmp_path, {**LLAMA, **ids}, release, runner=runner)
    if wanted:
        assert verdict.word == "works"
    else:
        assert _first(verdict) == ("layer-ids", "wrong-result", "never")


@pytest.mark.parametrize("release", ["0.32.0", "0.33.0"])
def test_pipeline_stages(release: str, tmp_path: Path) -> None:
    two = Parallel(pipeline=2)
    as_it_is = preflight(tmp_path, LLAMA, release, parallel=two, runner="v1")
    assert _first(as_it_is) == ("pipeline-parallel", "error", "first-step")
    refused = preflight(tmp_path, LLAMA, release, parallel=two, patched=True)
    assert _first(refused) == ("pipeline-parallel", "error", "config")
    assert refused.word == "works-with"
    older = preflight(tmp_path, LLAMA, "0.26.0", parallel=two)
    assert older.first is not None
    assert "SupportsPP" in older.first.said or "Pipeline parallelism" in older.first.said


def test_context_ranks_that_mix_heads(tmp_path: Path) -> None:
    llama, mla = ({**one, "num_attention_heads": 8} for one in (LLAMA, MLA))
    mixed, whole = Parallel(tensor=8, context=8), Parallel(tensor=8, context=4)
    assert _first(preflight(tmp_path, llama, "0.33.0", parallel=mixed, runner="v1")) == (
        "context-parallel",
        "wrong-result",
        "never",
    )
    patched = preflight(tmp_path, llama, "0.33.0", parallel=mixed, patched=True)
    assert _first(patched) == ("context-parallel", "error", "config")
    assert preflight(tmp_path, llama, "0.33.0", parallel=whole, patched=True).word == "works"
    assert preflight(tmp_path, mla, "0.33.0", parallel=mixed, patched=True).word == "works"


@pytest.mark.parametrize(("ranks", "fewer"), [(3, 2), (8, 4), (1024, 4)])
def test_ranks_that_do_not_share_out_the_heads(ranks: int, fewer: int, tmp_path: Path) -> None:
    """vLLM says so of the drafter first: its config is verified before the engine's."""
    many = Parallel(tensor=ranks)
    verdict = preflight(tmp_path, LLAMA, "0.33.0", parallel=many, patched=True)
    assert _first(verdict) == ("tensor-parallel", "error", "config")
    assert verdict.options == (f"--tensor-parallel-size {fewer}",)
    assert verdict.first is not None
    assert verdict.first.said == (
        f"Total number of attention heads (4) must be divisible by tensor parallel size ({ranks})"
    )
    text = {**TARGET["text_config"], "num_attention_heads": 4}
    wide = {**LLAMA, "num_attention_heads": 1024 * 3}
    of_target = preflight(
        tmp_path, wide, "0.33.0", parallel=many, target={**TARGET, "text_config": text}
    )
    assert of_target.first is not None
    assert "the target's 4 attention heads" in of_target.first.why


def test_rope_without_yarn_dies_until_v0_28(tmp_path: Path) -> None:
    plain = {**MLA, "rope_scaling": None}
    for release, dies in (("0.18.0", True), ("0.27.1", True), ("0.28.0", False)):
        verdict = preflight(tmp_path, plain, release, runner="v1")
        assert ("rope" in [one.check for one in verdict.problems]) is dies
    assert preflight(tmp_path, plain, "0.26.0", patched=True).word == "works"


def test_target_of_the_new_schema_alone(tmp_path: Path) -> None:
    new = {key: value for key, value in TARGET.items() if key != "media_placeholder_token_id"}
    verdict = preflight(tmp_path, LLAMA, "0.33.0", target=new, runner="v1")
    assert _first(verdict) == ("placeholder", "error", "load")
    for more in ({"patched": True}, {"patched": True, "runner": "v1"}):
        assert preflight(tmp_path, LLAMA, "0.33.0", target=new, **more).word == "works"


@pytest.mark.parametrize(
    ("changes", "check", "text"),
    [
        ({IDS: [1, 2, 3]}, "layer-ids", "names two sets of aux layers"),
        ({"eagle_config": {IDS: [1, True, 3]}}, "layer-ids", "has to be a list"),
        ({"eagle_config": {IDS: "2,30,58"}}, "layer-ids", "has to be a list"),
        ({NUMBERING: "sglang"}, "numbering", "has to be one of"),
        (
            {NUMBERING: "layer-input", "eagle_config": {IDS: [2, 3, 4], NUMBERING: "layer-output"}},
            "numbering",
            "two values",
        ),
        ({"num_aux_hidden_states": 4}, "aux-states", "num_aux_hidden_states is 4"),
        ({"num_aux_layers": 4}, "aux-states", "num_aux_layers is 4"),
        (
            {"norm_before_fc": True, "eagle_config": {"norm_before_fc": False}},
            "config",
            "contradicts itself",
        ),
        ({"quantization_config": {"quant_method": "own"}}, "quantisation", "Unknown quantization"),
    ],
)
def test_what_a_patched_release_refuses(
    changes: Mapping[str, Any], check: str, text: str, tmp_path: Path
) -> None:
    verdict = preflight(tmp_path, {**LLAMA, **changes}, "0.33.0", patched=True)
    assert _first(verdict) == (check, "error", "config")
    assert verdict.first is not None
    assert text in verdict.first.said


def test_ids_beside_a_config_that_counts_outputs_have_to_say_how_they_count(tmp_path: Path) -> None:
    outputs = {**LLAMA, IDS: [1, 2, 3], NUMBERING: "layer-output"}
    for options, works in (
        ({IDS: [2, 3, 4]}, False),
        ({IDS: [2, 3, 4], NUMBERING: "layer-input"}, True),
        ({IDS: [1, 2, 3], NUMBERING: "layer-output"}, True),
    ):
        verdict = preflight(tmp_path, outputs, "0.33.0", options=options, patched=True)
        assert (verdict.word == "works") is works, verdict.problems
        assert works or _first(verdict) == ("numbering", "error", "config")


def test_fc_of_a_folder_is_seen_earlier_than_that_of_a_hub(tmp_path: Path) -> None:
    five = weights_of(LLAMA, states=5)
    verdict = preflight(tmp_path, LLAMA, "0.33.0", weights=five, patched=True)
    assert _first(verdict) == ("aux-states", "error", "config")
    assert "but its fc takes 320" in (verdict.first.said if verdict.first else "")


def test_weight_that_no_class_has_a_place_for(tmp_path: Path) -> None:
    extra = {**weights_of(LLAMA), "midlayer.self_attn.q_norm.weight": ("BF16", (16,))}
    assert _first(preflight(tmp_path, LLAMA, "0.26.0", weights=extra)) == (
        "weights",
        "error",
        "load",
    )


def test_memory_is_that_of_the_headers(tmp_path: Path) -> None:
    verdict = preflight(tmp_path, LLAMA, "0.33.0", patched=True)
    told = next(fact.said for fact in verdict.facts if fact.name == "memory")
    # 2 heads of 16 values, keys and values, in bfloat16
    assert "128 B of KV cache a token" in told
    # 3 states and two hidden states of 64 values, two bytes, 8192 tokens
    assert "5120 KiB of buffers at 8192 tokens" in told


@pytest.mark.parametrize("release", ["0.14.1", "0.31.0"])
def test_release_that_is_not_known(release: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        preflight(tmp_path, LLAMA, release, patched=True)


@pytest.mark.parametrize("drafter", [LLAMA, MLA], ids=["llama", "mla"])
@pytest.mark.parametrize("nested", [True, False])
def test_drafter_of_the_last_hidden_state(
    drafter: Mapping[str, Any], nested: bool, tmp_path: Path
) -> None:
    flag = {"use_aux_hidden_state": False}
    config = {**drafter, **({"eagle_config": flag} if nested else {**flag, "eagle_config": {}})}
    weights = {name: one for name, one in weights_of(drafter).items() if name != "fc.weight"}
    as_it_is = preflight(tmp_path, config, "0.32.0", weights=weights, runner="v1").as_given
    wanted = ("error" if drafter is MLA else "works") if nested else "wrong-result"
    assert as_it_is == wanted
    assert preflight(tmp_path, config, "0.32.0", weights=weights, patched=True).word == "works"


def test_mla_drafter_in_speculators_format(tmp_path: Path) -> None:
    config = {
        "speculators_model_type": "eagle3",
        "architectures": ["Eagle3Speculator"],
        "transformer_layer_config": {key: one for key, one in MLA.items() if key != "eagle_config"},
        "draft_vocab_size": 512,
        IDS: [2, 20, 50],
    }
    weights = weights_of(MLA)
    for release, wanted in (("0.22.0", "load"), ("0.26.0", "config")):
        told = preflight(tmp_path, config, release, weights=weights, runner="v1")
        assert _first(told) == ("speculators", "error", wanted)
    assert preflight(tmp_path, config, "0.26.0", weights=weights, patched=True).word == "works"


def test_embeddings_of_another_size_cannot_be_shared(tmp_path: Path) -> None:
    narrow = {**LLAMA, "hidden_size": 32, "target_hidden_size": 64}
    weights = {**weights_of(narrow), "fc.weight": ("BF16", (32, 192))}
    first = preflight(tmp_path, narrow, "0.33.0", weights=weights, patched=True)
    assert _first(first) == ("hidden-sizes", "error", "first-step")
    own = {**weights, "embed_tokens.weight": ("BF16", (512, 32))}
    assert preflight(tmp_path, narrow, "0.33.0", weights=own, patched=True).word == "works"


def test_drafters_of_other_models_are_left_alone(tmp_path: Path) -> None:
    other = {**LLAMA, "architectures": ["Eagle3Qwen3ForCausalLM"], "model_type": "qwen3"}
    extra = {**weights_of(LLAMA), "midlayer.self_attn.q_norm.weight": ("BF16", (16,))}
    verdict = preflight(tmp_path, other, "0.33.0", weights=extra, patched=True)
    assert verdict.word == "works"
    assert any("its class is not known here" in note for note in verdict.notes)


@pytest.mark.parametrize(
    ("release", "drafter", "refused"),
    [
        ("0.16.0", LLAMA, True),
        ("0.16.0", MLA, True),
        ("0.17.1", LLAMA, True),
        ("0.17.1", MLA, False),
    ],
)
def test_mrv2_of_the_first_series(
    release: str, drafter: Mapping[str, Any], refused: bool, tmp_path: Path
) -> None:
    verdict = preflight(tmp_path, drafter, release, patched=True, runner="v2")
    assert verdict.word == ("works-with" if refused else "works")
    if refused:
        assert _first(verdict) == ("runner", "error", "load")


def _shallow(layers: int) -> dict[str, Any]:
    return {**TARGET, "text_config": {**TARGET["text_config"], "num_hidden_layers": layers}}


@pytest.mark.parametrize("ids", [None, "as written"])
@pytest.mark.parametrize("layers", range(1, 8))
@pytest.mark.parametrize("release", ["0.16.0", "0.17.1", "0.26.0", "0.32.0", "0.33.0"])
def test_default_layers_of_a_shallow_target(
    tmp_path: Path, release: str, layers: int, ids: str | None
) -> None:
    """(2, n / 2, n - 3) repeat, descend or are none of so few layers: nothing drafts from them."""
    default = (2, layers // 2, layers - 3)
    given = {"eagle_config": {IDS: list(default)}} if ids else {"eagle_config": {}}
    found = preflight(tmp_path, {**LLAMA, **given}, release, target=_shallow(layers), patched=True)
    there = {each for each in default if 0 <= each <= layers}
    if default == tuple(sorted(there)):
        assert found.word == "works"
    elif release in {"0.16.0", "0.17.1"}:  # whatever they are, they are looked at
        assert (found.word, found.first and found.first.when) == ("error", "config")
        assert found.first is not None
        assert str(list(default)) in found.first.text[0]
    elif len(there) < len(default):
        assert (found.word, found.first and found.first.when) == ("error", "first-step")
    else:  # of three layers: (2, 1, 0) come as 0, 1, 2
        assert found.word == ("wrong-result" if ids else "works")
        assert any("come in the order [0, 1, 2]" in note for note in found.notes) is not bool(ids)


@pytest.mark.parametrize("layers", range(1, 8))
def test_default_layers_of_a_shallow_target_as_it_is(tmp_path: Path, layers: int) -> None:
    found = preflight(tmp_path, {**LLAMA, "eagle_config": {}}, "0.33.0", target=_shallow(layers))
    works = layers >= 7
    assert (found.word == "works") is works
