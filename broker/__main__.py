"""`python -m skylarkmq.broker` is `mqbroker`."""

from skylarkmq.broker.cli import mqbroker

mqbroker()
