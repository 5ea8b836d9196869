"""Progress lines of a running pipeline: one for each batch, from the progress that Spark reports.

    parquet batch=12 rows=50000 rows_per_s=81000 seconds=0.6 lag Orders=1200 Payments=0

The lag of a topic is the number of its offsets beyond the batch, at the time when the batch was planned. Before PySpark
4.2, Spark does not ask for the ends of the queues, so the line has no lag. A backfill has the number of bytes of the
log that are left instead: `left broker-a=1048576`.
"""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from skylarkmq.clients.arrow.topic.positions import Positions
from skylarkmq.clients.spark.base.features import READ_LIMITS
from skylarkmq.clients.spark.source.offsets import Offset


def line(progress: Mapping[str, Any]) -> str:
    """Return the line of a batch; `progress` is `StreamingQueryProgress.json`, decoded."""
    seconds = progress.get("durationMs", {}).get("triggerExecution", 0) / 1000
    parts = [
        str(progress.get("name")),
        f"batch={progress.get('batchId')}",
        f"rows={progress.get('numInputRows', 0)}",
        f"rows_per_s={progress.get('processedRowsPerSecond', 0):.0f}",
        f"seconds={seconds:.1f}",
    ]
    if READ_LIMITS.is_present:
        for what, counts in (("lag", lag(progress)), ("left", left(progress))):
            parts += [what, *(f"{name}={count}" for name, count in counts.items())] if counts else []
    return " ".join(parts)


def lag(progress: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of offsets beyond the batch, by topic."""
    lags: Counter[str] = Counter()
    for source in progress.get("sources", ()):
        end, latest = _ends(source.get("endOffset")), _ends(source.get("latestOffset"))
        for queue, offset in latest.items():
            lags[queue.topic] += max(offset - end.get(queue, 0), 0)
    return dict(sorted(lags.items()))


def left(progress: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of bytes of a backfill's log beyond the batch, by broker."""
    found: dict[str, int] = {}
    for source in progress.get("sources", ()):
        end, latest = _offset(source.get("endOffset")), _offset(source.get("latestOffset"))
        found |= {broker: at - end.logs.get(broker, 0) for broker, at in latest.logs.items()}
    return found


def end_offsets(progress: Mapping[str, Any]) -> Positions:
    """Return the offsets up to which a query has read after a batch."""
    ends: Positions = {}
    for source in progress.get("sources", ()):
        ends |= _ends(source.get("endOffset"))
    return ends


def _ends(offset: Any) -> Positions:
    return _offset(offset).ends


def _offset(offset: Any) -> Offset:
    if isinstance(offset, str):
        offset = json.loads(offset)
    return Offset.of(offset) if isinstance(offset, dict) else Offset({})
