"""Intervals and the distribution test, against published tables and against wrong samplers."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable

import pytest

from vpatch.smoke.statistics import (
    FALSE_ALARM,
    Interval,
    Prefix,
    chi_square_tail,
    follows,
    judge,
    mean_interval,
    separated,
    t_quantile,
)

# NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2 and 1.3.6.7.4.
T_TABLE = [
    (0.975, 1, 12.706),
    (0.95, 2, 2.920),
    (0.975, 4, 2.776),
    (0.995, 4, 4.604),
    (0.999, 10, 4.144),
    (0.975, 30, 2.042),
    (0.975, 100, 1.984),
]
CHI_SQUARE_TABLE = [
    (0.05, 1, 3.841),
    (0.10, 2, 4.605),
    (0.01, 5, 15.086),
    (0.001, 10, 29.588),
    (0.95, 10, 3.940),
    (0.99, 30, 14.953),
    (0.025, 100, 129.561),
    (0.999, 100, 61.918),
]


def _stream(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - a test's figures, no secrets


@pytest.mark.parametrize(("probability", "freedom", "t"), T_TABLE)
def test_students_t_as_in_the_table(probability: float, freedom: int, t: float) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(t, abs=6e-4)


@pytest.mark.parametrize(("tail", "freedom", "statistic"), CHI_SQUARE_TABLE)
def test_chi_square_as_in_the_table(tail: float, freedom: int, statistic: float) -> None:
    assert chi_square_tail(statistic, freedom) == pytest.approx(tail, rel=2e-3)


def test_chi_square_of_two_is_an_exponential() -> None:
    for statistic in (0.0, 0.3, 3.0, 5.0, 80.0, 700.0):
        assert chi_square_tail(statistic, 2) == pytest.approx(math.exp(-statistic / 2), rel=1e-12)


def test_an_interval_by_hand() -> None:
    interval = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    reach = 2.77645 * math.sqrt(2.5 / 5)
    assert interval.mean == 3.0
    assert interval.low == pytest.approx(3 - reach, abs=1e-4)
    assert interval.high == pytest.approx(3 + reach, abs=1e-4)
    assert interval.count == 5


def test_95_of_100_intervals_hold_the_mean() -> None:
    draw = _stream(1)
    held = 0
    for _ in range(500):
        interval = mean_interval([draw.gauss(0, 1) for _ in range(5)])
        held += interval.low <= 0 <= interval.high
    assert held / 500 == pytest.approx(0.95, abs=0.03)


@pytest.mark.parametrize(("values", "level"), [([1.0], 0.95), ([1.0, 2.0], 1.0), ([], 0.5)])
def test_no_interval_from_nothing(values: list[float], level: float) -> None:
    with pytest.raises(ValueError, match="no interval"):
        mean_interval(values, level)


def test_intervals_that_touch_are_not_separated() -> None:
    low, high = Interval(1, 0, 2, 5), Interval(3, 2, 4, 5)
    assert not separated(low, high)
    assert separated(low, Interval(3, 2.1, 4, 5))
    assert separated(Interval(3, 2.1, 4, 5), low)


# A small target, whose drafter's guess is the likeliest token but one. Rejection sampling takes
# the guess with its probability, or draws from the others.
Tables = dict[Prefix, list[float]]
Sampler = Callable[[random.Random, list[float], int], int]
VOCABULARY = 64
FIRST = [0.6, 0.3, 0.1]


def _next_tokens() -> Tables:
    draw = _stream(7)
    tables: Tables = {}
    for prefix in [(first,) for first in range(3)]:
        weights = [math.exp(draw.gauss(0, 2)) for _ in range(VOCABULARY)]
        tables[prefix] = [weight / sum(weights) for weight in weights]
    return tables


def _guess(table: list[float]) -> int:
    return sorted(range(VOCABULARY), key=lambda token: -table[token])[1]


def _choose(draw: random.Random, weights: list[float]) -> int:
    return draw.choices(range(len(weights)), weights)[0]


def right(draw: random.Random, table: list[float], guess: int) -> int:
    if draw.random() < table[guess]:
        return guess
    return _choose(draw, [0 if t == guess else p for t, p in enumerate(table)])


def always_the_guess(draw: random.Random, table: list[float], guess: int) -> int:
    return guess


def greedy(draw: random.Random, table: list[float], guess: int) -> int:
    return max(range(VOCABULARY), key=table.__getitem__)


def the_guess_again(draw: random.Random, table: list[float], guess: int) -> int:
    return guess if draw.random() < table[guess] else _choose(draw, table)


def another_temperature(draw: random.Random, table: list[float], guess: int) -> int:
    return _choose(draw, [p ** (1 / 1.2) for p in table])


def _sample(sampler: Sampler, count: int, seed: int) -> list[list[int]]:
    draw, tables = _stream(seed), _next_tokens()
    sequences = []
    for _ in range(count):
        first = _choose(draw, FIRST)
        table = tables[first,]
        sequences.append([first, sampler(draw, table, _guess(table))])
    return sequences


def test_rejection_sampling_follows_its_target() -> None:
    verdict = follows(_sample(right, 2000, seed=1), _next_tokens())
    assert verdict.follows
    assert verdict.samples == 2000
    assert verdict.freedom > 30
    assert verdict.detects < 0.15
    assert f"p = {verdict.p:.2g}" in verdict.evidence


@pytest.mark.parametrize(
    "sampler", [always_the_guess, greedy, the_guess_again, another_temperature]
)
def test_wrong_samplers_are_seen(sampler: Sampler) -> None:
    for seed in range(5):
        verdict = follows(_sample(sampler, 2000, seed), _next_tokens())
        assert not verdict.follows
        assert verdict.p < FALSE_ALARM


def test_p_values_of_a_right_sampler_are_even() -> None:
    ps = sorted(follows(_sample(right, 500, seed), _next_tokens()).p for seed in range(200))
    gaps = [abs(p - (number + 0.5) / 200) for number, p in enumerate(ps)]
    assert max(gaps) < 1.63 / math.sqrt(200)  # Kolmogorov's bound of 1 %


def test_errors_of_the_stated_size_are_seen() -> None:
    half: Tables = {(): [0.5, 0.5]}
    count = 2000
    even = [[token] for token in (0, 1) for _ in range(count // 2)]
    off = follows(even, half).detects
    draw, missed = _stream(3), 0
    for _ in range(500):
        ones = sum(draw.random() < 0.5 + off for _ in range(count))
        missed += judge({(): Counter({1: ones, 0: count - ones})}, half).follows
    assert missed <= 4


def test_a_token_without_probability_is_wrong_at_once() -> None:
    verdict = follows([[0], [2]], {(): [0.5, 0.5, 0.0]})
    assert (verdict.follows, verdict.p, verdict.statistic) == (False, 0.0, math.inf)


def test_too_few_samples_say_nothing() -> None:
    verdict = follows([[0]], {(): [0.5, 0.5]})
    assert verdict.follows
    assert (verdict.freedom, verdict.p, verdict.detects) == (0, 1.0, math.inf)


def test_only_named_prefixes_count() -> None:
    sequences = [[0, 1, 1]] * 40 + [[1, 0]] * 40 + [[0]]
    verdict = follows(sequences, {(0,): [0.0, 1.0], (0, 1): [0.5, 0.5]})
    assert verdict.samples == 80
    assert not verdict.follows


def test_probabilities_have_to_add_up() -> None:
    with pytest.raises(ValueError, match=r"add up to 0\.9"):
        follows([[0]], {(): [0.5, 0.4]})


def test_rare_tokens_share_a_cell() -> None:
    rare = [0.5] + [0.5 / 1000] * 1000
    common = itertools.repeat([0], 50)
    others = ([token] for token in range(1, 51))
    verdict = follows([*common, *others], {(): rare})
    assert verdict.freedom == 1
    assert verdict.statistic < 1e-20
