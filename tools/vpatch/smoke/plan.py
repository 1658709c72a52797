"""What a smoke run starts and asks: checkpoints, engine starts, checks."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vpatch.errors import UsageError
from vpatch.smoke import judge
from vpatch.smoke.environment import Device
from vpatch.smoke.judge import Check
from vpatch.smoke.releases import ReleaseFacts, Runner
from vpatch.smoke.run import Start

Tier = Literal["core", "full"]
Mode = Literal["eager", "compile", "graphs"]
Job = dict[str, Any]

DRAFTS = 3
_CONFIG_ERROR_S = 60.0
_VOCAB, _MEDIA, _LAYERS = 512, 500, 8


@dataclass(frozen=True)
class Drafter:
    """A drafter of the smoke.

    Attributes:
        kind, ids, form, vocabulary, changes: As in the SPEC of engine/models.py.
        guesses_some: It is made to guess some of the target's tokens.
    """

    name: str
    kind: str
    ids: tuple[int, ...] | None
    form: str
    vocabulary: str = "reduced"
    changes: Mapping[str, Any] = field(default_factory=dict)
    guesses_some: bool = False
    tier: Tier = "core"

    @property
    def asked(self) -> tuple[int, ...]:
        """The ids that vLLM has to use; for a config that names none its default."""
        return self.ids or (2, _LAYERS // 2, _LAYERS - 3)

    @property
    def mla(self) -> bool:
        """Whether it has MLA, as the target has."""
        return self.kind.startswith("mla")


DRAFTERS = (
    Drafter("llama-nested", "llama", (1, 3, 7), "nested", guesses_some=True),
    Drafter("llama-default", "llama", None, "none", "full", guesses_some=True),
    Drafter("mla-yarn", "mla", (1, 3, 7), "nested", guesses_some=True),
    Drafter("mla-plain", "mla31", (0, 1, 2, 7, 8), "nested", "full"),
    Drafter("llama-top-level", "llama", (2, 3, 5), "top-level", guesses_some=True, tier="full"),
    Drafter("llama-ends", "llama", (0, 4, 8), "nested", guesses_some=True, tier="full"),
    Drafter("llama-speculators", "llama", (1, 3, 7), "speculators", tier="full"),
    Drafter("mla-norm", "mlanorm", None, "none", "full", tier="full"),
)

# Wrong ids for a drafter whose `fc` takes three states -> what its refusal has to say.
WRONG_IDS: Mapping[str, tuple[tuple[int, ...], str]] = {
    "ids-outside": ((1, 3, 99), r"\[99\].*8 layers"),
    "ids-descending": ((7, 3, 1), r"\[7, 3, 1\].*ascending"),
    "ids-repeated": ((1, 1, 7), r"\[1, 1, 7\].*twice"),
    "ids-not-as-wide-as-fc": ((1, 3), r"\[1, 3\].*\bfc\b"),
}


@dataclass(frozen=True)
class Scale:
    """How large the models and the prompts are on a device.

    Attributes:
        shape: A preset of engine/shapes.py.
        prompts: Lengths of the prompts that come at once.
        tokens: How many are generated for each.
        piece: The most tokens of a step where prompts have to come in pieces.
    """

    shape: str
    dtype: str
    prompts: tuple[int, ...]
    tokens: int
    piece: int
    length: int
    reference_guesses: bool


SCALES: Mapping[Device, Scale] = {
    "cpu": Scale("cpu", "float32", (5, 17, 40), 24, 16, 128, reference_guesses=True),
    "cuda": Scale("cuda", "bfloat16", (3, 8, 17, 33, 64, 90), 32, 48, 256, reference_guesses=False),
}


_MODE_VARIABLES: Mapping[Device, Mapping[str, str]] = {
    "cpu": {"OMP_NUM_THREADS": "1"},  # two engines run beside each other
    "cuda": {},
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
class Plan:
    """What will be run.

    Attributes:
        models: The SPEC of engine/models.py, without its folder.
        starts: In order; jobs name models, not folders.
        checks: In the order in which they are told.
    """

    models: Mapping[str, Any]
    starts: tuple[Start, ...]
    checks: tuple[Check, ...]


def wanted(check: str, names: Sequence[str]) -> bool:
    """Whether a check is one of these, or below one of them."""
    return not names or any(check == name or check.startswith(f"{name}/") for name in names)


def prompts(scale: Scale) -> list[list[int]]:
    """Token ids; the same each time."""
    stream = random.Random(7)  # noqa: S311 - prompts, not secrets
    return [[stream.randrange(4, _MEDIA - 1) for _ in range(count)] for count in scale.prompts]


def make_plan(wish: Wish, facts: ReleaseFacts) -> Plan:
    """What a wish comes to on a release.

    Raises:
        UsageError: The wish names a check that there is not.
    """
    return _Planner(wish, facts).plan()


class _Planner:
    def __init__(self, wish: Wish, facts: ReleaseFacts) -> None:
        self._wish = wish
        self._facts = facts
        self._scale = SCALES[wish.device]
        self._starts: dict[str, Start] = {}
        self._checks: list[Check] = []
        self._drafters: dict[str, Drafter] = {}

    def plan(self) -> Plan:
        for runner in self._wish.runners:
            for mode in self._modes():
                self._add_target(runner, mode)
                for drafter in self._drafters_for(mode):
                    self._add_drafter(drafter, runner, mode)
        self._add_refusals()
        return self._narrowed()

    def _modes(self) -> Iterator[Mode]:
        yield "eager"
        if self._wish.tier == "full":
            yield "graphs" if self._wish.device == "cuda" else "compile"

    def _drafters_for(self, mode: Mode) -> Iterator[Drafter]:
        for drafter in DRAFTERS:
            if drafter.tier == "full" and self._wish.tier == "core":
                continue
            # Eight layers of eight experts take a CPU a minute to compile.
            if mode == "compile" and drafter.name not in ("llama-nested", "mla-plain"):
                continue
            yield drafter

    def _add_target(self, runner: Runner, mode: Mode) -> None:
        name = f"target/{runner}/{mode}"
        self._start(name, None, runner, mode)
        self._checks.append(
            Check(
                f"starts/{name}",
                (name,),
                lambda found: judge.did_start(found[name]),
                judge.did_start,
            )
        )

    def _add_drafter(self, drafter: Drafter, runner: Runner, mode: Mode) -> None:
        start, base = f"{drafter.name}/{runner}/{mode}", f"target/{runner}/{mode}"
        reason = self._facts.refuses(drafter.mla, runner, self._wish.device)
        if reason is not None:
            self._start(start, drafter, runner, mode)
            asked = judge.refused(reason, _CONFIG_ERROR_S)
            self._checks.append(Check(f"refused/{start}", (start,), _never, asked))
            return
        self._start(start, drafter, runner, mode)
        own = (start,)
        self._checks += [
            Check(
                f"starts/{start}", own, lambda found: judge.did_start(found[start]), judge.did_start
            ),
            Check(f"ids/{start}", own, judge.took_ids(start, drafter.asked)),
            Check(f"states/{start}", own, judge.right_states(start)),
            Check(f"greedy/{start}", (start, base), judge.same_tokens(start, base)),
            Check(f"mixed-batch/{start}", own, judge.mixed_steps(start, "mixed")),
        ]
        if drafter.name == "llama-nested":
            self._checks.append(
                Check(f"chunked-prefill/{start}", own, judge.took_pieces(start, "batch"))
            )
        if drafter.guesses_some:
            self._checks.append(Check(f"accepted/{start}", own, judge.some_accepted(start)))
        if drafter.mla and self._scale.reference_guesses:
            self._checks.append(Check(f"guesses/{start}", own, judge.right_guesses(start)))

    def _add_refusals(self) -> None:
        """Wrong configs, beside a target whose weights cannot be read."""
        runner = self._wish.runners[0]
        for name, (ids, pattern) in WRONG_IDS.items():
            wrong = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": list(ids)}}
            drafter = Drafter(name, "llama", (1, 3, 7), "nested", changes=wrong)
            start = f"{name}/{runner}/eager"
            self._start(start, drafter, runner, "eager", target="unreadable")
            asked = judge.refused(pattern, _CONFIG_ERROR_S)
            self._checks.append(Check(f"refused/{start}", (start,), _never, asked))

    def _start(
        self,
        name: str,
        drafter: Drafter | None,
        runner: Runner,
        mode: Mode,
        target: str = "kimi",
    ) -> None:
        device = self._wish.device
        job: Job = {
            "target": target,
            "dtype": self._scale.dtype,
            "drafts": DRAFTS,
            "record": True,
            "compile": mode == "compile",
            "plugin": self._facts.needs_cpu_drafter and device == "cpu",
            "guard_scan": self._facts.scans_modules and device == "cpu",
            "options": {**self._options(drafter, mode)},
            "phases": self._phases(),
        }
        if drafter is not None:
            self._drafters[drafter.name] = drafter
            job |= {"drafter": drafter.name, "ids": list(drafter.asked)}
            job["guesses"] = drafter.mla and self._scale.reference_guesses
        variables = {**self._facts.variables(device, runner), **_MODE_VARIABLES[device]}
        if mode == "eager":
            # Kimi's vision tower asks torch to compile even in eager mode.
            variables["TORCH_COMPILE_DISABLE"] = "1"
        self._starts[name] = Start(name, job, variables)

    def _options(self, drafter: Drafter | None, mode: Mode) -> Job:
        options: Job = {
            "dtype": self._scale.dtype,
            "max_model_len": self._scale.length,
            "max_num_seqs": 8,
            "enforce_eager": mode == "eager",
            "enable_prefix_caching": False,
            **self._facts.options(self._wish.device),
        }
        if drafter is not None and drafter.name == "llama-nested":
            options["max_num_batched_tokens"] = self._scale.piece
        return options

    def _phases(self) -> list[Job]:
        whole = prompts(self._scale)
        tokens = self._scale.tokens
        # While the first ones answer, others come.
        arrivals = [3 * number for number in range(len(whole))]
        return [
            {"name": "batch", "prompts": whole, "tokens": tokens},
            {"name": "mixed", "prompts": whole[::-1], "tokens": tokens, "arrivals": arrivals},
        ]

    def _narrowed(self) -> Plan:
        for name in self._wish.checks:
            if not any(wanted(check.name, [name]) for check in self._checks):
                known = sorted({check.name.partition("/")[0] for check in self._checks})
                raise UsageError(
                    f"no check of this run is {name!r}, or below it",
                    hint=f"Checks begin with: {', '.join(known)}.",
                    code="no-check",
                )
        checks = tuple(check for check in self._checks if wanted(check.name, self._wish.checks))
        needed = {start for check in checks for start in check.starts}
        starts = tuple(start for name, start in self._starts.items() if name in needed)
        used = {start.job.get("drafter") for start in starts}
        models = {
            "shape": {"preset": self._scale.shape},
            "targets": [{"name": "kimi", "kind": "plain", "schema": self._facts.schema}],
            "drafters": [_entry(one) for one in self._drafters.values() if one.name in used],
        }
        return Plan(models, starts, checks)


def _never(_found: Mapping[str, Any]) -> judge.Judged:
    raise AssertionError("a refusal is judged by its error")


def _entry(drafter: Drafter) -> Job:
    return {
        "name": drafter.name,
        "target": "kimi",
        "kind": drafter.kind,
        "ids": None if drafter.ids is None else list(drafter.ids),
        "form": drafter.form,
        "vocabulary": drafter.vocabulary,
        "changes": dict(drafter.changes),
    }
