"""Two brokers alternately, and the ratios of their figures.

The load of a machine changes from minute to minute, so figures of two separate runs are hard to compare. Here the
brokers alternate in short rounds, each one first equally often. The result is the ratio within a round, as minimum,
median and maximum over the rounds.
"""

from collections.abc import Callable, Sequence
from statistics import median

import msgspec

from skylarkmq.clients.mqbench.recorder import Figures

Run = Callable[[], Figures]


class Spread(msgspec.Struct, frozen=True):
    """Minimum, median and maximum of some figures."""

    smallest: float
    middle: float
    largest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return the spread of the values. Raises ValueError if there are none."""
        return cls(min(values), median(values), max(values))

    def __str__(self) -> str:
        return f"{self.smallest:.2f} / {self.middle:.2f} / {self.largest:.2f}"


class Ratio(msgspec.Struct, frozen=True):
    """One figure of both sides, and the ratio of the second to the first, round by round."""

    figure: str
    first: Spread
    second: Spread
    ratio: Spread


FIGURES: dict[str, Callable[[Figures], float]] = {
    "messages_per_s": lambda figures: figures.rate,
    "p50_us": lambda figures: figures.latency.percentile(50) / 1000,
    "p99_us": lambda figures: figures.latency.percentile(99) / 1000,
    "p99.9_us": lambda figures: figures.latency.percentile(99.9) / 1000,
}


def interleaved(runs: Sequence[Run], rounds: int) -> list[list[Figures]]:
    """Return the figures of each run, round by round; the order of the runs alternates."""
    taken: list[list[Figures]] = [[] for _ in runs]
    for number in range(rounds):
        order = list(range(len(runs)))
        for index in order if number % 2 == 0 else reversed(order):
            taken[index].append(runs[index]())
    return taken


def ratios(first: Sequence[Figures], second: Sequence[Figures]) -> list[Ratio]:
    """Return the ratio of each of FIGURES; rounds in which the first side has no value are omitted."""
    return [
        found
        for name, figure in FIGURES.items()
        if (found := ratio_of(name, [*map(figure, first)], [*map(figure, second)])) is not None
    ]


def ratio_of(name: str, first: Sequence[float], second: Sequence[float]) -> Ratio | None:
    """Return the second's values divided by the first's, round by round; None if no round can be compared."""
    quotients = [two / one for one, two in zip(first, second, strict=True) if one]
    if not quotients:
        return None
    return Ratio(name, Spread.of(first), Spread.of(second), Spread.of(quotients))
