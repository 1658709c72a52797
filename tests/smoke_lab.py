"""Plans without an engine, outcomes of engine starts as engine/compare.py writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version

from vpatch.smoke.cases import Tier
from vpatch.smoke.environment import Device
from vpatch.smoke.judge import Check, Judged, Result, Verdict
from vpatch.smoke.plan import Plan, Wish
from vpatch.smoke.planner import make_plan
from vpatch.smoke.releases import Runner, facts_of
from vpatch.smoke.run import Outcome

RELEASES = ("0.16.0", "0.17.1", "0.26.0", "0.32.0", "0.33.0")
DEVICES: tuple[Device, ...] = ("cpu", "cuda")
TIERS: tuple[Tier, ...] = ("core", "full")
IDS = (1, 3, 7)
BOUND = 0.025

REQUEST: Mapping[str, Any] = {
    "inputs": 5,
    "rows": 5,
    "within": 5,
    "worst": 0.01,
    "first_position": 0,
    "missing": [],
    "layers": [[list(IDS), 5]],
    "layers_apart": 0.2,
    "router_margin": 0.1,
    "greedy": True,
    "ties": [[11], [12, 13], [14]],
    "partial_steps": [0],
    "prompt_steps": [0, 1],
    "answer_steps": [1, 2],
    "drafted": [2, 2, 1],
    "accepted": [1, 0, 0],
    "certain_guesses": 4,
    "wrong_guesses": 0,
    "embeds": 5,
    "embeds_wrong": [],
    "embeds_at_ends": 1,
    "embeds_of_picture": 0,
}
"""A request of three prompt and three generated tokens, all as it has to be."""
ANSWER = [11, 12, 14]


def request(**changes: Any) -> dict[str, Any]:
    """What compare.py finds about one request."""
    return {**REQUEST, **changes}


def outcome(
    name: str = "a",
    *requests: dict[str, Any],
    phase: str = "batch",
    phases: Mapping[str, list[dict[str, Any]]] | None = None,
    outputs: Mapping[str, Any] | None = None,
) -> Outcome:
    """A start that answered.

    Args:
        name: Of the start.
        requests: Of the one phase; a good one where there are none, and no `phases`.
        phase: That phase's name.
        phases: Requests by phase, where it is not one.
        outputs: Laid over what the start wrote.
    """
    found = {phase: list(requests) or [request()]} if phases is None else phases
    said = {
        "phases": {
            one: {"tokens": [list(ANSWER) for _ in compared], "prompts": [[1, 2, 3]]}
            for one, compared in found.items()
        },
        "seconds": {"start": 12.0, "run": 3.0},
        "target": "KimiK25ForConditionalGeneration",
        "drafter": "Eagle3LlamaForCausalLM",
        **(outputs or {}),
    }
    compared = {"phases": found, "width": 384, "bound": BOUND}
    return Outcome(name, said, None, compared, 15.0, 12.0, Path("no-log"))


def answered(name: str, **tokens: list[list[int]]) -> Outcome:
    """A start that answered these tokens, by phase; each request good otherwise."""
    phases = {phase: {"tokens": answers} for phase, answers in tokens.items()}
    requests = {phase: [request() for _ in answers] for phase, answers in tokens.items()}
    return outcome(name, outputs={"phases": phases}, phases=requests)


def broken(name: str = "a", error: str = "ValueError: no", ready: float | None = 3.0) -> Outcome:
    """A start that ended with an error."""
    return Outcome(name, None, error, None, 5.0, ready, Path("no-log"))


def judged(check: Any, *outcomes: Outcome) -> Judged:
    """What a judge says of these outcomes."""
    said = check({one.name: one for one in outcomes})
    assert isinstance(said, Judged)
    assert "\n" not in said.evidence
    return said


def result(check: str, verdict: Verdict = "pass", evidence: str = "") -> Result:
    """A check's verdict."""
    return Result(check, verdict, evidence, 1.0)


def plan(
    version: str,
    device: Device,
    tier: Tier = "core",
    runner: Runner | None = None,
    *checks: str,
) -> Plan:
    """A plan; of all runners that the release has where none is named."""
    facts = facts_of(Version(version))
    runners = facts.runners(device) if runner is None else (runner,)
    return make_plan(Wish(device, tier, runners, checks), facts)


def combinations() -> Iterator[tuple[str, Device, Tier, Runner | None]]:
    """Every release, device, tier and runner that can be asked for; no runner is all of them."""
    for version in RELEASES:
        for device in DEVICES:
            for tier in TIERS:
                for runner in (None, *facts_of(Version(version)).runners(device)):
                    yield version, device, tier, runner


def check(name: str, *starts: str, verdict: Verdict = "pass") -> Check:
    """A check that always says the same."""
    return Check(name, starts, lambda _found: Judged(verdict, "said"))
