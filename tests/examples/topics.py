"""Messages of the tests, and what the broker has of them."""

from collections.abc import Sequence

from skylarkmq import ConsumeFrom, Message, MessageQueue, SendResult, blocking

END = b"end of the test"


def send(
    namesrv: str, messages: Sequence[Message], group: str | None = None, queue: MessageQueue | None = None
) -> list[SendResult]:
    """Send messages one after the other."""
    with blocking.Producer("tests", namesrv=namesrv) as producer:
        return [producer.send(message, message_group=group, queue=queue) for message in messages]


def create(namesrv: str, topic: str) -> None:
    """Create a topic with one queue."""
    with blocking.Admin(namesrv=namesrv) as admin:
        admin.create_topic(topic, queues=1)


def bodies(namesrv: str, topic: str) -> list[bytes]:
    """Return the bodies of a topic with one queue, in their order. Sends one more message, to read up to it."""
    (end,) = send(namesrv, [Message(topic, END)])
    found: list[bytes] = []
    with blocking.PullConsumer("tests", namesrv=namesrv, auto_commit=False) as consumer:
        consumer.assign([end.queue])
        consumer.seek(end.queue, 0)
        for message in consumer:
            if message.body != END:
                found.append(message.body)
            if message.queue_offset == end.queue_offset:
                break
    return found


def wait_for_message(namesrv: str, topic: str) -> None:
    """Wait until a topic has a message."""
    with blocking.PullConsumer("tests", namesrv=namesrv, topics=topic, consume_from=ConsumeFrom.FIRST) as consumer:
        next(iter(consumer))


def lag(namesrv: str, group: str, topic: str) -> int:
    """Return the number of messages whose offsets a group has not committed."""
    with blocking.Admin(namesrv=namesrv) as admin:
        return admin.lag(group, topic)
