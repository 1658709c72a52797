"""What the smoke's figures mean: intervals, and whether samples follow a distribution.

Pure Python. The incomplete gamma and beta functions are computed by their series and continued
fractions (Abramowitz and Stegun, 6.5.29, 6.5.31 and 26.5.8, evaluated by Lentz's method).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

_TINY, _EXACT, _TERMS = 1e-300, 1e-15, 10_000

FALSE_ALARM = 1e-4
"""How often a correct sampler is called wrong by `follows`."""
_MISSED = 1e-3
"""How often a sampler as wrong as `Verdict.detects` says is called right."""
_FEWEST = 5.0
"""The smallest expected count of a cell for which the chi-square distribution is close enough."""

Prefix = tuple[int, ...]


@dataclass(frozen=True)
class Interval:
    """A mean, and where the true one is believed to be.

    Attributes:
        mean: Of the values.
        low: The lower end.
        high: The upper end.
        count: How many values.
    """

    mean: float
    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Verdict:
    """Whether samples follow a distribution: Pearson's chi-square test, summed over prefixes.

    Attributes:
        follows: The answer; wrongly no in one of 1 / FALSE_ALARM cases.
        p: How likely samples of the distribution are at least so far from it.
        statistic: Pearson's, infinite when a token came that has no probability.
        freedom: Degrees of freedom; 0 when there were too few samples to say anything.
        samples: Tokens that were counted.
        detects: A token of probability 1/2 whose share is off by this much in all prefixes is
            called wrong in all but one of a thousand cases; other errors when they are as far in
            chi-square distance. Infinite without degrees of freedom.
    """

    follows: bool
    p: float
    statistic: float
    freedom: int
    samples: int
    detects: float

    @property
    def evidence(self) -> str:
        """One line."""
        return (
            f"{self.samples} tokens, chi-square {self.statistic:.1f} with {self.freedom} degrees "
            f"of freedom, p = {self.p:.2g}; sees shares off by {self.detects:.3f}"
        )


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """The mean's interval by Student's t.

    Args:
        values: At least two independent ones, such as one for each seed.
        level: How often such an interval holds the true mean.

    Raises:
        ValueError: Fewer than two values, or a level that is not between 0 and 1.
    """
    count = len(values)
    if count < 2 or not 0 < level < 1:  # noqa: PLR2004
        raise ValueError(f"no interval at level {level} from {count} values")
    mean = math.fsum(values) / count
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    reach = t_quantile((1 + level) / 2, count - 1) * math.sqrt(variance / count)
    return Interval(mean, mean - reach, mean + reach, count)


def separated(one: Interval, other: Interval) -> bool:
    """Whether two intervals have no value in common."""
    return one.high < other.low or other.high < one.low


def follows(
    sequences: Iterable[Sequence[int]],
    probabilities: Mapping[Prefix, Sequence[float]],
) -> Verdict:
    """Whether sampled tokens follow the target's distribution, given what came before each.

    Counts are independent between prefixes, so that their statistics and degrees of freedom add
    up. Tokens of small expectation share a cell. A prefix that came too seldom for two cells says
    nothing, except that a token without probability is wrong at once.

    Args:
        sequences: Generated tokens, one sequence a request.
        probabilities: By prefix (tokens generated before), each next token's probability. Only
            these prefixes are judged: leave out () and the plain sampler's first token is not.

    Raises:
        ValueError: Probabilities that do not add up to 1.
    """
    return judge(count_after(sequences, probabilities), probabilities)


def count_after(
    sequences: Iterable[Sequence[int]], prefixes: Iterable[Prefix]
) -> dict[Prefix, Counter[int]]:
    """How often which token came after each of these prefixes."""
    counts: dict[Prefix, Counter[int]] = {prefix: Counter() for prefix in prefixes}
    lengths = sorted({len(prefix) for prefix in counts})
    for sequence in sequences:
        for length in lengths:
            prefix = tuple(sequence[:length])
            if length < len(sequence) and prefix in counts:
                counts[prefix][sequence[length]] += 1
    return counts


def judge(
    counts: Mapping[Prefix, Counter[int]], probabilities: Mapping[Prefix, Sequence[float]]
) -> Verdict:
    """The same from counts."""
    statistic, freedom, samples, judged = 0.0, 0, 0, 0
    for prefix, seen in counts.items():
        _check_sum(prefix, probabilities[prefix])
        added, cells = _pearson(seen, probabilities[prefix])
        total = sum(seen.values())
        statistic, freedom, samples = statistic + added, freedom + cells - 1, samples + total
        judged += total if cells > 1 else 0
    p = chi_square_tail(statistic, freedom)
    return Verdict(p >= FALSE_ALARM, p, statistic, freedom, samples, _detects(freedom, judged))


def _check_sum(prefix: Prefix, probabilities: Sequence[float]) -> None:
    total = math.fsum(probabilities)
    if not math.isclose(total, 1.0, abs_tol=1e-4) or min(probabilities) < 0:
        raise ValueError(f"the probabilities after {prefix} add up to {total}, not to 1")


def _pearson(seen: Counter[int], probabilities: Sequence[float]) -> tuple[float, int]:
    """Pearson's statistic and the number of cells, 1 when nothing can be said."""
    if any(not 0 <= token < len(probabilities) or probabilities[token] == 0 for token in seen):
        return math.inf, 1
    total = sum(seen.values())
    cells = []
    expected_rest, seen_rest = 0.0, 0
    for token in sorted(range(len(probabilities)), key=lambda token: -probabilities[token]):
        expected = total * probabilities[token]
        if expected >= _FEWEST:
            cells.append((expected, seen[token]))
        else:
            expected_rest, seen_rest = expected_rest + expected, seen_rest + seen[token]
    if expected_rest >= _FEWEST:
        cells.append((expected_rest, seen_rest))
    elif cells:
        expected, count = cells.pop()
        cells.append((expected + expected_rest, count + seen_rest))
    if len(cells) < 2:  # noqa: PLR2004
        return 0.0, 1
    return math.fsum((count - expected) ** 2 / expected for expected, count in cells), len(cells)


