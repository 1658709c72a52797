"""What a release takes a drafter for where --speculative-config names no method."""

from __future__ import annotations

from collections.abc import Iterator

from vpatch.preflight.case import Case, option
from vpatch.preflight.speculators import IDS, NUMBERING
from vpatch.preflight.verdict import Problem, Remedy

EAGLE3 = "eagle3"
# Parts of a path, in the order in which releases look for them.
_PATHS = {"eagle-": "eagle", "eagle3": EAGLE3, "dflash": "dflash", "dspark": "dspark"}


def problems(case: Case) -> Iterator[Problem]:
    """Nothing where it is taken for an EAGLE-3 drafter: then all else is looked at."""
    taken = _taken(case)
    if taken == EAGLE3:
        return
    if case.options.get(IDS) or case.options.get(NUMBERING):
        yield Problem(
            "method",
            "error",
            "config",
            f"without a method this release takes it for {taken}, which has no aux layers",
            text=("are only supported with method='eagle3'",)
            if case.release.options
            else ("Unexpected keyword argument",),
            remedy=_remedy(),
        )
    else:
        yield from _as(case, taken)


def _taken(case: Case) -> str:
    if "method" not in case.options or case.options["method"] is not None:
        return EAGLE3
    if case.release.mends.method and any("Eagle3" in each for each in case.drafter.architectures):
        return EAGLE3
    path = case.drafter.name.lower()
    found = (method for part, method in _PATHS.items() if part in path)
    return next(found, case.release.method)


def _as(case: Case, taken: str) -> Iterator[Problem]:
    why = f'no method is given and its path has no "eagle3": this release takes it for {taken}'
    if taken == "none":
        yield Problem(
            "method",
            "error",
            "config",
            'no method is given and its path has no "eagle3"',
            text=("Unsupported speculative method: 'None'",),
            remedy=_remedy(),
        )
    elif taken != "draft_model":
        yield Problem("method", "error", "config", why, remedy=_remedy())
    elif case.drafter.vocab != case.target.vocab:
        yield Problem(
            "method",
            "error",
            "config",
            why,
            text=("Target and draft model should have the same vocabulary size.",),
            remedy=_remedy(),
        )
    elif "Eagle3" in case.drafter.architecture:
        yield Problem(
            "method",
            "error",
            "first-step",
            why,
            text=("missing 1 required positional argument: 'hidden_states'",),
            remedy=_remedy(),
        )
    else:
        yield Problem("method", "error", "load", why, remedy=_remedy())


def _remedy() -> Remedy:
    return Remedy("option", option(method=EAGLE3))
