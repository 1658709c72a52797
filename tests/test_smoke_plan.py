"""What a smoke run starts and asks, for every release, device, tier and model runner."""

from __future__ import annotations

import json
import re

import pytest
from packaging.version import Version

import smoke_lab as lab
from vpatch.errors import UsageError
from vpatch.smoke.cases import DRAFTERS, SCALES, Tier
from vpatch.smoke.environment import Device
from vpatch.smoke.judge import Judged
from vpatch.smoke.plan import Builder, Copy, Plan, Preparation, Wish
from vpatch.smoke.releases import Runner, facts_of
from vpatch.smoke.session import UNREADABLE

# What session.py and run.py put in the scratch folder beside the starts' own folders.
TAKEN = {"lib", "home", "models", "models-of-spec", "reference", "compiled", "wheel", "engine.lock"}

every = pytest.mark.parametrize(
    ("version", "device", "tier", "runner"),
    [
        pytest.param(*one, id="-".join(str(part or "all") for part in one))
        for one in lab.combinations()
    ],
)


def names(plan: Plan, kind: str) -> list[str]:
    return [entry["name"] for entry in plan.models[kind]]


def made(plan: Plan) -> list[str]:
    """The names of all checkpoints that a plan makes."""
    return [
        UNREADABLE,
        *names(plan, "targets"),
        *names(plan, "drafters"),
        *(one.name for one in plan.preparations),
        *(one.name for one in plan.copies),
    ]


def used(plan: Plan) -> set[str]:
    """The names of all checkpoints that its starts name."""
    roles = ("target", "drafter")
    return {one.job[role] for one in plan.starts for role in roles if one.job.get(role)}


def first_parts(plan: Plan) -> set[str]:
    return {check.name.partition("/")[0] for check in plan.checks}


def starts_of(plan: Plan, *words: str) -> set[str]:
    return {one.name for one in plan.starts if all(word in one.name for word in words)}


# complete and without twins


@every
def test_a_plan_holds_what_it_names(
    version: str, device: Device, tier: Tier, runner: Runner | None
) -> None:
    plan = lab.plan(version, device, tier, runner)
    started = [one.name for one in plan.starts]
    asked = {start for check in plan.checks for start in check.starts}
    assert asked == set(started)
    assert all(check.starts for check in plan.checks)
    assert used(plan) <= set(made(plan))
    for each in ([one.name for one in plan.checks], started, made(plan)):
        assert len(each) == len(set(each))
    # Folders too.
    folders = [name.replace("/", "-") for name in started] + [one.name for one in plan.preparations]
    assert len(folders) == len(set(folders))
    assert not TAKEN & set(folders)


@every
def test_a_plan_can_be_written_as_json(
    version: str, device: Device, tier: Tier, runner: Runner | None
) -> None:
    plan = lab.plan(version, device, tier, runner)
    for job in (plan.models, *(one.job for one in plan.starts)):
        assert json.loads(json.dumps(job, allow_nan=False)) == job
    for step in (*plan.preparations, *plan.copies):
        json.dumps(vars(step), default=dict)
    for start in plan.starts:
        assert all(type(value) is str for value in start.variables.values())


@every
def test_drafters_lie_beside_targets_of_the_plan_and_steps_after_what_they_take(
    version: str, device: Device, tier: Tier, runner: Runner | None
) -> None:
    plan = lab.plan(version, device, tier, runner)
    assert {entry["target"] for entry in plan.models["drafters"]} <= set(names(plan, "targets"))
    there = set(names(plan, "targets")) | set(names(plan, "drafters"))
    for step in plan.preparations:
        assert step.job["target"] in there, step.name
        there.add(step.name)
    for copy in plan.copies:
        assert copy.of in there
    for start in plan.starts:
        if start.job.get("record") and start.job.get("drafter"):
            assert start.job["ids"] == sorted(start.job["ids"])


