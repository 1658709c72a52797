"""What ci/collection_drafter.py asks, and what the answers mean: pure Python."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vpatch.smoke.cases import MEDIA
from vpatch.smoke.statistics import Interval, mean_interval, separated

Job = dict[str, Any]
IDS = (1, 3, 7)
"""The drafter's layers, whose states it gets when it is served."""
LAST = 8
"""The last layer's output, of which the target's logits are made."""
TAKES = {
    "right": IDS,
    "shuffled": IDS,
    "up": tuple(one + 1 for one in IDS),
    "down": tuple(one - 1 for one in IDS),
}
"""By variant: the layers whose states a drafter is trained on."""
VARIANTS = tuple(TAKES)
LAYERS = tuple(sorted({LAST, *(one for ids in TAKES.values() for one in ids)}))
PART = 256
"""Samples of the set that a seed's drafters are trained on; no two seeds share one."""
PROMPT, GENERATED = 40, 25
HELD_OUT, HELD_PROMPT, HELD_TOKENS = 512, 8, 32
"""With 32 of them, most of what seeds differed by was which prompts they had."""
_OTHER = 0.01
"""So many answers may differ: in float32 too, rounding can choose between two tokens."""


@dataclass(frozen=True)
class Served:
    """What an engine counted of one drafter.

    Attributes:
        variant, seed: Which drafter.
        drafts: How often it drafted.
        drafted, accepted: Tokens.
        by_place: Accepted ones by their place in the draft.
        answers: The tokens of each answer.
    """

    variant: str
    seed: int
    drafts: int
    drafted: int
    accepted: int
    by_place: tuple[int, ...]
    answers: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, variant: str, seed: int, outputs: Mapping[str, Any]) -> Served:
        """From what smoke/engine/start.py wrote."""
        counted = outputs["drafting"]
        (phase,) = outputs["phases"].values()
        return cls(
            variant,
            seed,
            counted["drafts"],
            counted["drafted"],
            counted["accepted"],
            tuple(counted["by_place"]),
            tuple(map(tuple, phase["tokens"])),
        )

    @property
    def rate(self) -> float:
        """The share of drafted tokens that were accepted."""
        return self.accepted / max(self.drafted, 1)

    @property
    def first(self) -> float:
        """The share of drafts whose first token was accepted."""
        return sum(self.by_place[:1]) / max(self.drafts, 1)


@dataclass(frozen=True)
class Verdict:
    """What all engines together say.

    Attributes:
        rates, firsts: By variant; 95 %, a value a seed.
        wrong: Sentences; none where the right states are worth more than both others.
    """

    rates: Mapping[str, Interval]
    firsts: Mapping[str, Interval]
    wrong: tuple[str, ...]

    def json(self) -> Job:
        """For --out."""
        tables = {"accepted": self.rates, "first accepted": self.firsts}
        return {
            "ok": not self.wrong,
            "wrong": list(self.wrong),
            **{name: {one: asdict(v) for one, v in of.items()} for name, of in tables.items()},
        }


def texts(seed: int, use: str, count: int, length: int) -> list[list[int]]:
    """Prompts of one seed, for one use: random words, as token ids."""
    stream = random.Random(f"{use} {seed}")  # noqa: S311 - prompts, not secrets
    return [[stream.randrange(4, MEDIA - 1) for _ in range(length)] for _ in range(count)]


def held_out(seed: int) -> list[list[int]]:
    """What a seed's drafters are served with."""
    return texts(seed, "served", HELD_OUT, HELD_PROMPT)


def write_prompts(path: Path, seeds: int) -> None:
    """The prompts of the set, a seed's part behind the other's.

    Raises:
        ValueError: One has a held-out prompt in it.
    """
    collected = [one for seed in range(seeds) for one in texts(seed, "collected", PART, PROMPT)]
    held = {tuple(one) for seed in range(seeds) for one in held_out(seed)}
    for one in collected:
        for start in range(PROMPT - HELD_PROMPT + 1):
            if tuple(one[start : start + HELD_PROMPT]) in held:
                raise ValueError(f"a held-out prompt is in the set: {one}")
    lines = (json.dumps({"prompt_token_ids": one, "max_tokens": GENERATED}) for one in collected)
    path.write_text("".join(f"{line}\n" for line in lines))


def training(variant: str, seed: int, spoilt: str | None = None) -> Job:
    """What collection_train.py is told of a variant.

    Args:
        variant: One of VARIANTS.
        seed: Of weights and order, and the number of the set's part.
        spoilt: The right drafters are trained as this variant is: a verdict on them has to be bad.
    """
    trained = spoilt if spoilt and variant == "right" else variant
    return {
        "ids": list(IDS),
        "takes": list(TAKES[trained]),
        "shuffled": trained == "shuffled",
        "last": LAST,
        "first": seed * PART,
        "count": PART,
        "seed": seed,
        "seconds": 300,
    }


def judge(found: Sequence[Served], *, exact: bool = True) -> Verdict:
    """Whether drafters of the right states are accepted more often than all others.

    Args:
        found: What each engine counted.
        exact: Whether a seed's engines have to give the same answers; in bfloat16, rounding chooses
            between tokens that are about as likely.
    """
    wrong = [f"{_name(one)} drafted nothing" for one in found if not one.drafted]
    wrong += _other_answers(found) if exact else []
    rates = {variant: _interval(found, variant, "rate") for variant in VARIANTS}
    firsts = {variant: _interval(found, variant, "first") for variant in VARIANTS}
    right = rates["right"]
    for variant, other in rates.items():
        if variant != "right" and not (separated(right, other) and right.mean > other.mean):
            wrong.append(f"right: {said(right)} is not above {variant}: {said(other)}")
    return Verdict(rates, firsts, tuple(wrong))


def _other_answers(found: Sequence[Served]) -> list[str]:
    first = {one.seed: one for one in reversed(found)}
    wrong = []
    for one in found:
        before = first[one.seed]
        other = sum(a != b for a, b in zip(one.answers, before.answers, strict=True))
        if other > _OTHER * len(one.answers):
            wrong.append(
                f"{other} answers beside {_name(one)} are not those beside {_name(before)}"
            )
    return wrong


def _name(one: Served) -> str:
    return f"{one.variant}/{one.seed}"


def _interval(found: Sequence[Served], variant: str, value: str) -> Interval:
    return mean_interval([getattr(one, value) for one in found if one.variant == variant])


def label(variant: str) -> str:
    """As ``up (2, 4, 8)``: what a variant's drafters are trained on."""
    return f"{variant} ({', '.join(map(str, TAKES[variant]))})"


def said(interval: Interval) -> str:
    """As ``0.336 [0.315, 0.358]``."""
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def table(found: Sequence[Served], verdict: Verdict) -> str:
    """Markdown: a line a variant."""
    head = ["trained on", "accepted of all drafted", "first of a draft accepted", "by seed"]
    lines = [head, ["---"] * len(head)]
    for variant in VARIANTS:
        rates = [f"{one.rate:.3f}" for one in found if one.variant == variant]
        intervals = said(verdict.rates[variant]), said(verdict.firsts[variant])
        lines.append([label(variant), *intervals, ", ".join(rates)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
