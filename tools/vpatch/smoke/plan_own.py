"""A smoke of a user's own checkpoints: does it start, is it lossless, what is accepted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vpatch.errors import UsageError
from vpatch.smoke import judge_own
from vpatch.smoke.cases import DRAFTS, Job
from vpatch.smoke.judge import Check
from vpatch.smoke.plan import Plan, Wish, check_names, wanted
from vpatch.smoke.releases import ReleaseFacts
from vpatch.smoke.run import Start

_LIMIT_S = 4 * 3600.0  # a trillion parameters take their time
_TOKENS = 128
_LENGTH = 4096
_OURS = ("model", "speculative_config", "seed", "tokenizer", "disable_log_stats")
PROMPTS = (
    "Write a Python function that merges two sorted lists, and explain its complexity.",
    "Summarise in three sentences why the sky is blue.",
    "A train leaves at 9:40 and arrives at 13:05. How long does it travel? Think step by step.",
    "Translate into French: The committee will decide on the proposal next Tuesday.",
    "Give five names for a cat, as a JSON list.",
    "What is the difference between a mutex and a semaphore?",
    "Continue: Once upon a time, in a village by the sea,",
    "List the prime numbers between 50 and 100.",
)


@dataclass(frozen=True)
class Own:
    """A user's checkpoints.

    Attributes:
        target, drafter: Their folders.
        options: Laid over the arguments of ``LLM(...)``: ``tensor_parallel_size``, say.
        length: ``max_model_len``, where the options do not say it.
    """

    target: Path
    drafter: Path
    options: Mapping[str, Any]
    length: int = _LENGTH


def read_options(given: Sequence[str]) -> dict[str, Any]:
    """``NAME=JSON`` words as arguments of ``LLM(...)``; what is no JSON is a string.

    Raises:
        UsageError: A word without ``=``, or a name that is no identifier.
    """
    options: dict[str, Any] = {}
    for word in given:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(
                f"--option {word!r} is not NAME=VALUE",
                hint="For example: --option tensor_parallel_size=8",
                code="bad-option",
            )
        if name in _OURS:
            raise UsageError(
                f"--option {name} is not to be set: the smoke sets it, or the comparison is void",
                hint=f"Not to be set: {', '.join(_OURS)}.",
                code="bad-option",
            )
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def check_folder(role: str, folder: Path) -> Path:
    """A checkpoint's folder.

    Raises:
        UsageError: It is none.
    """
    if not _has_config(folder):
        raise UsageError(
            f"--{role} {folder} is no checkpoint: it has no config.json that is a JSON object",
            hint="Name a folder with config.json and safetensors files.",
            code="no-checkpoint",
        )
    return folder.absolute()


def _has_config(folder: Path) -> bool:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and isinstance(config.get("text_config", {}), dict)


def own_plan(wish: Wish, own: Own, facts: ReleaseFacts) -> Plan:
    """The target alone and with its drafter, on every runner.

    Raises:
        UsageError: The wish names a check that there is not.
    """
    starts: list[Start] = []
    checks: list[Check] = []
    for runner in wish.runners:
        base, start = f"target/{runner}", f"drafter/{runner}"
        variables = facts.variables(wish.device, runner)
        starts += [
            Start(name, _job(own, drafts, wish, facts), variables, limit=_LIMIT_S)
            for name, drafts in ((base, False), (start, True))
        ]
        checks += [
            Check(f"starts/{base}", (base,), judge_own.started(base), judge_own.did_start),
            Check(f"starts/{start}", (start,), judge_own.started(start), judge_own.did_start),
            Check(f"greedy/{start}", (start, base), judge_own.same_answers(start, base)),
            Check(f"accepted/{start}", (start,), judge_own.accepted(start)),
        ]
    check_names(wish.checks, [check.name for check in checks])
    kept = tuple(check for check in checks if wanted(check.name, wish.checks))
    needed = {name for check in kept for name in check.starts}
    notes = ("Aux states are not compared: the float32 reference is for tiny checkpoints",)
    return Plan({}, (), (), tuple(one for one in starts if one.name in needed), kept, notes)


def _job(own: Own, drafts: bool, wish: Wish, facts: ReleaseFacts) -> Job:
    drafter: Job = {"drafter": str(own.drafter)} if drafts else {}
    phase = {
        "name": "batch",
        "prompts": list(PROMPTS),
        "tokens": _TOKENS,
        "sampling": {"logprobs": 2},
    }
    return {
        "target": str(own.target),
        **drafter,
        "drafts": DRAFTS,
        "look": False,
        "record": False,
        "plugin": facts.needs_cpu_drafter and wish.device == "cpu",
        "guard_scan": facts.scans_modules and wish.device == "cpu",
        "options": {**_options(own, wish, facts), **own.options},
        "phases": [phase],
    }


def _options(own: Own, wish: Wish, facts: ReleaseFacts) -> Job:
    options = {"max_model_len": own.length, **facts.options(wish.device)}
    # Whether their code is run is for its user to say: --option trust_remote_code=true.
    del options["trust_remote_code"]
    return options


def length_of(target: Path) -> int:
    """Long enough for the prompts, and no longer than the checkpoint says that it takes."""
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    text = config.get("text_config", config)
    longest = text.get("max_position_embeddings")
    return min(longest, _LENGTH) if isinstance(longest, int) and longest > 0 else _LENGTH
