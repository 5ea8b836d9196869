"""From a message that has waited in the schedule topic to the one that is delivered.

Topic and queue are those that it was sent to; body, flags, born time and host, and reconsume times are kept, and so are
the stored properties byte for byte: a delivered message still says DELAY, REAL_TOPIC and REAL_QID, and only its topic
tells that it need not wait any more. Nobody waits for its flush.

REAL_TOPIC and REAL_QID are validated as if a client had just sent them: stores of other versions and damaged disks
bring anything. The topic must be one that clients may write to, the queue id an int32 of 0 or more.
Source: docs/formats.md, "Delayed messages", "Entries of internal topics".
"""

from skylarkmq.broker.store.log.append import Append
from skylarkmq.protocol.decimals import INT32_MAX, decimal
from skylarkmq.protocol.message import MAX_STORED_TOPIC_LENGTH, PropertyName, is_client_topic, property_value, tags_code
from skylarkmq.protocol.record import Record


class NoDestination(ValueError):
    """A record of an internal topic that does not say where it belongs, or names what no client may write to.

    `topic`: the real topic if it is a valid one, else "".
    """

    def __init__(self, topic: str | None, queue_id: str | None) -> None:
        super().__init__(f"REAL_TOPIC={_shortened(topic)} REAL_QID={_shortened(queue_id)}")
        self.topic = topic if topic is not None and is_client_topic(topic) else ""


def destination(properties: str) -> tuple[str, int]:
    """Return the topic and the queue id that a waiting message belongs to. NoDestination."""
    topic = property_value(properties, PropertyName.REAL_TOPIC)
    return valid_destination(topic, property_value(properties, PropertyName.REAL_QUEUE_ID))


def valid_destination(topic: str | None, queue_id: str | None) -> tuple[str, int]:
    """The same of the values of REAL_TOPIC and REAL_QID."""
    number = decimal(queue_id, 0, INT32_MAX)
    if topic is None or number is None or not is_client_topic(topic):
        raise NoDestination(topic, queue_id)
    return topic, number


def restored(record: Record) -> Append:
    """The message as it is delivered; its body is a view into what the record was read from. NoDestination."""
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
    """At most as many characters as a name may have: a line of the log is not to be as long as a message."""
    return text if text is None or len(text) <= MAX_STORED_TOPIC_LENGTH else text[:MAX_STORED_TOPIC_LENGTH] + "..."
