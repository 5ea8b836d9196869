"""Dead letters: copies that are sent again, to one group or to all groups of the topic.

A message that a group could not handle is in `%DLQ%<group>`. Its copy goes either to the retry topic of the group,
which delivers it to this group only, or to the topic that it came from, which all groups of that topic receive. A group
that consumes in order has no use for its retry topic: brokers make such a copy a dead letter again.

The copy keeps id, keys, tags and the properties of applications; deliveries are counted from 0 again. Source:
docs/reference/wire.md, "Retries and dead letters".
"""

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final

from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.admin.queue_ranges import QueueRange, Stored, read
from skylarkmq.clients.sdk.base.errors import InvalidArgument
from skylarkmq.clients.sdk.messages.copied_properties import DROPPED
from skylarkmq.protocol.codes import DLQ_PREFIX, RETRY_PREFIX
from skylarkmq.protocol.message import Message, MessageExt, PropertyName

DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"  # of RocketMQ 5's proxy
READ_AT_ONCE: Final = 32


def origin_topic(letter: MessageExt) -> str | None:
    """Return the topic of the first delivery; None if the letter does not name it."""
    properties = letter.properties
    return properties.get(PropertyName.RETRY_TOPIC) or properties.get(DLQ_ORIGIN_TOPIC)


def copy_of(letter: MessageExt, group: str | None) -> Message:
    """Return the copy of a dead letter for its group; `group` None: for the topic that it came from.

    InvalidArgument if it does not name that topic, or is no dead letter.
    """
    origin = origin_topic(letter)
    if not letter.topic.startswith(DLQ_PREFIX):
        raise InvalidArgument(f"message {letter.msg_id} is in {letter.topic}, which is not a dead-letter topic.")
    if origin is None:
        raise InvalidArgument(f"message {letter.msg_id} does not name the topic that it came from.")
    properties = {name: value for name, value in letter.properties.items() if name not in DROPPED}
    if group is not None:
        properties |= {
            PropertyName.RETRY_TOPIC: origin,
            PropertyName.ORIGIN_MESSAGE_ID: letter.properties.get(PropertyName.ORIGIN_MESSAGE_ID) or letter.msg_id,
        }
    topic = origin if group is None else RETRY_PREFIX + group
    return Message(topic, letter.body, properties=properties, flag=letter.flag)


def has_text(letter: MessageExt, text: str) -> bool:
    """Return whether a message has a text in its id, tag, keys or body; an empty text is in every message."""
    return not text or any(text in part for part in (letter.msg_id, letter.tags, *letter.keys)) or (
        text.encode() in letter.body
    )  # fmt: skip


async def letters_in(
    admin: Admin, ranges: Iterable[QueueRange], accepts: Callable[[MessageExt], bool], most: int | None = None
) -> AsyncIterator[Stored]:
    """Yield the accepted messages of ranges, of the first `most` offsets; None: of all. Few are read at a time."""
    left = most
    for queue, first, end in ranges:
        offset = first
        while offset < end and (left is None or left > 0):
            count = READ_AT_ONCE if left is None else min(READ_AT_ONCE, left)
            stop = min(offset + count, end)
            stored, _ = await read(admin, [QueueRange(queue, offset, stop)])
            for each in stored:
                if accepts(each.message):
                    yield each
            left = None if left is None else left - (stop - offset)
            offset = stop
