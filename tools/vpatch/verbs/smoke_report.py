"""What a smoke run has to say, for people and for machines."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from rich.console import RenderableType

from vpatch.report import Report, lines, plain, table
from vpatch.smoke.cases import Tier
from vpatch.smoke.environment import Environment
from vpatch.smoke.judge import Result
from vpatch.smoke.known import Expected
from vpatch.smoke.wheels import Subject


@dataclass(frozen=True)
class Ran:
    """A run that has ended.

    Attributes:
        tier: Which checks it was about.
        expect_unpatched: Whether known errors are the expected result.
        seconds: All of it, the environment included.
        notes: What was not asked, and why.
    """

    tier: Tier
    expect_unpatched: bool
    subject: Subject
    environment: Environment
    gpu: str | None
    driver: str | None
    seconds: float
    notes: tuple[str, ...]


def report(ran: Ran, held: Sequence[Expected]) -> Report:
    """The table, the log's end of what failed, and one line that sums it up."""
    good = all(one.as_expected for one in held)
    data: dict[str, Any] = {
        "vllm": ran.environment.vllm,
        "patched": ran.subject.patched,
        "wheel": ran.subject.wheel,
        "sha256": ran.subject.sha256,
        "torch": ran.environment.torch,
        "device": ran.environment.device,
        "gpu": ran.gpu,
        "driver": ran.driver,
        "machine": platform.machine(),
        "tier": ran.tier,
        "expect_unpatched": ran.expect_unpatched,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "seconds": round(ran.seconds, 1),
        "notes": list(ran.notes),
        "checks": [{**one.result.as_dict(), "as_expected": one.as_expected} for one in held],
    }
    return Report("smoke", data, _text(ran, held), exit_code=0 if good else 1)


def _text(ran: Ran, held: Sequence[Expected]) -> RenderableType:
    rows = [
        (one.result.check, _word(ran, one), f"{one.result.seconds:.0f}", one.result.evidence)
        for one in held
    ]
    wrong = [one.result for one in held if not one.as_expected]
    tails = {one.log: one for one in wrong if one.tail}
    return lines(
        table(("check", "verdict", "s", "evidence"), rows),
        *(_tail(one) for one in tails.values()),
        *(plain(f"{note}.") for note in ran.notes),
        plain(_sum(ran, held)),
    )


def _word(ran: Ran, one: Expected) -> str:
    if not ran.expect_unpatched or one.result.verdict == "pass":
        return one.result.verdict
    return f"{one.result.verdict} ({'known' if one.as_expected else 'not known'})"


def _tail(result: Result) -> RenderableType:
    shown = [plain(f"  | {line}") for line in result.tail.splitlines()]
    return lines(plain(f"The log's end, {result.check}:"), *shown)


def _sum(ran: Ran, held: Sequence[Expected]) -> str:
    counts: Mapping[str, int] = {
        word: sum(one.result.verdict == word for one in held)
        for word in ("pass", "fail", "not-run")
    }
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    wrong = sum(not one.as_expected for one in held)
    kind = "unpatched vLLM" if not ran.subject.patched else "vLLM"
    gpu = f", {ran.gpu}" if ran.gpu else ""
    verdict = "as expected" if not wrong else f"{wrong} not as expected"
    return (
        f"{kind} {ran.environment.vllm}, torch {ran.environment.torch}, {ran.environment.device}"
        f"{gpu}: {said}; {verdict}; {ran.seconds:.0f} s"
    )
