"""The functions behind the jobs `mqspark-lag`, `mqspark-dead-letters`, `mqspark-traces` and `mqspark-duplicates`.

    from skylarkmq.spark_jobs import duplicates

    repeated = duplicates.duplicated(duplicates.copies(duplicates.values(rows, "key")))

Each name is a module whose functions take and return DataFrames (docs/use/spark/jobs.md).
"""

from skylarkmq.clients.spark.jobs import dead_letters, duplicates, lag, traces

__all__ = ["dead_letters", "duplicates", "lag", "traces"]
