"""Retention: which segments may be deleted, when, and their deletion.

`rules` decides, without a disk or a clock; `cleaner` and `queue_cleaner` apply its decisions; `removal` unlinks files.
No other package deletes segments.
"""