@every
def test_engines_can_share_a_gpu(
    version: str, device: Device, tier: Tier, runner: Runner | None
) -> None:
    """Profiling finds what another engine frees in the meantime; a size that is told does not."""
    for start in lab.plan(version, device, tier, runner).starts:
        options = start.job["options"]
        told = {"kv_cache_memory_bytes", "--kv-cache-memory-bytes"} & set(options)
        assert len(told) == (device == "cuda"), start.name


@every
def test_prompts_and_answers_fit(
    version: str, device: Device, tier: Tier, runner: Runner | None
) -> None:
    for start in lab.plan(version, device, tier, runner).starts:
        limit = SCALES[device].length
        phases = start.job.get("phases") or [start.job]
        for phase in phases:
            longest = max(map(len, phase["prompts"]))
            # A picture takes four tokens in its placeholder's place; drafts look ahead.
            assert longest + 3 + phase["tokens"] + start.job["drafts"] < limit, start.name


@every
def test_what_reads_weights_is_not_refused_by_them(
    version: str, device: Device, tier: Tier, runner: Runner | None
) -> None:
    plan = lab.plan(version, device, tier, runner)
    unreadable = {one.name for one in plan.starts if one.job["target"] == UNREADABLE}
    judged_by_error = {
        check.starts
        for check in plan.checks
        if check.name.startswith(("refused/ids-", "refused/pipeline/"))
    }
    assert {(name,) for name in unreadable} == judged_by_error
    for check in plan.checks:
        if set(check.starts) & unreadable:
            assert check.on_error is not None


# tiers, runners, devices


@pytest.mark.parametrize("version", lab.RELEASES)
@pytest.mark.parametrize("device", lab.DEVICES)
def test_full_asks_all_that_core_asks(version: str, device: Device) -> None:
    core, full = lab.plan(version, device, "core"), lab.plan(version, device, "full")
    assert {one.name for one in core.checks} < {one.name for one in full.checks}
    jobs = {one.name: one for one in full.starts}
    assert all(jobs[one.name] == one for one in core.starts)


@pytest.mark.parametrize("version", lab.RELEASES)
@pytest.mark.parametrize("tier", lab.TIERS)
def test_all_runners_are_one_after_the_other(version: str, tier: Tier) -> None:
    together = {one.name for one in lab.plan(version, "cuda", tier).checks}
    runners: list[Runner] = ["v1"] if version == "0.16.0" else ["v1", "v2"]
    single = [{one.name for one in lab.plan(version, "cuda", tier, one).checks} for one in runners]
    refusals = {name for names in single for name in names if name.startswith("refused/ids-")}
    assert together - refusals == set.union(*single) - refusals
    # Configs are read before a runner is chosen: once is enough.
    assert {name for name in together & refusals if "/v2/" in name} == set()
    for runner, names in zip(runners, single, strict=True):
        assert all(f"/{runner}/" in name for name in names)


@pytest.mark.parametrize("version", lab.RELEASES)
def test_a_runner_is_chosen_by_its_variable(version: str) -> None:
    for start in lab.plan(version, "cuda", "full").starts:
        chosen = start.variables["VLLM_USE_V2_MODEL_RUNNER"]
        assert f"/v{int(chosen) + 1}/" in start.name


def test_modes() -> None:
    def modes(device: Device, tier: Tier) -> set[str]:
        plan = lab.plan("0.17.1", device, tier, "v1")
        return {one.name.rpartition("/")[2] for one in plan.starts}

    assert modes("cpu", "core") == modes("cuda", "core") == {"eager"}
    assert modes("cpu", "full") == {"eager", "compile"}
    assert modes("cuda", "full") == {"eager", "graphs"}


@pytest.mark.parametrize("device", lab.DEVICES)
def test_only_eager_starts_are_eager(device: Device) -> None:
    for start in lab.plan("0.17.1", device, "full").starts:
        eager = start.name.endswith("/eager")
        assert (start.variables.get("TORCH_COMPILE_DISABLE") == "1") is eager
        assert start.fresh_cache is not eager
        if start.module == "start":
            assert start.job["options"]["enforce_eager"] is eager
            assert start.job["compile"] is start.name.endswith("/compile")


