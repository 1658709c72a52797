"""What the full tier adds: features beside EAGLE-3 in one engine, HTTP, what ids are worth."""

from __future__ import annotations

from typing import Any

from vpatch.smoke import judge_full
from vpatch.smoke.cases import LLAMA_NESTED, nested_ids, prompts
from vpatch.smoke.plan import Builder, Copy, Preparation
from vpatch.smoke.plan_configs import add_configs
from vpatch.smoke.plan_core import ask, start_name
from vpatch.smoke.plan_pictures import add_pictures
from vpatch.smoke.releases import Runner

SEEDS = 5
_TRAINED_IDS = (1, 3, 7)
_SHIFTED_IDS = (2, 4, 8)
TRAINED = "trained-0"
"""One of the trained drafters, for what needs drafts to be accepted."""
_SAMPLES, _TEMPERATURE = 2000, 0.25
_BLOCK = 32


def add_full(builder: Builder, runner: Runner) -> None:
    """Everything beyond the core that runs eager."""
    if builder.facts.refuses(LLAMA_NESTED.mla, runner, builder.wish.device) is not None:
        return  # all of it is asked with a Llama drafter
    _add_prefix_caching(builder, runner)
    add_pictures(builder, runner)
    _add_training(builder, runner)
    _add_sampling(builder, runner)
    _add_structure(builder, runner)
    if builder.wish.device == "cuda":
        _add_int4(builder, runner)  # no CPU build has kernels for it
    _add_server(builder, runner)
    add_configs(builder, runner)


def _add_prefix_caching(builder: Builder, runner: Runner) -> None:
    """The same prompts twice: the second time their blocks are there."""
    start = start_name("prefix-caching", runner, "eager")
    lengths = (80, 70)
    once = {"prompts": prompts(lengths), "tokens": builder.scale.tokens}
    phases = [{"name": "first", **once}, {"name": "again", **once}]
    options: dict[str, Any] = {"enable_prefix_caching": True}
    if builder.wish.device == "cpu":
        options["block_size"] = _BLOCK
    builder.start(start, LLAMA_NESTED, runner, phases=phases, options=options)
    builder.check(f"prefix-caching/{start}", [start], judge_full.reused_blocks(start))


def _add_sampling(builder: Builder, runner: Runner) -> None:
    """Rejection sampling keeps the target's distribution.

    Beside a trained drafter: only where drafts are accepted can one that should not be show.
    """
    start = start_name("temperature", runner, "eager")
    (prompt,) = prompts((8,))
    phase = {
        "name": "sampled",
        "prompts": [prompt] * _SAMPLES,
        "tokens": 3,
        "sampling": {"temperature": _TEMPERATURE},
        "compare": False,
    }
    distribution = {"temperature": _TEMPERATURE, "fewest": 20}
    builder.start(
        start,
        TRAINED,
        runner,
        target="listener",
        phases=[phase],
        options={"max_num_seqs": 256},
        more={"record": False, "distribution": distribution, "drafts": 1},
    )
    builder.check(f"temperature/{start}", [start], judge_full.keeps_distribution(start))


def _add_structure(builder: Builder, runner: Runner) -> None:
    """A grammar holds, and the answers are those of the target alone under it."""
    start = start_name("structured-output", runner, "eager")
    base = start_name("target-structured", runner, "eager")
    phase = {
        "name": "structured",
        "prompts": prompts([8] * 8, seed=13),
        "tokens": 20,
        "sampling": {
            "structured_outputs": {"regex": judge_full.GRAMMAR},
            "ignore_eos": False,
            "detokenize": True,
        },
        "compare": False,
    }
    more = {"record": False}
    builder.start(base, None, runner, target="listener", phases=[phase], more=more)
    builder.start(start, TRAINED, runner, target="listener", phases=[phase], more=more)
    builder.check(f"structured-output/{start}", [start, base], judge_full.obeyed(start, base))


def _add_training(builder: Builder, runner: Runner) -> None:
    """Drafters trained on these layers, with their ids and with ids shifted by one."""
    builder.prepare(
        Preparation("listener", "listener", {"target": "kimi", "out": "listener"}),
    )
    right: list[str] = []
    wrong: list[str] = []
    phases = [
        {
            "name": "accept",
            "prompts": prompts([8] * 32, seed=11),
            "tokens": 32,
        }
    ]
    device = builder.wish.device
    for seed in range(SEEDS):
        name = f"trained-{seed}"
        job = {
            "target": "listener",
            "out": name,
            "ids": list(_TRAINED_IDS),
            "seed": seed,
            "seconds": 300,
            "device": device,
        }
        builder.prepare(
            Preparation(name, "train", job, limit=400.0),
            Copy(f"{name}-shifted", name, nested_ids(_SHIFTED_IDS)),
        )
        for drafter, ids, into in (
            (name, _TRAINED_IDS, right),
            (f"{name}-shifted", _SHIFTED_IDS, wrong),
        ):
            start = start_name(drafter, runner, "eager")
            more = {"ids": list(ids)}
            builder.start(start, drafter, runner, target="listener", phases=phases, more=more)
            into.append(start)
    builder.check(
        f"trained/{runner}/eager", [*right, *wrong], judge_full.trained_for_ids(right, wrong)
    )


def _add_int4(builder: Builder, runner: Runner) -> None:
    """Experts in compressed-tensors INT4, as the real checkpoint ships them."""
    builder.targets["int4"] = {"kind": "int4"}
    base = start_name("target-int4", runner, "eager")
    start = start_name("int4", runner, "eager")
    builder.start(base, None, runner, target="int4")
    builder.start(start, LLAMA_NESTED, runner, target="int4")
    ask(builder, start, LLAMA_NESTED.asked, base)


def _add_server(builder: Builder, runner: Runner) -> None:
    """The same answers over HTTP as in process."""
    start = start_name("server", runner, "eager")
    base = start_name("target", runner, "eager")
    builder.serve(start, LLAMA_NESTED, runner)
    builder.check(f"server/{start}", [start, base], judge_full.served_the_same(start, base))
    builder.check_start(f"starts/{start}", start, judge_full.did_serve)
