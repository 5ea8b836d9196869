"""Progress lines of a running pipeline: one for each batch, from the progress that Spark reports.

    parquet batch=12 rows=50000 rows_per_s=81000 seconds=0.6 lag Orders=1200 Payments=0

The lag of a topic is the number of its offsets beyond the batch, at the time when the batch was planned. Before PySpark
4.2, Spark does not ask for the ends of the queues, so the line has no lag.
"""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from skylarkmq.clients.arrow.topic.positions import Positions
from skylarkmq.clients.spark.features import READ_LIMITS
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
    lags = lag(progress) if READ_LIMITS.is_present else {}
    return " ".join([*parts, *(["lag"] if lags else []), *(f"{topic}={count}" for topic, count in lags.items())])


def lag(progress: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of offsets beyond the batch, by topic."""
    lags: Counter[str] = Counter()
    for source in progress.get("sources", ()):
        end, latest = _ends(source.get("endOffset")), _ends(source.get("latestOffset"))
        for queue, offset in latest.items():
            lags[queue.topic] += max(offset - end.get(queue, 0), 0)
    return dict(sorted(lags.items()))


def end_offsets(progress: Mapping[str, Any]) -> Positions:
    """Return the offsets up to which a query has read after a batch."""
    ends: Positions = {}
    for source in progress.get("sources", ()):
        ends |= _ends(source.get("endOffset"))
    return ends


def _ends(offset: Any) -> Positions:
    if isinstance(offset, str):
        offset = json.loads(offset)
    return Offset.of(offset).ends if isinstance(offset, dict) else {}