def test_no_drafter_with_mla_where_a_cpu_cannot() -> None:
    for version in lab.RELEASES:
        for tier in lab.TIERS:
            plan = lab.plan(version, "cpu", tier)
            kinds = {entry["kind"].startswith("mla") for entry in plan.models["drafters"]}
            without = version not in {"0.16.0", "0.17.1"}
            assert kinds == ({False} if without else {True, False})
            told = [note for note in plan.notes if f"v{version} has no MLA kernel" in note]
            assert len(told) == len(plan.notes) == without
    for version in lab.RELEASES:
        plan = lab.plan(version, "cuda")
        assert plan.notes == ()
        assert {entry["kind"] for entry in plan.models["drafters"]} >= {
            "llama",
            "llama-random",
            "mla",
            "mla-random",
            "mla31",
        }


def test_every_drafter_of_the_core_is_asked_the_same() -> None:
    plan = lab.plan("0.17.1", "cpu")
    asked = {check.name for check in plan.checks}
    for drafter in (one for one in DRAFTERS if one.tier == "core"):
        start = f"{drafter.name}/v1/eager"
        for what in ("starts", "ids", "states", "greedy", "mixed-batch"):
            assert f"{what}/{start}" in asked
        assert (f"accepted/{start}" in asked) is drafter.guesses_some
        assert f"guesses/{start}" in asked
    for name in ("llama-nested", "llama-random"):
        assert f"chunked-prefill/{name}/v1/eager" in asked
        assert f"inputs/{name}/v1/eager" in asked
    assert "starts/target/v1/eager" in asked
    assert len([name for name in asked if name.startswith("refused/ids-")]) == 4


def test_ids_that_are_asked_for_are_those_of_the_drafter() -> None:
    ids = {one.name: one.job.get("ids") for one in lab.plan("0.17.1", "cpu").starts}
    assert ids["llama-nested/v1/eager"] == [1, 3, 7]
    assert ids["llama-default/v1/eager"] == [2, 4, 5]  # vLLM's default of eight layers
    assert ids["mla-plain/v1/eager"] == [0, 1, 2, 7, 8]
    assert ids["target/v1/eager"] is None


def test_prompts_come_in_pieces_where_they_have_to() -> None:
    for device in lab.DEVICES:
        starts = {one.name: one for one in lab.plan("0.17.1", device, "core", "v1").starts}
        for name in ("llama-nested/v1/eager", "llama-random/v1/eager"):
            options = starts[name].job["options"]
            assert options["max_num_batched_tokens"] < max(SCALES[device].prompts)
            (batch, _mixed) = starts[name].job["phases"]
            assert sum(map(len, batch["prompts"])) > options["max_num_batched_tokens"]
        # The same kind of drafter, with whole prompts.
        assert "max_num_batched_tokens" not in starts["llama-outputs/v1/eager"].job["options"]


@every
def test_what_is_embedded_is_heard_where_it_is_asked_for_and_no_graph_hides_it(
    version: str, device: Device, tier: Tier, runner: Runner | None
) -> None:
    plan = lab.plan(version, device, tier, runner)

    def of(kind: str) -> set[str]:
        return {start for one in plan.checks if one.name.startswith(kind) for start in one.starts}

    heard = {one.name for one in plan.starts if one.job.get("embeds")}
    assert of("inputs/") == heard - of("refused/")
    assert all(name.endswith("/eager") for name in heard)
    # It is compared beside guesses.
    assert all(one.job["guesses"] for one in plan.starts if one.name in heard)


def test_mrv2_of_0_17_has_to_refuse_llama_drafters() -> None:
    asked = {check.name for check in lab.plan("0.17.1", "cuda", "full", "v2").checks}
    assert "refused/llama-nested/v2/eager" in asked
    assert not {name for name in asked if re.match(r"(?!refused)[\w-]+/llama-", name)}
    assert "states/mla-yarn/v2/eager" in asked


