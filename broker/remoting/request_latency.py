"""How long requests take from arrival to response, by request code and response code.

A connection keeps the arrival time of the request being handled (`Connection.arrived_s`): the time of its read. Code
that resumes a request later restores it. The code that writes a response records the latency here: the dispatcher for
responses that processors return, processors for responses that they write themselves, and one call for all sends of a
read batch. Request codes come from the processor table, so peers cannot add rows with unknown codes.
"""

from bisect import bisect_left
from time import monotonic
from typing import Final, NamedTuple

import msgspec

from skylarkmq.broker.base.histogram import Histogram

BOUNDS_MS: Final = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
UNKNOWN_CODE: Final = -1


class Outcome(NamedTuple):
    """One row: requests with the same code, result and kind."""

    request_code: int  # UNKNOWN_CODE: a code without a processor
    response_code: int
    was_parked: bool = False  # a pull that waited for messages
    was_oneway: bool = False


class LatenciesStatistics(msgspec.Struct, frozen=True):
    """Totals since the start."""

    rows: int
    requests: int


class Latencies:
    """Histograms of milliseconds by outcome."""

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
        """Record `times` responses to requests that arrived at `arrived_s` (of time.monotonic); return their latency in
        ms."""
        outcome = (request_code, response_code, was_parked, was_oneway)
        row = self.rows.get(outcome)
        if row is None:
            row = self.rows[Outcome(*outcome)] = Histogram(BOUNDS_MS)
        elapsed_ms = (monotonic() - arrived_s) * 1000
        row.counts[bisect_left(BOUNDS_MS, elapsed_ms)] += times
        row.total += elapsed_ms * times
        return elapsed_ms

    def statistics(self) -> LatenciesStatistics:
        """Return the current figures."""
        return LatenciesStatistics(rows=len(self.rows), requests=sum(row.count for row in self.rows.values()))
