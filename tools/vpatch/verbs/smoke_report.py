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
from vpatch.smoke.origin import Origin, origin_of
from vpatch.smoke.stored import identity
from vpatch.smoke.wheels import Subject


@dataclass(frozen=True)
class Ran:
    """A run that has ended.

    Attributes:
        tier: Which checks it was about.
        only: What --check named; all of the tier where empty.
        expect_unpatched: Whether known errors are the expected result.
        seconds: All of it, the environment included.
        notes: What was not asked, and why.
    """

    tier: Tier
    only: tuple[str, ...]
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
    tag, revision = identity(str(ran.subject.version))
    origin = origin_of(ran.environment.origin, ran.environment.direct_url)
    now = datetime.now(timezone.utc)
    data: dict[str, Any] = {
        "vllm": ran.environment.vllm,
        "tag": tag,
        "revision": revision,
        "series": origin.series,
        "patched": ran.subject.patched,
        "wheel": ran.subject.wheel or origin.wheel,
        "sha256": ran.subject.sha256 or origin.sha256,
        "torch": ran.environment.torch,
        "device": ran.environment.device,
        "gpu": ran.gpu,
        "driver": ran.driver,
        "machine": platform.machine(),
        "tier": ran.tier,
        "only": list(ran.only),
        "expect_unpatched": ran.expect_unpatched,
        "when": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "date": now.strftime("%Y-%m-%d"),
        "seconds": round(ran.seconds, 1),
        "notes": _notes(ran, origin),
        "checks": [{**one.result.as_dict(), "as_expected": one.as_expected} for one in held],
    }
    return Report("smoke", data, _text(ran, held), exit_code=0 if good else 1)


def _notes(ran: Ran, origin: Origin) -> list[str]:
    return [*ran.notes, *([origin.problem] if origin.problem else [])]


def _text(ran: Ran, held: Sequence[Expected]) -> RenderableType:
    """The ends of logs first: the table has the last word."""
    wrong = [one.result for one in held if not one.as_expected and one.result.tail]
    # Several starts may end in the same error: one log is enough.
    tails = {one.evidence: one for one in reversed(wrong)}
    return lines(
        *(_tail(one) for one in reversed(tails.values())),
        table(("check", "verdict", "s", "evidence"), _rows(ran, held)),
        *(plain(f"{note}.") for note in ran.notes),
        plain(_sum(ran, held)),
    )


def _rows(ran: Ran, held: Sequence[Expected]) -> list[tuple[str, str, str, str]]:
    """A line for each check; one for all those of a start that could not run, as expected."""
    rows: list[tuple[str, str, str, str]] = []
    folded: dict[str, int] = {}
    for one in held:
        start = one.result.check.partition("/")[2]
        if one.result.verdict == "not-run" and one.as_expected and ran.expect_unpatched:
            folded[start] = folded.get(start, 0) + 1
            continue
        rows.append(_row(ran, one))
    for start, count in folded.items():
        rows.append((f"*/{start}", "not-run (known)", "0", f"{count} checks: it did not start"))
    return rows


def _row(ran: Ran, one: Expected) -> tuple[str, str, str, str]:
    result = one.result
    return (result.check, _word(ran, one), f"{result.seconds:.0f}", result.evidence)


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
