"""Retention: what may be deleted and when, and the deletion itself.

`rules` decides, without a disk or a clock; `cleaner` and `queue_cleaner` apply its decisions; `removal` unlinks files.
No other package deletes segments.
"""
