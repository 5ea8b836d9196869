"""From a record in an internal topic to the message that is delivered.

The message gets its original topic and queue. Body, flags, born time and host, and reconsume times are kept, and so are
the stored properties byte for byte: a delivered message still contains DELAY, REAL_TOPIC and REAL_QID, and only its
topic indicates that it has been delivered. The put does not wait for a flush.

REAL_TOPIC and REAL_QID are validated as if a client had just sent them, because stores of other versions and damaged
disks may contain anything. The topic must be one that clients may write to, the queue id an int32 of 0 or more.
Source: docs/reference/wire.md, "Delayed messages", "Entries of internal topics".
"""

from skylarkmq.broker.store.log.append import Append
from skylarkmq.protocol.decimals import INT32_MAX, decimal
from skylarkmq.protocol.message import MAX_STORED_TOPIC_LENGTH, PropertyName, is_client_topic, property_value, tags_code
from skylarkmq.protocol.record import Record


class InvalidDestination(ValueError):
    """A record of an internal topic has no destination, or one that clients may not write to.

    `topic`: the real topic if it is valid, else "".
    """

    def __init__(self, topic: str | None, queue_id: str | None) -> None:
        super().__init__(f"REAL_TOPIC={_shortened(topic)} REAL_QID={_shortened(queue_id)}")
        self.topic = topic if topic is not None and is_client_topic(topic) else ""


def destination(properties: str) -> tuple[str, int]:
    """Return the topic and the queue id to which a waiting message belongs. Raises InvalidDestination."""
    topic = property_value(properties, PropertyName.REAL_TOPIC)
    return valid_destination(topic, property_value(properties, PropertyName.REAL_QUEUE_ID))


def valid_destination(topic: str | None, queue_id: str | None) -> tuple[str, int]:
    """Return them from the values of REAL_TOPIC and REAL_QID. Raises InvalidDestination."""
    number = decimal(queue_id, 0, INT32_MAX)
    if topic is None or number is None or not is_client_topic(topic):
        raise InvalidDestination(topic, queue_id)
    return topic, number


def restore(record: Record) -> Append:
    """Return the message to deliver; its body is a view into the memory of the record. Raises InvalidDestination."""
    properties = record.properties
    text = properties.decode("utf-8", "replace")
    topic, queue_id = destination(text)
    return Append(
        topic,
        queue_id,
        record.body,
        properties,
        tags_code(property_value(text, PropertyName.TAGS)),
        record.flag,
        record.sys_flag,
        record.born_timestamp,
        record.born_host,
        record.reconsume_times,
        0,
        False,
    )


def _shortened(text: str | None) -> str | None:
    """Return the text, cut to the maximum length of a topic name, so that a log line stays short."""
    return text if text is None or len(text) <= MAX_STORED_TOPIC_LENGTH else text[:MAX_STORED_TOPIC_LENGTH] + "..."
