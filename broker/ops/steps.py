"""The interface between collectors and a scrape.

A collector is a callable that returns an iterator of steps. The scrape may yield to the event loop between two steps,
so a step must be short: a value, None after some work without a value, or a `ColdRead`, after which the collector
continues once the data is in memory. Data may change between steps: a collector copies tables before it iterates over
them.
"""

from collections.abc import Callable, Generator, Iterator
from typing import Final, NamedTuple, TypeAlias, TypeVar

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.store.files.cold_reads import ColdRead

MAX_ATTEMPTS: Final = 3

T = TypeVar("T")


class Value(NamedTuple):
    """One value of the metric `name`; `labels` in the order of its row, without the labels of the row's scope."""

    name: str
    labels: tuple[str, ...]
    value: float | Histogram


Step: TypeAlias = Value | ColdRead | None
Steps: TypeAlias = Iterator[Step]
Collector: TypeAlias = Callable[[], Steps]


def retry_cold_reads(read: Callable[[], T]) -> Generator[ColdRead, None, T | None]:
    """Return the result of `read`, fetching missing data in between; None if data is still missing after the last
    attempt."""
    for _ in range(MAX_ATTEMPTS):
        try:
            return read()
        except ColdRead as cold:
            yield cold
    return None