def test_what_stands_in_for_a_gpu_is_for_a_cpu_only() -> None:
    for start in lab.plan("0.17.1", "cuda", "full").starts:
        assert not start.job.get("plugin")
        assert "native_rotary" not in start.job
        assert start.variables.get("CUDA_VISIBLE_DEVICES") is None
    for start in lab.plan("0.17.1", "cpu", "full").starts:
        assert start.job["plugin"] is True
        assert start.variables["CUDA_VISIBLE_DEVICES"] == ""


def test_int4_is_for_gpus() -> None:
    assert starts_of(lab.plan("0.17.1", "cuda", "full", "v1"), "int4")
    assert not starts_of(lab.plan("0.17.1", "cpu", "full"), "int4")


def test_pictures_are_only_where_prompts_have_them() -> None:
    for start in lab.plan("0.17.1", "cpu", "full").starts:
        if start.module == "start":
            pictures = any(
                start.job["media"] in prompt
                for phase in start.job["phases"]
                for prompt in phase["prompts"]
                if "media" in start.job
            )
            assert pictures is ("picture" in start.name)
            assert pictures is ("limit_mm_per_prompt" not in start.job["options"])


def test_a_picture_lies_behind_the_end_of_a_piece_and_over_it() -> None:
    (start,) = (
        one
        for one in lab.plan("0.32.0", "cpu", "full", "v1").starts
        if one.name == "picture-pieces/v1/eager"
    )
    piece = start.job["options"]["max_num_batched_tokens"]
    prompts = [prompt for phase in start.job["phases"] for prompt in phase["prompts"]]
    media = start.job["media"]
    behind, over = (prompt.index(media) % piece for prompt in prompts)
    assert behind == 0
    assert over + 4 > piece  # a picture takes four tokens
    # One picture for all prompts: start.py makes it of the prompt's length.
    assert len({len(prompt) for prompt in prompts}) == 1


def test_embeddings_of_pictures_are_for_series_that_hand_them_over() -> None:
    for version in lab.RELEASES:
        for device in lab.DEVICES:
            plan = lab.plan(version, device, "full", "v1")
            found = starts_of(plan, "picture") - starts_of(plan, "target-picture")
            new = {"picture-embeds/v1/eager", "picture-pieces/v1/eager"}
            new |= {"picture-embeds/v1/graphs"} if device == "cuda" else set()
            without = version in {"0.16.0", "0.17.1"}
            assert found == {"picture/v1/eager"} | (set() if without else new)
            told = {
                entry["name"]: entry["changes"]["eagle_config"].get("use_multimodal_embeddings")
                for entry in plan.models["drafters"]
                if "eagle_config" in entry["changes"] and entry["name"].startswith("llama-")
            }
            assert told == ({} if without else {"llama-pictures": True})


def test_float16_is_the_checkpoints_and_the_engines() -> None:
    for device in lab.DEVICES:
        plan = lab.plan("0.17.1", device, "full", "v1", "states/float16")
        (start,) = plan.starts
        assert start.job["dtype"] == start.job["options"]["dtype"] == "float16"
        (entry,) = (one for one in plan.models["targets"] if one["name"] == "float16")
        assert entry["dtype"] == "float16"
        assert [one["target"] for one in plan.models["drafters"]] == ["float16"]
        # No other start has it.
        whole = lab.plan("0.17.1", device, "full", "v1")
        having = {one.name for one in whole.starts if one.job.get("dtype") == "float16"}
        assert having == {"float16/v1/eager", "target-float16/v1/eager"}


def test_the_new_schema_is_for_releases_that_read_it() -> None:
    for version in lab.RELEASES:
        plan = lab.plan(version, "cuda", "full")
        new = {one["name"] for one in plan.models["targets"] if one["schema"] == "new"}
        assert new == ({"new-schema"} if version in {"0.32.0", "0.33.0"} else set())
        assert bool(starts_of(plan, "new-schema")) is bool(new)


