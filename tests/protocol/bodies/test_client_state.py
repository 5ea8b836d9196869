"""Bodies of requests to clients: maps by queue for most clients, a list for C++ clients."""

from skylarkmq.protocol import javajson
from skylarkmq.protocol.bodies.client_state import ConsumerStatus, ListedOffset, ListedOffsets, ResetOffsets
from skylarkmq.protocol.bodies.message_queue import MessageQueue

QUEUE = MessageQueue("T", "b", 1)
KEY = b'{"brokerName":"b","queueId":1,"topic":"T"}'


def test_offsets_have_two_forms() -> None:
    """A map with objects as its keys; and the same as a list."""
    offsets = ResetOffsets({QUEUE: 5})
    assert offsets.encode() == b'{"offsetTable":{%b:5}}' % KEY
    assert ResetOffsets.decode(offsets.encode()) == offsets
    listed = ListedOffsets.of(offsets)
    assert listed.encode() == b'{"offsetTable":[{"brokerName":"b","offset":5,"queueId":1,"topic":"T"}]}'
    assert listed.offset_table == [ListedOffset("T", "b", 1, 5)]


def test_consumer_status_by_client_and_queue() -> None:
    """The responses to INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223) and GET_CONSUMER_STATUS_FROM_CLIENT (221)."""
    status = ConsumerStatus(consumer_table={"c": {QUEUE: 7}})
    assert status.encode() == b'{"consumerTable":{"c":{%b:7}},"messageQueueTable":{}}' % KEY
    decoded = ConsumerStatus.decode(b'{"messageQueueTable":{%b:7}}' % KEY)
    assert decoded.message_queue_table == {QUEUE: 7}
    assert javajson.loads(status.encode(), object_key=MessageQueue.of)["consumerTable"] == {"c": {QUEUE: 7}}
