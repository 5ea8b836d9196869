"""Limits of waits, in seconds.

A limit ends a test that hangs. It is no expectation: tests pass on a machine that is many times slower than usual.
"""

from typing import Final

WAIT_LIMIT_S: Final = 120
"""For a response, an event or a condition, while all processes run."""

PROCESS_LIMIT_S: Final = 600
"""For what includes the start, the end or the whole work of a process: a JVM, Spark, a browser, a client, a broker."""
