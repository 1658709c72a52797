"""Other configs of the target and the engine, and those that are refused; a part of plan_full."""

from __future__ import annotations

from dataclasses import replace

from vpatch.smoke import judge, judge_full
from vpatch.smoke.cases import LLAMA_NESTED
from vpatch.smoke.plan import Builder
from vpatch.smoke.plan_core import CONFIG_ERROR_S, ask, start_name, target_alone
from vpatch.smoke.releases import Runner

_FLOAT16 = "float16"


def add_configs(builder: Builder, runner: Runner) -> None:
    """What a Llama drafter is asked there."""
    _add_float16(builder, runner)
    if "new" in builder.facts.schemas:
        _add_new_schema(builder, runner)
    _add_pipeline(builder, runner)
    if builder.facts.wants_whole_drafters:
        _add_without_fc(builder, runner)


def _add_float16(builder: Builder, runner: Runner) -> None:
    """DeepSeek-V3's layers keep their states divided by routed_scaling_factor in float16 alone."""
    builder.targets[_FLOAT16] = {"dtype": _FLOAT16}
    drafter = replace(LLAMA_NESTED, name="llama-float16", target=_FLOAT16)
    base = start_name("target-float16", runner, "eager")
    start = start_name("float16", runner, "eager")
    own = {"dtype": _FLOAT16}
    builder.start(base, None, runner, target=_FLOAT16, options=own, more=own)
    builder.start(start, drafter, runner, options=own, more=own)
    ask(builder, start, drafter.asked, base)


def _add_new_schema(builder: Builder, runner: Runner) -> None:
    """A config.json as transformers writes it: the same model."""
    builder.targets["new-schema"] = {"schema": "new"}
    base = target_alone(builder, "kimi", runner, "eager")
    start = start_name("new-schema", runner, "eager")
    builder.start(start, LLAMA_NESTED, runner, target="new-schema", more={"guesses": True})
    ask(builder, start, LLAMA_NESTED.asked, base)
    builder.check(f"guesses/{start}", [start], judge.right_guesses(start))


def _add_pipeline(builder: Builder, runner: Runner) -> None:
    """Two pipeline stages; where they would run is not looked at before (`mp`)."""
    start = start_name("pipeline", runner, "eager")
    options = {"pipeline_parallel_size": 2, "distributed_executor_backend": "mp"}
    builder.start(start, LLAMA_NESTED, runner, target="unreadable", options=options)
    said = r"does not work with pipeline_parallel_size=2"
    builder.check_start(f"refused/{start}", start, judge.refused(said, CONFIG_ERROR_S))


def _add_without_fc(builder: Builder, runner: Runner) -> None:
    """A drafter's checkpoint that is not whole."""
    drafter = replace(LLAMA_NESTED, name="without-fc", lacks=("fc.weight",))
    start = start_name("without-fc", runner, "eager")
    builder.start(start, drafter, runner)
    said = r"checkpoint lacks \[[^]]*fc\.weight"
    builder.check_start(f"refused-weights/{start}", start, judge_full.refused_weights(said))
