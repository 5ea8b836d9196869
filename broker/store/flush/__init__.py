"""Durability: threads that sync files, commits that wait for a sync, and the checkpoint.

`log_flush` decides when a commit may be acknowledged, `sync_queue` holds the commits that wait, `flusher` and
`compiled_flusher` are the threads, and `durability` orders the syncs of log, queues, index and checkpoint.
"""