def _detects(freedom: int, samples: int) -> float:
    """The share's error that is seen; the noncentral chi-square is taken as normal."""
    if freedom == 0:
        return math.inf
    limit = _solve(lambda x: chi_square_tail(x, freedom) - FALSE_ALARM, freedom)
    spread = 3.09  # the normal distribution's quantile of 1 - _MISSED

    def short(distance: float) -> float:
        return limit - (freedom + distance) + spread * math.sqrt(2 * (freedom + 2 * distance))

    return math.sqrt(_solve(short, limit) / samples * 0.25)


def _solve(falling: Callable[[float], float], guess: float) -> float:
    """Where a function that is positive at 0 and falls in the end becomes 0."""
    low, high = 0.0, max(guess, 1.0)
    while falling(high) > 0:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return high


def chi_square_tail(statistic: float, freedom: int) -> float:
    """How likely chi-square of so many degrees of freedom is at least this; 1 for none of them."""
    if math.isinf(statistic):
        return 0.0
    if freedom == 0:
        return 1.0
    return _gamma_tail(freedom / 2, statistic / 2)


def t_quantile(probability: float, freedom: int) -> float:
    """What Student's t stays below with this probability, of at least 1/2."""

    def above(t: float) -> float:
        tail = 0.5 * _beta_share(freedom / 2, 0.5, freedom / (freedom + t * t))
        return tail - (1 - probability)

    return _solve(above, 2.0)


def _gamma_tail(a: float, x: float) -> float:
    """The regularized upper incomplete gamma function Q(a, x)."""
    if x <= 0:
        return 1.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        for n in range(1, _TERMS):
            term *= x / (a + n)
            total += term
            if term < total * _EXACT:
                break
        return max(0.0, 1 - front * total)
    terms = ((-n * (n - a), x + 2 * n + 1 - a) for n in range(1, _TERMS))
    return front / _fraction(x + 1 - a, terms)


def _beta_share(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function I_x(a, b)."""
    if x in {0.0, 1.0}:
        return x
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta_share(b, a, 1 - x)
    both = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(both + a * math.log(x) + b * math.log(1 - x)) / a

    def terms() -> Iterable[tuple[float, float]]:
        for n in range(_TERMS):
            if n > 0:
                yield n * (b - n) * x / ((a + 2 * n - 1) * (a + 2 * n)), 1.0
            yield -(a + n) * (a + b + n) * x / ((a + 2 * n) * (a + 2 * n + 1)), 1.0

    return front / _fraction(1.0, terms())


def _fraction(first: float, terms: Iterable[tuple[float, float]]) -> float:
    """first + n1 / (d1 + n2 / (d2 + ...)), for terms (n, d)."""
    value = first if first != 0 else _TINY
    c, d = value, 0.0
    for numerator, denominator in terms:
        d = denominator + numerator * d
        d = 1 / (d if d != 0 else _TINY)
        c = denominator + numerator / c
        c = c if c != 0 else _TINY
        value *= c * d
        if abs(c * d - 1) < _EXACT:
            break
    return value
