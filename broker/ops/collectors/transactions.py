"""Metrics of transactions: open ones, outcomes, and checks."""

from skylarkmq.broker.delivery.transactions.checks import TransactionChecks
from skylarkmq.broker.delivery.transactions.transactions import Transactions
from skylarkmq.broker.ops.steps import Steps, Value


class TransactionCollector:
    """Metrics of one broker's transactions."""

    def __init__(self, transactions: Transactions, checks: TransactionChecks) -> None:
        self._transactions = transactions
        self._checks = checks

    def __repr__(self) -> str:
        return f"<TransactionCollector {self._transactions!r}>"

    def __call__(self) -> Steps:
        """Yield every value."""
        now = self._transactions.statistics()
        for name, counts in (
            ("rocketmq_half_messages", now.open),
            ("rocketmq_commit_messages_total", now.committed),
            ("rocketmq_rollback_messages_total", now.rolled_back),
        ):
            for topic, count in counts.items():
                yield Value(name, (topic,), count)
        for topic, seconds in list(self._transactions.finished.items()):
            yield Value("rocketmq_finish_message_latency_milliseconds", (topic,), seconds)
        checks = self._checks.statistics()
        yield Value("skylark_transaction_checks_total", ("asked",), checks.asked)
        yield Value("skylark_transaction_checks_total", ("nobody",), checks.without_producer)
        yield Value("skylark_transaction_discarded_total", (), checks.discarded + checks.dropped)
        yield Value("skylark_transaction_dropped_total", ("half",), now.dropped_halves)
        yield Value("skylark_transaction_dropped_total", ("op",), now.dropped_ops)
