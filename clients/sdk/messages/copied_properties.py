"""The properties that a copy of a stored message does not have: what brokers and clients set for one delivery only."""

from typing import Final

from skylarkmq.protocol.message import PropertyName

_OF_NEWER_BROKERS: Final = (
    "TIMER_DELAY_SEC",
        "TIMER_ROLL_TIMES",
        "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS",
        "TIMER_OUT_MS",
        "TIMER_DEL_UNIQKEY",
    "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "INNER_BASE", "DUP_INFO", "CONSUME_START_TIME",
)  # fmt: skip
DROPPED: Final = frozenset({
    # Delays
    PropertyName.DELAY, PropertyName.TIMER_DELAY_MS, PropertyName.TIMER_DELIVER_MS,
    PropertyName.REAL_TOPIC, PropertyName.REAL_QUEUE_ID,
    # Transactions
    PropertyName.TRANSACTION_PREPARED, PropertyName.PRODUCER_GROUP, PropertyName.TRANSACTION_ID,
    PropertyName.TRANSACTION_CHECK_TIMES, PropertyName.TRANSACTION_IMMUNITY_S,
    PropertyName.TRANSACTION_QUEUE_OFFSET, PropertyName.TRANSACTION_HALF_OFFSET,
    # Retries and dead letters
    PropertyName.RETRY_TOPIC, PropertyName.ORIGIN_MESSAGE_ID, PropertyName.RECONSUME_TIME,
    PropertyName.MAX_RECONSUME_TIMES, PropertyName.POP_CHECKPOINT,
    # Requests: the requester no longer waits for a reply
    PropertyName.CORRELATION_ID, PropertyName.REPLY_TO_CLIENT, PropertyName.TTL, PropertyName.MESSAGE_TYPE,
    PropertyName.PUSH_REPLY_TIME,
    # What the new broker and the pull set themselves
    PropertyName.WAIT, PropertyName.CLUSTER, PropertyName.MSG_REGION, PropertyName.TRACE_ON, PropertyName.CRC32,
    PropertyName.MIN_OFFSET, PropertyName.MAX_OFFSET, PropertyName.INNER_NUM, *_OF_NEWER_BROKERS,
})  # fmt: skip
"""Names of the properties that a copy does not have."""
