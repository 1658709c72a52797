"""What a smoke run starts and asks: checkpoints, engine starts, checks.

plan_core.py and plan_full.py fill it; planner.py puts it together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vpatch.errors import UsageError
from vpatch.smoke.cases import DRAFTS, MEDIA, SCALES, Drafter, Job, Mode, Tier, prompts, with_echo
from vpatch.smoke.environment import Device
from vpatch.smoke.judge import Check, Judged, Outcomes
from vpatch.smoke.releases import ReleaseFacts, Runner
from vpatch.smoke.run import ONE_THREAD, Outcome, Start

# A KV cache of a size that is told, not found by profiling: engines can share a GPU. What vLLM is
# to use of the GPU it then only wants to find free.
_GPU_MEMORY: Mapping[str, Any] = {
    "kv_cache_memory_bytes": 256 << 20,
    "gpu_memory_utilization": 0.05,
}


@dataclass(frozen=True)
class Wish:
    """What is to be run.

    Attributes:
        runners: Model runners of vLLM; several are run one after the other.
        checks: Names, or first parts of names; all where empty.
    """

    device: Device
    tier: Tier
    runners: tuple[Runner, ...]
    checks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Preparation:
    """A checkpoint that a module of its own writes before the engines start.

    Attributes:
        name: Of the checkpoint.
        module: The engine-side module.
        job: What it reads; names of checkpoints stand for their folders.
        limit: Seconds until it is ended.
    """

    name: str
    module: str
    job: Mapping[str, Any]
    limit: float = 300.0


@dataclass(frozen=True)
class Copy:
    """A checkpoint with another one's weights, and changes laid over its config."""

    name: str
    of: str
    changes: Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """What will be run.

    Attributes:
        models: The SPEC of engine/models.py, without its folder.
        preparations: What is made of them, in order.
        copies: What is copied after that.
        starts: In order; jobs name checkpoints, not folders.
        checks: In the order in which they are told.
        notes: What is not asked here, and why.
    """

    models: Mapping[str, Any]
    preparations: tuple[Preparation, ...]
    copies: tuple[Copy, ...]
    starts: tuple[Start, ...]
    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()


def wanted(check: str, names: Sequence[str]) -> bool:
    """Whether a check is one of these, or below one of them."""
    return not names or any(check == name or check.startswith(f"{name}/") for name in names)


def check_names(names: Sequence[str], checks: Sequence[str]) -> None:
    """Looks whether each name is a check's, or a first part of one.

    Raises:
        UsageError: One is not.
    """
    for name in names:
        if not any(wanted(check, [name]) for check in checks):
            known = sorted({check.partition("/")[0] for check in checks})
            raise UsageError(
                f"no check of this run is {name!r}, or below it",
                hint=f"Checks begin with: {', '.join(known)}; --tier full has more.",
                code="no-check",
            )


