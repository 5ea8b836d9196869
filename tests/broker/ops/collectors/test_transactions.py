"""Metrics of transactions."""

from pathlib import Path

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.ops.collectors.transactions import TransactionCollector
from skylarkmq.broker.ops.steps import Value
from tests.harness.stores import opened
from tests.harness.transacted import ROLLBACK, Transacted


async def test_transactions_are_counted_by_topic(tmp_path: Path) -> None:
    """Open, committed and rolled back ones, and the duration of commits; checks in total."""
    with opened(tmp_path) as it:
        parts = Transacted(it)
        halves = [parts.send(b"%d" % n, topic="TU"[n % 2]) for n in range(5)]
        it.clock.now_ms += 1_500
        parts.end(halves[0])
        parts.end(halves[1], ROLLBACK)
        collector = TransactionCollector(parts.transactions, parts.checks)
        values = {(value.name, value.labels): value.value for value in collector() if isinstance(value, Value)}
        took = values.pop(("rocketmq_finish_message_latency_milliseconds", ("T",)))
        assert isinstance(took, Histogram)
        assert (took.count, took.total) == (1, 1.5)
        assert values == {
            ("rocketmq_half_messages", ("T",)): 2,
            ("rocketmq_half_messages", ("U",)): 1,
            ("rocketmq_commit_messages_total", ("T",)): 1,
            ("rocketmq_rollback_messages_total", ("U",)): 1,
            ("skylark_transaction_checks_total", ("asked",)): 0,
            ("skylark_transaction_checks_total", ("nobody",)): 0,
            ("skylark_transaction_discarded_total", ()): 0,
            ("skylark_transaction_dropped_total", ("half",)): 0,
            ("skylark_transaction_dropped_total", ("op",)): 0,
        }
        parts.transactions.forget_topic("T")
        assert parts.transactions.statistics().open == {"U": 1}
