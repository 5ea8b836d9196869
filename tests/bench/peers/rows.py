"""The rows of the table: the figures of the loads, and our budgets, interpreted and compiled.

A limit on the ratio compares our figure with the official broker's (4.9.7) in the same round; a limit on the value
applies to our figure alone. The median over the rounds counts.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from skylarkmq.clients.mqbench.compare import Spread
from tests.bench.peers.loads import Sample
from tests.bench.peers.started import COMPILED, INTERPRETED, OFFICIAL

Samples = Mapping[str, Sequence[Sample]]
"""The samples of one load: by kind of broker, round by round."""


class Limit(msgspec.Struct, frozen=True):
    """The budget of a variant: an upper limit, or a lower limit in rows where more is better. None: no limit."""

    ratio: float | None = None
    value: float | None = None


class Row(msgspec.Struct, frozen=True):
    """One figure. `digits`: number of printed decimals."""

    title: str
    load: str
    figure: str
    unit: str
    limits: dict[str, Limit]
    more_is_better: bool = False
    digits: int = 0

    def values(self, samples: Samples, kind: str) -> list[float]:
        """Return the figure of one kind, round by round; empty if it was not measured."""
        return [sample[self.figure] for sample in samples.get(kind, ())]

    def ratios(self, samples: Samples, kind: str) -> list[float]:
        """Return the ratio of one kind's figure to the official broker's, round by round."""
        pairs = zip(self.values(samples, kind), self.values(samples, OFFICIAL), strict=False)
        return [ours / theirs for ours, theirs in pairs if theirs]

    def holds(self, samples: Samples, kind: str) -> bool | None:
        """Return whether a variant is within its limits; None if a required figure was not measured."""
        limit = self.limits.get(kind, Limit())
        both = [(limit.value, self.values(samples, kind)), (limit.ratio, self.ratios(samples, kind))]
        checks = [(bound, figures) for bound, figures in both if bound is not None]
        if not all(figures for _, figures in checks):
            return None
        return all(self._keeps(Spread.of(figures).middle, bound) for bound, figures in checks)

    def format_limit(self, kind: str) -> str:
        """Return the limits as text."""
        limit = self.limits.get(kind, Limit())
        sign = "≥" if self.more_is_better else "≤"
        parts = [f"{sign} {limit.value:,g} {self.unit}".strip()] if limit.value is not None else []
        parts += [f"{sign} {limit.ratio:g} ×"] if limit.ratio is not None else []
        return ", ".join(parts)

    def format_values(self, samples: Samples, kind: str) -> str:
        """Return minimum, median and maximum as text."""
        values = self.values(samples, kind)
        if not values:
            return "–"
        return " / ".join(f"{value:,.{self.digits}f}" for value in msgspec.structs.astuple(Spread.of(values)))

    def format_ratio(self, samples: Samples, kind: str) -> str:
        """Return the minimum, median and maximum ratio as text."""
        found = self.ratios(samples, kind)
        return str(Spread.of(found)) if found else "–"

    def _keeps(self, value: float, bound: float) -> bool:
        return value >= bound if self.more_is_better else value <= bound


def both(interpreted: Limit, compiled: Limit | None = None) -> dict[str, Limit]:
    """Return the limits of both variants; the same one for both if the second is not set."""
    return {INTERPRETED: interpreted, COMPILED: compiled or interpreted}


CPU_LIMITS: Final = both(Limit(0.4, 6.0), Limit(0.2, 2.5))
SYNC_TITLE: Final = "SYNC_FLUSH, 16 × 4 in flight"

ROWS: Final = (
    Row("broker CPU per send, ASYNC_FLUSH, 256 × 4", "sends", "cpu_us", "µs", CPU_LIMITS, digits=2),
    Row("sends, ASYNC_FLUSH, 256 × 4", "sends", "rate", "/s", both(Limit(1.5), Limit(2.5, 200_000)), True),
    Row("sends on one connection", "one-connection", "rate", "/s", both(Limit(1.4), Limit(2.0)), True),
    Row(SYNC_TITLE, "sync-16", "rate", "/s", both(Limit(1.5), Limit(2.0)), True),
    Row(
        f"{SYNC_TITLE}, sends/s × p50 of a bare fdatasync",
        "sync-16",
        "per_sync",
        "",
        both(Limit(value=6), Limit(value=9)),
        more_is_better=True,
        digits=1,
    ),
    Row("SYNC_FLUSH, 64 × 4 in flight", "sync-64", "rate", "/s", both(Limit(1.5), Limit(2.5)), True),
    Row("one in flight, ASYNC_FLUSH, p50", "single", "p50_us", "µs", both(Limit(0.6))),
    Row("one in flight, ASYNC_FLUSH, p99", "single", "p99_us", "µs", both(Limit(0.6))),
    Row(
        "one in flight, SYNC_FLUSH, p50 minus a bare fdatasync", "sync-single", "over_us", "µs", both(Limit(None, 120))
    ),
    Row("batch sends, 100 × 1 KiB", "batches", "mb_per_s", "MB/s", both(Limit(None, 300), Limit(None, 600)), True),
    Row("catch-up pull, one consumer, 32 × 1 KiB", "catch-up", "rate", "/s", both(Limit(1.1), Limit(1.2)), True),
    Row(
        "catch-up pull, broker CPU per message",
        "catch-up",
        "cpu_us",
        "µs",
        both(Limit(0.6, 1.6), Limit(0.4, 1.0)),
        digits=2,
    ),
    Row(
        "end to end, p99 at 10,000 messages/s",
        "end-to-end",
        "p99_us",
        "µs",
        both(Limit(value=3000), Limit(value=2000)),
    ),
    Row(
        "10,000 queues over 1,000 topics, share of the sends/s with 4 queues",
        "many-queues",
        "share",
        "",
        both(Limit(value=0.8)),
        more_is_better=True,
        digits=2,
    ),
    Row(
        "log of 20 segments of 64 MiB, 2 M index entries, share of the sends/s at the start",
        "grown",
        "share",
        "",
        both(Limit(value=0.95)),
        more_is_better=True,
        digits=2,
    ),
)
