"""The message type of a stored message."""

import pytest

from skylarkmq.broker.delivery.message_type import special_type


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        (b"", None),
        (b"UNIQ_KEY\x01A\x02CLUSTER\x01c\x02", None),
        (b"__SHARDINGKEY\x01k\x02", "fifo"),
        (b"UNIQ_KEY\x01A\x02__SHARDINGKEY\x01k\x02CLUSTER\x01c\x02", "fifo"),
        (b"X__SHARDINGKEY\x01k\x02", None),
        (b"a\x01__SHARDINGKEY\x02", None),
        (b"UNIQ_KEY\x01A\x02DELAY\x013\x02CLUSTER\x01c\x02", "delay"),
        (b"TIMER_DELIVER_MS\x013\x02", "delay"),
        (b"MY_DELAY\x013\x02", None),
        (b"DELAY\x013\x02__SHARDINGKEY\x01k\x02", "fifo"),
        (b"DELAY\x013\x02__SHARDINGKEY\x01k\x02TRAN_MSG\x01true", "transaction"),
        (b"TRAN_MSG\x01false\x02DELAY\x013\x02", "delay"),
    ],
)
def test_a_property_name_determines_the_type(properties: bytes, kind: str | None) -> None:
    """The name of a property counts, not other text that contains it."""
    assert special_type(properties) == kind
