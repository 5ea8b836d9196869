"""What collectors give to a scrape, step by step.

A collector is a call that returns an iterator over its values. Between two steps the event loop may be let go, so a
step is short: a value, None after some work without one, or a `ColdRead`, after which the collector goes on once the
bytes are in memory. What a collector walks over may change between its steps: it takes copies of tables first.
"""

from collections.abc import Callable, Generator, Iterator
from typing import Final, NamedTuple, TypeAlias, TypeVar

from skylarkmq.broker.histogram import Histogram
from skylarkmq.broker.store.read.cold_reads import ColdRead

TRIES: Final = 3

T = TypeVar("T")


class Value(NamedTuple):
    """One value of the metric `name`; `labels` in the order of its row, without those of the row's scope."""

    name: str
    labels: tuple[str, ...]
    value: float | Histogram


Step: TypeAlias = Value | ColdRead | None
Steps: TypeAlias = Iterator[Step]
Collector: TypeAlias = Callable[[], Steps]


def patiently(read: Callable[[], T]) -> Generator[ColdRead, None, T | None]:
    """What `read` returns, with what it misses fetched in between; None if it is cold again and again."""
    for _ in range(TRIES):
        try:
            return read()
        except ColdRead as cold:
            yield cold
    return None
