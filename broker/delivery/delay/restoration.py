"""From a message that has waited in the schedule topic to the one that is delivered.

Topic and queue are those that it was sent to; body, flags, born time and host, and reconsume times are kept, and so are
the stored properties byte for byte: a delivered message still says DELAY, REAL_TOPIC and REAL_QID, and only its topic
tells that it need not wait any more. Nobody waits for its flush. Source: docs/formats.md, "Delayed messages".
"""

from typing import Final

from broker.store.append import Append
from protocol.codes import SystemTopic
from protocol.message import PropertyName, property_value, tags_code
from protocol.record import Record

NEVER_DELIVERED: Final = frozenset((SystemTopic.SCHEDULE, SystemTopic.TRANSACTION_HALF))
"""Real topics whose messages are dropped: half messages that RocketMQ has delayed, which nobody can decide any more."""


class NoDestination(ValueError):
    """A record of the schedule topic that does not say where it belongs; `topic` "" if it does not even say that."""

    def __init__(self, topic: str | None, queue_id: str | None) -> None:
        super().__init__(f"REAL_TOPIC={topic} REAL_QID={queue_id}")
        self.topic = topic or ""


def restored(record: Record) -> Append:
    """The message as it is delivered; its body is a view into what the record was read from. NoDestination."""
    properties = record.properties
    text = properties.decode("utf-8", "replace")
    topic = property_value(text, PropertyName.REAL_TOPIC)
    queue_id = property_value(text, PropertyName.REAL_QUEUE_ID)
    if topic is None or queue_id is None or not queue_id.isdecimal() or not queue_id.isascii():
        raise NoDestination(topic, queue_id)
    return Append(
        topic,
        int(queue_id),
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
