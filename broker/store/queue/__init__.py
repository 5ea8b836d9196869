"""Consume queues: the 20-byte units of one (topic, queue id), their files, and the table of all queues.

`consume_queue` is one queue, `table` holds all of them, `files` is the descriptor cache, and `paths` defines which
paths may be created or deleted below `consumequeue/`.
"""
