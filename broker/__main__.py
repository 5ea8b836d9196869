"""`python -m skylarkmq.broker` is `mqbroker`."""

from skylarkmq.broker.app.cli import mqbroker

mqbroker()
