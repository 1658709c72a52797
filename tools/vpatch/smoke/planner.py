"""From a wish and a release to a plan."""

from __future__ import annotations

from collections.abc import Iterator

from vpatch.smoke.cases import Mode
from vpatch.smoke.plan import Builder, Plan, Wish
from vpatch.smoke.plan_core import add_core, add_refusals
from vpatch.smoke.plan_full import add_full
from vpatch.smoke.releases import NEWEST, ReleaseFacts


def make_plan(wish: Wish, facts: ReleaseFacts) -> Plan:
    """What a wish comes to on a release.

    Raises:
        UsageError: The wish names a check that there is not.
    """
    builder = Builder(wish, facts)
    if not facts.read:
        builder.notes.append(
            f"v{facts.version} is newer than what this vpatch knows: it is run as v{NEWEST}"
        )
    for runner in wish.runners:
        for mode in _modes(wish):
            add_core(builder, runner, mode)
        if wish.tier == "full":
            add_full(builder, runner)
    add_refusals(builder, wish.runners[0])
    return builder.plan()


def _modes(wish: Wish) -> Iterator[Mode]:
    yield "eager"
    if wish.tier == "full":
        # On a CPU graphs are compiled, never captured.
        yield "graphs" if wish.device == "cuda" else "compile"
