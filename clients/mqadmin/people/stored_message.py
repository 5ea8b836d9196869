"""Messages as results: one row of a list, and how a message is found by its id without a topic."""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Annotated

from msgspec import Meta

from skylarkmq.clients.mqadmin.failures import not_found
from skylarkmq.clients.mqadmin.people.output import Rows, progress, time_text, utc_text
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.admin.gathering import gathered
from skylarkmq.clients.sdk.admin.message_bodies import preview_of
from skylarkmq.clients.sdk.admin.messages import KeyQuery, is_offset_id
from skylarkmq.clients.sdk.admin.topic_kinds import NORMAL, kind_of
from skylarkmq.clients.sdk.base.errors import ClientError, NoRoute
from skylarkmq.clients.sdk.connection.topic_route import address_text
from skylarkmq.clients.terminal.printed_output import Summary
from skylarkmq.protocol.message import MessageExt


class MessageRow(Summary, frozen=True, kw_only=True):
    """One message of a list."""

    id: Annotated[str, Meta(description="unique id; the offset id if it has none")]
    offset_id: Annotated[str, Meta(description="id that contains the address of its broker and its offset in the log")]
    topic: Annotated[str, Meta(description="topic in which it is stored")]
    broker: Annotated[str, Meta(description="ip:port of the broker that stored it")]
    queue: Annotated[int, Meta(description="id of its queue")]
    offset: Annotated[int, Meta(description="offset in its queue")]
    keys: Annotated[list[str], Meta(description="keys")]
    tag: Annotated[str, Meta(description="tag; empty: none")]
    stored: Annotated[str | None, Meta(description="when it was stored, UTC")]
    stored_ms: Annotated[int, Meta(description="the same as Unix time in ms")]
    size: Annotated[int, Meta(description="bytes of its body")]
    preview: Annotated[str, Meta(description="beginning of its body as text")]


def row_of(message: MessageExt) -> MessageRow:
    """Return the row of a message."""
    return MessageRow(
        id=message.msg_id,
        offset_id=message.offset_msg_id,
        topic=message.topic,
        broker=address_text(message.store_host),
        queue=message.queue_id,
        offset=message.queue_offset,
        keys=message.keys,
        tag=message.tags,
        stored=utc_text(message.store_timestamp),
        stored_ms=message.store_timestamp,
        size=len(message.body),
        preview=preview_of(message.body),
    )


def message_rows(messages: Iterable[MessageRow], empty: str) -> Rows:
    """Return the table of messages."""
    columns = ("Id", "Topic", "Queue", "Offset", "Stored", "Keys", "Tag", "Body")
    rows = [
        (
            each.id,
            each.topic,
            each.queue,
            each.offset,
            time_text(each.stored_ms),
            " ".join(each.keys),
            each.tag,
            each.preview,
        )
        for each in messages
    ]
    return Rows("", columns, rows, empty)


async def message_of(admin: Admin, message_id: str, topic: str | None) -> MessageExt:
    """Return the message with an offset id or a unique id. CommandFailed if it does not exist.

    `topic` None: all topics of applications are searched for a unique id.
    """
    if topic is not None:
        found = await admin.messages.find(topic, message_id)
        if found is None:
            raise not_found(f"topic {topic} has no message {message_id}. Check its id; old messages are deleted.")
        return found
    failure: ClientError | None = None
    if is_offset_id(message_id):
        try:
            return await admin.messages.at(message_id)
        except ClientError as error:
            failure = error
    everywhere = await in_all_topics(admin, lambda name: admin.messages.with_unique_key(name, message_id))
    if everywhere:
        return everywhere[0]
    raise failure or not_found(f"no topic has a message {message_id}. Check its id; old messages are deleted.")


async def with_key(admin: Admin, key: str, topic: str | None, query: KeyQuery) -> list[MessageExt]:
    """Return the messages with a key, oldest first; `topic` None: in all topics of applications."""
    if topic is not None:
        found = await admin.messages.with_key(topic, key, query)
    else:
        found = await in_all_topics(admin, lambda name: admin.messages.with_key(name, key, query))
    return sorted(found, key=lambda message: message.store_timestamp)


async def in_all_topics(admin: Admin, find: Callable[[str], Awaitable[list[MessageExt]]]) -> list[MessageExt]:
    """Return the messages that `find` finds in each topic of applications; a bar shows the progress."""
    names = [name for name in await admin.topics() if kind_of(name) == NORMAL]

    async def one(name: str, advance: Callable[[], None]) -> list[MessageExt]:
        try:
            return await find(name)
        except NoRoute:  # deleted meanwhile, or the name of a cluster, which RocketMQ lists, too
            return []
        finally:
            advance()

    with progress("topics", len(names)) as advance:
        lists = await gathered([partial(one, name, advance) for name in names])
    return [message for found in lists for message in found]
