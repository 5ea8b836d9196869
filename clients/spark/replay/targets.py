"""The topic and the queue of a copy.

    topic    one topic for all messages, or a mapping from old to new topics; topics that it does not name keep their
             names. With `topic_property`, each message names its topic in that property. Messages of a retry topic
             or a dead-letter topic that is not mapped name it, too: in RETRY_TOPIC, which the client or the broker set
             to the topic of the subscription, else in DLQ_ORIGIN_TOPIC of RocketMQ 5.
    queue    all messages of an old queue that go to one topic go to one queue of it, so they keep their order: the
             queue of the same number on the broker of the same name; else one of the same number on another broker;
             else any queue. Of several such queues, the CRC-32 of the broker's name plus the number selects one.

The choice is made once for each old queue and then recorded (journal.py): queues that are added later change nothing.
"""

import zlib
from collections.abc import Sequence
from typing import Final

import msgspec

from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import DLQ_PREFIX, RETRY_PREFIX, SystemTopic, is_internal_topic
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.message import PropertyName, check_topic_name, property_value

MAX_DELAY_LEVEL: Final = 18
OF_GROUPS: Final = (RETRY_PREFIX, DLQ_PREFIX)
ORIGINS: Final = (PropertyName.RETRY_TOPIC, "DLQ_ORIGIN_TOPIC")


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    """Where copies go, and how late. ValueError for invalid topics or levels.

    `to_topic`: one topic for all; `topics`: new topics by old ones; `topic_property`: the property that names the topic
    of messages that are not mapped. `delay_level`: 1 to 18, a level of the broker (`messageDelayLevel`); 0: no delay.
    """

    to_topic: str | None = None
    topics: dict[str, str] = {}
    topic_property: str | None = None
    delay_level: int = 0

    def __post_init__(self) -> None:
        if self.to_topic is not None and (self.topics or self.topic_property):
            raise ValueError("a topic for all messages is set, and also a mapping or a property: choose one")
        for topic in [*self.topics.values(), *([] if self.to_topic is None else [self.to_topic])]:
            check_target(topic)
        if not 0 <= self.delay_level <= MAX_DELAY_LEVEL:
            raise ValueError(f"the delay level must be 1 to {MAX_DELAY_LEVEL}, not {self.delay_level}")

    def topic_of(self, topic: str) -> str | None:
        """Return the new topic for messages of `topic`; None: each message names it."""
        named = self.to_topic or self.topics.get(topic)
        if named is not None:
            return named
        return None if self.topic_property or topic.startswith(OF_GROUPS) else topic

    @property
    def naming(self) -> tuple[str, ...]:
        """The properties in which messages name their topic, the first that is set counts."""
        return ORIGINS if self.topic_property is None else (self.topic_property,)

    def named_by(self, properties: str) -> str | None:
        """Return the topic that a message names in its property string; None if it names none."""
        return next((topic for name in self.naming if (topic := property_value(properties, name))), None)

    def held_in(self, queue: MessageQueue) -> MessageQueue:
        """Return the queue in which the broker first stores a copy for `queue`: with a delay, the queue of the
        level."""
        if not self.delay_level:
            return queue
        return MessageQueue(SystemTopic.SCHEDULE, queue.broker_name, self.delay_level - 1)


def check_target(topic: str) -> None:
    """Raises ValueError unless clients may send to a topic of this name."""
    try:
        check_topic_name(topic)
    except RequestError as error:
        raise ValueError(f"{topic!r} cannot be the name of a topic: {error.remark}") from None
    if is_internal_topic(topic):
        raise ValueError(f"{topic} belongs to the broker: choose another topic")


def choose_queue(old: MessageQueue, queues: Sequence[MessageQueue]) -> MessageQueue:
    """Return the queue for all messages of `old`. `queues`: the writable queues of the new topic, sorted; not empty."""
    for queue in queues:
        if (queue.broker_name, queue.queue_id) == (old.broker_name, old.queue_id):
            return queue
    alike = [queue for queue in queues if queue.queue_id == old.queue_id] or queues
    return alike[(zlib.crc32(old.broker_name.encode()) + old.queue_id) % len(alike)]
