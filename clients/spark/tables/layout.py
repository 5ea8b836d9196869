"""How new tables and directories are partitioned: by topic, and by the hour or day of the store time (UTC).

    parquet, delta    columns topic and hour (2024-05-01-13) or day (2024-05-01)
    iceberg           identity(topic), hours(storeTimestamp) or days(storeTimestamp): no column is added

Existing tables keep their own partitioning.
"""

from enum import Enum
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

TOPIC: Final = "topic"
STORED: Final = "storeTimestamp"


class TimeUnit(Enum):
    """The time that a partition spans; the value is also the name of the partition column."""

    HOUR = "hour"
    DAY = "day"

    @property
    def column(self) -> str:
        """Return the name of the partition column."""
        return self.value

    @property
    def pattern(self) -> str:
        """Return the pattern of the partition column's values."""
        return {TimeUnit.HOUR: "yyyy-MM-dd-HH", TimeUnit.DAY: "yyyy-MM-dd"}[self]

    @property
    def transform(self) -> str:
        """Return the name of the transform in Iceberg's SQL."""
        return f"{self.value}s"

    def of(self, timestamp: str) -> Column:
        """Return the partition column for a timestamp; the session's time zone is UTC."""
        return f.date_format(timestamp, self.pattern)
