"""Consume queues: the 20-byte units of one (topic, queue id), their files, and the table of all queues.

`consume_queue` is one queue, `table` holds all of them, `files` is the cache of descriptors, and `paths` contains every
path that may be created or deleted below `consumequeue/`.
"""
