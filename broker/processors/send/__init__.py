"""Sends: every request that stores a producer's message, and RECALL_MESSAGE (370), which cancels one.

`processor` serves any send, `checks` and `messages` turn a request into appends, `response` encodes the result,
`fast_path` and `fast_batches` serve sends with the common header, and `disk_backpressure` pauses sends while the disk
is behind.
"""
