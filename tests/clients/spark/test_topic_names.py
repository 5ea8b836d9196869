"""Which topics a pattern means."""

import pytest

from skylarkmq.clients.spark.topic_names import is_meant


@pytest.mark.parametrize(
    ("topic", "pattern", "meant"),
    [
        ("Orders", "Ord.*", True),
        ("MyOrders", "Ord.*", False),
        ("Orders2", "Orders", False),
        ("TBW102", ".*", False),
        ("RMQ_SYS_TRANS_HALF_TOPIC", ".*", False),
        ("rmq_sys_ledger", ".*", False),
        ("broker-a", ".*", False),
        ("%DLQ%g", ".*", False),
        ("%DLQ%g", "%DLQ%.*", True),
        ("%RETRY%g", "%DLQ%.*", False),
    ],
)
def test_a_pattern_means_whole_names_of_users_topics(topic: str, pattern: str, meant: bool) -> None:
    """None of the system's; those of groups by a % only."""
    assert is_meant(topic, pattern, {"broker-a"}) is meant
