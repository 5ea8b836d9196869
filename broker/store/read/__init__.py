"""Reads: from a queue offset to the bytes of records, without blocking the event loop on a disk.

`store_reader` is the entry point. Reads of the log go through `log_reads`. Reads that miss the page cache raise
`ColdRead`, and `broker.store.files.cold_reads` fetches the range in a thread. Nothing here writes.
"""