class Builder:
    """Gathers a plan's parts.

    Attributes:
        wish, facts, scale: What it is for.
        targets: By name, entries of the SPEC.
        notes: What is not asked, and why.
    """

    def __init__(self, wish: Wish, facts: ReleaseFacts) -> None:
        self.wish = wish
        self.facts = facts
        self.scale = SCALES[wish.device]
        self.targets: dict[str, Job] = {"kimi": {}, "short": {"layers": 2, "dense": 2}}
        self.notes: list[str] = []
        self._starts: dict[str, Start] = {}
        self._checks: list[Check] = []
        self._drafters: dict[str, Drafter] = {}
        self._preparations: dict[str, Preparation] = {}
        self._copies: dict[str, Copy] = {}

    def start(
        self,
        name: str,
        drafter: Drafter | str | None,
        runner: Runner,
        mode: Mode = "eager",
        *,
        target: str | None = None,
        phases: Sequence[Job] | None = None,
        options: Mapping[str, Any] | None = None,
        images: bool = False,
        more: Mapping[str, Any] | None = None,
    ) -> str:
        """Adds an engine start.

        Args:
            name: Its name.
            drafter: A drafter of the SPEC, the name of a prepared checkpoint, or None.
            runner: vLLM's model runner.
            mode: How the models run.
            target: The target's name; the drafter's own where None.
            phases: Sets of requests; those of every start where None.
            options: Laid over the options of ``LLM(...)``.
            images: Whether prompts have images.
            more: Laid over the job.
        """
        own = drafter.target if isinstance(drafter, Drafter) else "kimi"
        job: Job = {
            "target": target or own,
            "dtype": self.scale.dtype,
            "drafts": DRAFTS,
            "look": True,
            "record": True,
            "compile": mode == "compile",
            **self._stand_ins(),
            "options": {**self._options(mode, images), **(options or {})},
            "phases": list(phases or self.phases()),
            **({"media": MEDIA} if images else {}),
        }
        if isinstance(drafter, Drafter):
            self._drafters[drafter.name] = drafter
            job |= {"drafter": drafter.name, "ids": list(drafter.asked)}
            if drafter.speculative:
                job["speculative"] = dict(drafter.speculative)
        elif drafter is not None:
            job["drafter"] = drafter
        self._starts[name] = Start(
            name,
            {**job, **(more or {})},
            self._variables(runner, mode),
            fresh_cache=mode != "eager",
        )
        return name

    @property
    def started(self) -> Collection[str]:
        """The names of the starts so far."""
        return self._starts.keys()

    def serve(self, name: str, drafter: Drafter, runner: Runner) -> None:
        """Adds a start of the HTTP server; it is asked the prompts of the phase "batch"."""
        self._drafters[drafter.name] = drafter
        options = self._options("eager", images=False)
        words = ["--dtype", self.scale.dtype, "--max-model-len", str(self.scale.length)]
        words += ["--max-num-seqs", "8", "--enforce-eager", "--trust-remote-code", "--seed", "0"]
        words += ["--limit-mm-per-prompt", json.dumps(options["limit_mm_per_prompt"])]
        for option in sorted(_GPU_MEMORY.keys() & options.keys()):
            words += ["--" + option.replace("_", "-"), str(options[option])]
        job: Job = {
            "target": "kimi",
            "drafter": drafter.name,
            "drafts": DRAFTS,
            "options": words,
            "prompts": self._prompts(),
            "tokens": self.scale.tokens,
            "timeout_s": 240,
            "plugin": self.facts.needs_cpu_drafter and self.wish.device == "cpu",
        }
        variables = self._variables(runner, "eager") | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
        self._starts[name] = Start(name, job, variables, limit=420.0, module="serve")

    def check(
        self,
        name: str,
        starts: Sequence[str],
        judge: Callable[[Outcomes], Judged],
        on_error: Callable[[Outcome], Judged] | None = None,
    ) -> None:
        """Adds a check."""
        self._checks.append(Check(name, tuple(starts), judge, on_error))

    def check_start(self, name: str, start: str, judge: Callable[[Outcome], Judged]) -> None:
        """Adds a check of one start, whose error is an answer too."""
        self.check(name, [start], lambda found: judge(found[start]), judge)

    def prepare(self, *steps: Preparation | Copy) -> None:
        """Adds checkpoints that are made of others."""
        for step in steps:
            if isinstance(step, Copy):
                self._copies[step.name] = step
            else:
                self._preparations[step.name] = step

    def phases(self) -> list[Job]:
        """What every engine is asked: prompts at once, and others that come meanwhile."""
        whole = self._prompts()
        arrivals = [3 * number for number in range(len(whole))]
        tokens = self.scale.tokens
        return [
            {"name": "batch", "prompts": whole, "tokens": tokens},
            {"name": "mixed", "prompts": whole[::-1], "tokens": tokens, "arrivals": arrivals},
        ]

    def _prompts(self) -> list[list[int]]:
        return with_echo(prompts(self.scale.prompts))

    def _stand_ins(self) -> Job:
        """What engine/start.py has to put in a GPU's place."""
        if self.wish.device == "cuda":
            return {}
        return {
            "plugin": self.facts.needs_cpu_drafter,
            "guard_scan": self.facts.scans_modules,
            "native_rotary": self.facts.native_rotary,
        }

    def _options(self, mode: Mode, images: bool) -> Job:
        return {
            "dtype": self.scale.dtype,
            "max_model_len": self.scale.length,
            "max_num_seqs": 8,
            "enforce_eager": mode == "eager",
            "enable_prefix_caching": False,
            **(_GPU_MEMORY if self.wish.device == "cuda" else {}),
            **self.facts.options(self.wish.device, images=images),
        }

    def _variables(self, runner: Runner, mode: Mode) -> dict[str, str]:
        device = self.wish.device
        variables = {**self.facts.variables(device, runner), **ONE_THREAD}
        if mode == "eager":
            # Kimi's vision tower asks torch to compile even in eager mode.
            variables["TORCH_COMPILE_DISABLE"] = "1"
        return variables

    def plan(self) -> Plan:
        """What was added, as far as the wish names it.

        Raises:
            UsageError: The wish names a check that there is not.
        """
        names = self.wish.checks
        check_names(names, [check.name for check in self._checks])
        checks = tuple(check for check in self._checks if wanted(check.name, names))
        needed = {start for check in checks for start in check.starts}
        starts = tuple(start for name, start in self._starts.items() if name in needed)
        used = {start.job.get(role) for start in starts for role in ("target", "drafter")}
        copies = tuple(copy for copy in self._copies.values() if copy.name in used)
        used |= {copy.of for copy in copies}
        steps = self._steps_for(used)
        used |= {value for step in steps for value in step.job.values() if isinstance(value, str)}
        return Plan(self._models(used), steps, copies, starts, checks, tuple(self.notes))

    def _steps_for(self, used: set[Any]) -> tuple[Preparation, ...]:
        """Those whose checkpoints are used, by starts or by one another; in order."""
        found: list[Preparation] = []
        for step in reversed(self._preparations.values()):
            if step.name in used or any(step.name in later.job.values() for later in found):
                found.insert(0, step)
        return tuple(found)

    def _models(self, used: set[Any]) -> Job:
        drafters = [one for one in self._drafters.values() if one.name in used]
        named = used | {one.target for one in drafters} | {"kimi"}
        schema = self.facts.schema
        return {
            "shape": {"preset": self.scale.shape},
            "targets": [
                {"name": name, "kind": "plain", "schema": schema, **entry}
                for name, entry in self.targets.items()
                if name in named
            ],
            "drafters": [_entry(one) for one in drafters],
        }


def _entry(drafter: Drafter) -> Job:
    return {
        "name": drafter.name,
        "target": drafter.target,
        "kind": drafter.kind,
        "ids": None if drafter.ids is None else list(drafter.ids),
        "form": drafter.form,
        "vocabulary": drafter.vocabulary,
        "changes": dict(drafter.changes),
        "lacks": list(drafter.lacks),
    }
