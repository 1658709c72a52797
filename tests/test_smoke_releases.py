"""What the smoke takes for granted about each release."""

from __future__ import annotations

import pytest
from packaging.version import Version

from vpatch.errors import UsageError
from vpatch.smoke.releases import ReleaseFacts, Runner, facts_of

CHOICES: dict[Runner, str] = {"v1": "0", "v2": "1"}


def facts(version: str) -> ReleaseFacts:
    return facts_of(Version(version))


@pytest.mark.parametrize(
    ("version", "default", "cuda"),
    [
        ("0.16.0", "v1", ("v1",)),
        ("0.17.1", "v1", ("v1", "v2")),
        ("0.26.0", "v1", ("v1", "v2")),
        ("0.28.1", "v1", ("v1", "v2")),
        ("0.29.0", "v2", ("v1", "v2")),
        ("0.33.0", "v2", ("v1", "v2")),
    ],
)
def test_runners_by_release(version: str, default: str, cuda: tuple[str, ...]) -> None:
    assert facts(version).default_runner("cuda") == default
    assert facts(version).runners("cuda") == cuda
    assert facts(version).default_runner("cpu") == "v1"


@pytest.mark.parametrize("version", ["0.16.0", "0.17.1", "0.26.0", "0.33.0"])
def test_the_runner_is_chosen_by_a_variable(version: str) -> None:
    for device in ("cpu", "cuda"):
        for runner, value in CHOICES.items():
            variables = facts(version).variables(device, runner)
            assert variables["VLLM_USE_V2_MODEL_RUNNER"] == value


def test_a_cpu_needs_a_plugin_up_to_0_19() -> None:
    assert facts("0.17.1").needs_cpu_drafter
    assert facts("0.19.1").needs_cpu_drafter
    assert not facts("0.20.0").needs_cpu_drafter
    assert facts("0.17.1").variables("cpu", "v1")["TRITON_INTERPRET"] == "1"
    assert "TRITON_INTERPRET" not in facts("0.32.0").variables("cpu", "v1")


@pytest.mark.parametrize("version", ["0.20.0", "0.21.3"])
def test_two_releases_cannot_run_on_a_cpu(version: str) -> None:
    assert facts(version).runners("cpu") == ()
    assert "aux hidden states" in (facts(version).not_on("cpu") or "")
    assert facts(version).not_on("cuda") is None


def test_mla_on_a_cpu_is_expanded_then_missing_then_a_kernel() -> None:
    old, middle, new = facts("0.17.1"), facts("0.26.0"), facts("0.32.0")
    assert old.lacks(mla=True, device="cpu") is None
    assert "no CPU" in (middle.lacks(mla=True, device="cpu") or "")
    assert middle.lacks(mla=False, device="cpu") is None
    assert middle.lacks(mla=True, device="cuda") is None
    assert new.lacks(mla=True, device="cpu") is None
    off = [
        one.variables("cpu", "v1", mla=mla)["VLLM_MLA_DISABLE"]
        for one in (old, new)
        for mla in (False, True)
    ]
    assert off == ["1", "1", "1", "0"]


def test_only_the_cpus_kernel_asks_for_a_shape() -> None:
    assert facts("0.32.0").shape_changes(mla=True, device="cpu")["kv_rank"] == 512
    assert not facts("0.32.0").shape_changes(mla=False, device="cpu")
    assert not facts("0.32.0").shape_changes(mla=True, device="cuda")
    assert not facts("0.17.1").shape_changes(mla=True, device="cpu")


def test_modules_are_scanned_from_0_30_on() -> None:
    assert [facts(one).scans_modules for one in ("0.29.0", "0.32.0")] == [False, True]


@pytest.mark.parametrize("version", ["0.17.1", "0.32.0"])
def test_rotary_embeddings_are_native_where_the_kernel_was_seen_wrong(version: str) -> None:
    assert facts(version).native_rotary


def test_only_0_18_stops_without_names_in_ld_preload() -> None:
    asking = [
        version
        for version in ("0.17.1", "0.18.0", "0.19.0", "0.26.0")
        if "LD_PRELOAD" in facts(version).variables("cpu", "v1")
    ]
    assert asking == ["0.18.0"]


def test_nothing_for_a_cpu_reaches_a_gpu() -> None:
    variables = facts("0.17.1").variables("cuda", "v1")
    assert set(variables) == {"VLLM_USE_V2_MODEL_RUNNER", "VLLM_USE_FLASHINFER_SAMPLER"}


def test_the_usual_schema_is_the_hubs() -> None:
    assert facts("0.31.0").schemas == ("old",)
    assert facts("0.32.0").schemas == ("old", "new")
    assert facts("0.33.0").schema == "old"


def test_what_only_series_from_0_26_on_do() -> None:
    for version, there in (
        ("0.16.0", False),
        ("0.17.1", False),
        ("0.26.0", True),
        ("0.33.0", True),
    ):
        assert facts(version).drafts_from_pictures is there
        assert facts(version).wants_whole_drafters is there


def test_prompts_of_text_leave_the_vision_tower_out() -> None:
    assert facts("0.16.0").options("cpu")["limit_mm_per_prompt"] == {"vision_chunk": 0}
    assert "limit_mm_per_prompt" not in facts("0.16.0").options("cpu", images=True)


def test_mrv2_of_0_17_refuses_two_layouts() -> None:
    release = facts("0.17.1")
    assert "layout" in (release.refuses(mla=False, runner="v2", device="cuda") or "")
    assert release.refuses(mla=True, runner="v2", device="cuda") is None
    assert release.refuses(mla=False, runner="v1", device="cuda") is None
    assert facts("0.26.0").refuses(mla=False, runner="v2", device="cuda") is None
    assert facts("0.16.0").refuses(mla=True, runner="v2", device="cuda") is not None


def test_local_parts_and_pre_releases_are_of_no_account() -> None:
    assert facts("0.17.1+kimi.2") == facts("0.17.1")
    assert facts("0.29.0rc1") == facts("0.29.0")


def test_a_newer_release_gets_the_newest_facts_and_says_so() -> None:
    assert facts("0.33.2").read
    assert not facts("0.34.0").read
    assert facts("0.34.0").default_runner("cuda") == facts("0.33.0").default_runner("cuda")


def test_an_older_release_is_refused() -> None:
    with pytest.raises(UsageError, match=r"0\.16\.0 and newer, and this is 0\.15\.1"):
        facts("0.15.1")