def test_what_is_refused_in_the_full_tier() -> None:
    def refusals(version: str, device: Device, tier: Tier, runner: Runner) -> set[str]:
        plan = lab.plan(version, device, tier, runner)
        return {one.name for one in plan.checks if one.name.startswith("refused")}

    added = refusals("0.17.1", "cpu", "full", "v1") - refusals("0.17.1", "cpu", "core", "v1")
    old = {"refused/pipeline/v1/eager", "refused/ids-outputs-outside/v1/eager"}
    assert added == old
    added = refusals("0.33.0", "cuda", "full", "v2") - refusals("0.33.0", "cuda", "core", "v2")
    assert added == {
        "refused/pipeline/v2/eager",
        "refused/ids-outputs-outside/v2/eager",
        "refused-weights/without-fc/v2/eager",
    }
    plan = lab.plan("0.33.0", "cuda", "full", "v1", "refused-weights")
    assert [entry["lacks"] for entry in plan.models["drafters"]] == [["fc.weight"]]
    # Its own error is the answer, so its target is one that loads.
    assert [one.job["target"] for one in plan.starts] == ["kimi"]


# --check


def test_a_check_narrows_to_what_it_needs() -> None:
    plan = lab.plan("0.17.1", "cpu", "core", "v1", "states/llama-nested")
    assert [one.name for one in plan.checks] == ["states/llama-nested/v1/eager"]
    assert [one.name for one in plan.starts] == ["llama-nested/v1/eager"]
    assert names(plan, "drafters") == ["llama-nested"]
    assert names(plan, "targets") == ["kimi"]
    assert not plan.copies
    assert not plan.preparations


def test_a_comparison_brings_the_target_alone() -> None:
    plan = lab.plan("0.17.1", "cpu", "full", "v1", "greedy/llama-short")
    assert {one.name for one in plan.starts} == {
        "target-short/v1/compile",
        "llama-short/v1/compile",
    }
    assert set(names(plan, "targets")) == {"kimi", "short"}
    assert names(plan, "drafters") == ["llama-short"]


def test_a_trained_drafter_brings_what_it_is_made_of() -> None:
    plan = lab.plan("0.17.1", "cpu", "full", "v1", "trained")
    trained = [f"trained-{seed}" for seed in range(5)]
    assert [one.name for one in plan.preparations] == ["listener", *trained]
    assert [one.name for one in plan.copies] == [f"{name}-shifted" for name in trained]
    assert names(plan, "targets") == ["kimi"]
    assert names(plan, "drafters") == []
    without = lab.plan("0.17.1", "cpu", "full", "v1", "states")
    assert not without.copies
    assert not without.preparations


def test_checks_can_be_named_by_any_first_parts() -> None:
    plan = lab.plan("0.17.1", "cpu", "core", None, "ids", "refused/ids-outside/v1/eager")
    assert first_parts(plan) == {"ids", "refused"}
    assert starts_of(plan, "ids-") == {"ids-outside/v1/eager"}


def test_part_of_a_word_names_nothing() -> None:
    # "states/llama" is not the first part of "states/llama-nested".
    for name in ("banana", "stat", "states/llama", "states/llama-nested/v2", "", "states/"):
        with pytest.raises(UsageError, match="no check of this run is") as caught:
            lab.plan("0.17.1", "cpu", "core", "v1", "ids", name)
        assert "chunked-prefill" in caught.value.hint
        assert caught.value.code == "no-check"


def test_a_copy_brings_what_it_is_a_copy_of() -> None:
    facts = facts_of(Version("0.17.1"))
    builder = Builder(Wish("cpu", "core", ("v1",)), facts)
    job = {"target": "short", "out": "trained"}
    builder.prepare(Preparation("trained", "train", job), Copy("copied", "trained", {}))
    name = builder.start("a", "copied", "v1", target="kimi")
    builder.check("starts/a", [name], lambda _found: Judged("pass", ""))
    plan = builder.plan()
    assert [one.name for one in plan.preparations] == ["trained"]
    assert names(plan, "targets") == ["kimi", "short"]
