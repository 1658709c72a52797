"""What the smoke knows unpatched releases to say, and what its checks' own words mean."""

from __future__ import annotations

from collections.abc import Iterator

from vpatch.explain.entry import Entry
from vpatch.explain.pattern import Pattern
from vpatch.smoke.known import KNOWN

_WHERE = {"cpu": "CPU", "cuda": "GPU"}
_READERS = (
    "vpatch check --installed python3 --runner all; vpatch preflight says what a drafter asks"
)
_KEEP = "vpatch smoke TAG --check NAME --keep DIR keeps its log, its checkpoints and its rows"
# Check -> what it says, in parts that come in order; what that means; the next step.
WORDS: tuple[tuple[str, tuple[str, ...], str, str], ...] = (
    (
        "ids",
        ("asked (", "), but ", " rows hold ("),
        "the rows at the drafter's fc are states of other layers than its config names; the "
        "target's default layers there: nobody reads the place where the config has its ids",
        _READERS,
    ),
    (
        "states",
        (" rows within the bound; worst ",),
        "the states are near the asked layers' and not equal to the float32 reference's: another "
        "dtype or scale, a sum left out, or rows of another request",
        _KEEP,
    ),
    (
        "states",
        (" input tokens have no row; worst ",),
        "the drafter was never given the states of some tokens of the prompts",
        _KEEP,
    ),
    (
        "greedy",
        (" answers equal", "; not "),
        "the target answers otherwise beside its drafter than alone: verifying drafts has to lose "
        "nothing; one that parts at a tie of the best logits is not counted",
        _KEEP,
    ),
    (
        "greedy",
        ("not the float32 reference's choice: ",),
        "the engine's target, without regard to drafts, takes another token than the reference",
        _KEEP,
    ),
    (
        "accepted",
        ("accepted by place in the draft: ",),
        "accepted/drafted for the first, second, third token of each draft; the smoke's drafters "
        "guess some tokens by their making, so a pass needs some in every place. None: the drafter "
        "gets other layers, norms or tables than it was trained with",
        _READERS,
    ),
    (
        "guesses",
        (" guesses as its definition's",),
        "of the drafter's guesses, how many a plain computation of its definition makes from the "
        "same rows; fewer than all: a norm, a table, a position or the attention differs",
        _KEEP,
    ),
    (
        "refused",
        ("was not refused for this: ",),
        "a start that has to be refused for its reason went on, or ended with another error, "
        "which follows",
        "vpatch explain on what follows the colon",
    ),
    (
        "refused",
        ("was refused ", ", later than "),
        "the refusal is right and comes late: weights may have been read before it",
        _KEEP,
    ),
    (
        "inputs",
        (" rows embed something else, the first at position ",),
        "the drafter embeds other tokens than those that follow its rows",
        _READERS,
    ),
)


def entries() -> Iterator[Entry]:
    """All of smoke/known.py, whose texts are regular expressions, and of `WORDS`."""
    for known in KNOWN:
        where = " and ".join(_WHERE[device] for device in known.devices)
        yield Entry(
            "smoke",
            known.check,
            Pattern((), known.evidence),
            f"`vpatch smoke --unpatched` is known to say so on a {where}",
            releases=tuple(f"v{release}" for release in known.releases),
        )
    for check, parts, cause, step in WORDS:
        yield Entry("smoke", check, Pattern.of(*parts), cause, remedy=step)
