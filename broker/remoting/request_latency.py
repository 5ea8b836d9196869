"""How long requests take from arrival to answer, by what they asked and how they ended.

A connection knows when the request being handled came (`Connection.arrived_s`): the time of its read, which whoever
takes a request up again later puts back. Whoever answers notes it here: the dispatcher what is answered by returning a
response, processors what they answer themselves, a turn's sends in one call. Codes are those of the processor table:
peers cannot add rows by asking for numbers that nobody serves.
"""

from bisect import bisect_left
from time import monotonic
from typing import Final, NamedTuple

import msgspec

from skylarkmq.broker.histogram import Histogram

BOUNDS_MS: Final = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
UNKNOWN_CODE: Final = -1


class Outcome(NamedTuple):
    """One row: requests of a kind that ended alike."""

    request_code: int  # UNKNOWN_CODE: one that no processor serves
    response_code: int
    was_parked: bool = False  # a pull that waited for messages
    was_oneway: bool = False


class LatenciesStatistics(msgspec.Struct, frozen=True):
    """Totals since the start."""

    rows: int
    requests: int


class Latencies:
    """Milliseconds by outcome."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, int, bool, bool], Histogram] = {}

    def __repr__(self) -> str:
        return f"<Latencies rows={len(self.rows)}>"

    def note(
        self,
        request_code: int,
        response_code: int,
        arrived_s: float,
        times: int = 1,
        *,
        was_parked: bool = False,
        was_oneway: bool = False,
    ) -> float:
        """Requests that came at `arrived_s` (of time.monotonic) have been answered now; returns the ms that took."""
        outcome = (request_code, response_code, was_parked, was_oneway)
        row = self.rows.get(outcome)
        if row is None:
            row = self.rows[Outcome(*outcome)] = Histogram(BOUNDS_MS)
        elapsed_ms = (monotonic() - arrived_s) * 1000
        row.counts[bisect_left(BOUNDS_MS, elapsed_ms)] += times
        row.total += elapsed_ms * times
        return elapsed_ms

    def statistics(self) -> LatenciesStatistics:
        """The figures now."""
        return LatenciesStatistics(rows=len(self.rows), requests=sum(row.count for row in self.rows.values()))
