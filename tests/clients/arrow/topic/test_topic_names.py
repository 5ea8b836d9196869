"""Topic names that a pattern selects."""

import pytest

from skylarkmq.clients.arrow.topic.topic_names import is_selected


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
def test_a_pattern_matches_whole_names_of_user_topics(topic: str, pattern: str, meant: bool) -> None:
    """No system topics; topics of groups only by a pattern with a %."""
    assert is_selected(topic, pattern, {"broker-a"}) is meant
