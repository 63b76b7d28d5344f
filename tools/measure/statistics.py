"""Medians, paired ratios and the order of rounds.

Shared machines have bursts: one run in ten may cost a quarter more than its neighbours. Medians survive that, means
do not; and a ratio taken between two runs of the same round is spared whatever the machine did in the other rounds.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Callable, Iterator, Optional, Sequence, TypeVar

Item = TypeVar("Item")

RESAMPLES = 2000      # the ends of a 95 % interval then wander by about 1 % of its width; takes some 10 ms
CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class Spread:
    """The middle and the ends of some repeated figure."""
    median: float
    minimum: float
    maximum: float
    count: int


def median(values: Sequence[float]) -> float:
    """The middle value; the mean of the two in the middle if the count is even. Empty input is the caller's mistake."""
    if not values:
        raise ValueError("median of no values")
    ordered = sorted(values)
    half = len(ordered) // 2
    if len(ordered) % 2:
        return float(ordered[half])
    return (ordered[half - 1] + ordered[half]) / 2


def spread_of(values: Sequence[Optional[float]]) -> Optional[Spread]:
    """Median, minimum and maximum of the values that are there; None if none is."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    return Spread(median(present), min(present), max(present), len(present))


def paired_ratios(left: Sequence[Optional[float]], right: Sequence[Optional[float]]) -> list[float]:
    """left[i] / right[i] for every round in which both were measured."""
    return [a / b for a, b in zip(left, right) if a is not None and b is not None and b > 0]


def bootstrap_interval(values: Sequence[float], seed: int = 1) -> Optional[tuple[float, float]]:
    """The 95 % percentile bootstrap interval of the median.

    The seed is fixed so that rendering a report twice gives the same page. One value has no interval (None). With
    three values the interval is close to their minimum and maximum: honest, and a reason to run more rounds.
    """
    if len(values) < 2:
        return None
    draw = random.Random(seed)
    medians = sorted(median([draw.choice(values) for _ in values]) for _ in range(RESAMPLES))
    tail = (1 - CONFIDENCE) / 2
    return medians[int(tail * RESAMPLES)], medians[min(RESAMPLES - 1, int((1 - tail) * RESAMPLES))]


def interleaved(items: Sequence[Item], rounds: int,
                keep_going: Callable[[], bool] = lambda: True) -> Iterator[tuple[int, Item]]:
    """Yields (round, item): every item once a round, every other round backwards.

    Turning the order round spares each item from always running behind the same neighbour (its TIME_WAITs, its heat).
    """
    for number in range(rounds):
        order = list(items) if number % 2 == 0 else list(reversed(items))
        for item in order:
            if not keep_going():
                return
            yield number, item
