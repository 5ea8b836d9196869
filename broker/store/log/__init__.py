"""The commit log: records, the batch of records that one event-loop iteration writes, and the segments they go to.

`commit_log` is the entry. Segments are created by `allocation` and `transient_pool`, kept in memory by `warm_up`, and
zero-filled by `zero_fill`. `record_rules` is the one definition of a record that may enter. Everything that only reads
the log is in `read`; everything that makes it durable is in `flush`.
"""
