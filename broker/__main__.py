"""`python -m broker` is `mqbroker`."""

from broker.cli import mqbroker

mqbroker()
