"""The commit log: records, the batch of records that one event-loop iteration writes, and the segments they go to.

`commit_log` is the entry point. Segments are created by `allocation` and `transient_pool`, kept in memory by `warm_up`,
and zero-filled by `zero_fill`. `record_rules` defines which records may enter the log; `common_records` checks written
ones many at a time. The package `read` contains the code that only reads the log, and `flush` the code that makes it
durable.
"""
