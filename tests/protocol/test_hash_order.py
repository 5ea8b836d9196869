"""The order of Java's hash maps and sets."""

from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.hash_order import bucket_order, capacity_of_copy, queue_bucket_order


def test_names_are_in_the_order_of_a_java_hash_map() -> None:
    """As Java 17 returns the keys of such maps: by bucket, and with more than twelve keys by more buckets."""
    twelve, more = [f"topic-{n}" for n in range(10)], [f"topic-{n}" for n in range(11)]
    assert bucket_order(["%RETRY%G", "orders", *twelve]) == [
        "topic-6",
        "topic-7",
        "topic-8",
        "topic-9",
        "%RETRY%G",
        "orders",
        "topic-0",
        "topic-1",
        "topic-2",
        "topic-3",
        "topic-4",
        "topic-5",
    ]
    assert bucket_order(["%RETRY%G", "orders", *more]) == [
        "topic-6",
        "topic-7",
        "topic-8",
        "topic-9",
        "%RETRY%G",
        "topic-0",
        "topic-1",
        "topic-2",
        "topic-3",
        "topic-10",
        "topic-4",
        "topic-5",
        "orders",
    ]
    assert bucket_order(["價格", "größe"]) == ["größe", "價格"]
    names = ["UNIQ_KEY", "WAIT", "TAGS", "KEYS", "MIN_OFFSET", "MAX_OFFSET", "n", "CLUSTER", "TRACE_ON", "MSG_REGION"]
    assert bucket_order(names, 128) == [
        "MSG_REGION",
        "UNIQ_KEY",
        "CLUSTER",
        "MIN_OFFSET",
        "TAGS",
        "KEYS",
        "WAIT",
        "TRACE_ON",
        "n",
        "MAX_OFFSET",
    ]


def test_queues_are_in_the_order_of_a_java_hash_set() -> None:
    """As `fetchSubscribeMessageQueues` of RocketMQ's pull consumer returns them."""
    queues = [MessageQueue("Alpha", "broker-a", n) for n in range(8)]
    assert [queue.queue_id for queue in queue_bucket_order(queues)] == [7, 6, 5, 4, 3, 2, 1, 0]


def test_a_copied_map_has_room_for_all_entries() -> None:
    """So its order differs from that of a map that grew: such rows were printed by RocketMQ's resetOffsetByTime."""
    assert [capacity_of_copy(count) for count in (1, 4, 8, 12, 13, 24)] == [2, 8, 16, 32, 32, 64]
    queues = [MessageQueue("Orders", "broker-a", n) for n in range(8)]
    copied = queue_bucket_order(queues, capacity_of_copy(len(queues)))
    assert [queue.queue_id for queue in copied] == [3, 2, 5, 4, 7, 6, 1, 0]
