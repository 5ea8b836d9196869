"""`mqadmin message`: find, show, send and trace messages."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer
from msgspec import Meta

from skylarkmq.clients.mqadmin.commands import Commands
from skylarkmq.clients.mqadmin.failures import not_found, usage_error
from skylarkmq.clients.mqadmin.people.completion import TopicArgument, TopicOption
from skylarkmq.clients.mqadmin.people.output import Json, Result, Rows, print_result, time_text, utc_text
from skylarkmq.clients.mqadmin.people.stored_message import MessageRow, message_of, message_rows, row_of, with_key
from skylarkmq.clients.mqadmin.time_arguments import moment_argument
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.admin.message_bodies import FORMS, view_of
from skylarkmq.clients.sdk.admin.messages import KeyQuery
from skylarkmq.clients.sdk.admin.queue_ranges import part_of, range_from, ranges_of, read
from skylarkmq.clients.sdk.base.errors import BrokerError
from skylarkmq.clients.sdk.connection.topic_route import address_text
from skylarkmq.clients.sdk.producing.producer import Producer
from skylarkmq.clients.sdk.telemetry.trace_events import TraceEvent
from skylarkmq.clients.terminal.printed_output import Summary
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import ResponseCode, SystemTopic
from skylarkmq.protocol.decimals import INT64_MAX
from skylarkmq.protocol.frame import MAX_FRAME_BYTES
from skylarkmq.protocol.message import Message, MessageExt

COMMANDS = Commands()

PRODUCER_GROUP: Final = "MQADMIN"
"""The producer group of messages that mqadmin sends."""
MAX_LIMIT: Final = 10_000
_QUEUE: Final = re.compile(r"(.+):(\d{1,9})", re.ASCII)

MessageId = Annotated[str, typer.Argument(metavar="ID", help="Unique id or offset id.")]


class MessageList(Result, frozen=True, kw_only=True):
    """Found messages."""

    messages: Annotated[list[MessageRow], Meta(description="oldest first for a key, else queue by queue")]
    is_cut: Annotated[bool, Meta(description="whether there are more than --limit")]

    def tables(self) -> Iterator[Rows]:
        """Yield one table."""
        yield message_rows(self.messages, "No messages.")
        if self.is_cut:
            yield Rows("There are more: raise --limit, or narrow the search.")


class GroupTrack(Summary, frozen=True, kw_only=True):
    """Whether a group has consumed a message."""

    group: Annotated[str, Meta(description="name of the group")]
    state: Annotated[str, Meta(description="state by RocketMQ's names, such as `CONSUMED` or `NOT_ONLINE`")]


class MessageDetails(Result, frozen=True, kw_only=True):
    """One message."""

    message: Annotated[MessageRow, Meta(description="where it is stored")]
    born: Annotated[str | None, Meta(description="when it was sent, by the clock of the producer, UTC")]
    born_host: Annotated[str, Meta(description="address of the producer, ip:port")]
    redeliveries: Annotated[int, Meta(description="how often it was redelivered")]
    properties: Annotated[dict[str, str], Meta(description="all properties")]
    body: Annotated[str, Meta(description="its body, or the beginning of a long one, in the form `bodyForm`")]
    body_form: Annotated[str, Meta(description="`text`, `json` or `hex`")]
    body_is_cut: Annotated[bool, Meta(description="whether only the beginning is in `body`")]
    groups: Annotated[list[GroupTrack], Meta(description="the groups of the topic")]

    def tables(self) -> Iterator[Rows]:
        """Yield its place, properties, groups and body."""
        row = self.message
        place = [
            ("Topic", row.topic),
            ("Broker", row.broker),
            ("Queue", str(row.queue)),
            ("Offset", str(row.offset)),
            ("Offset id", row.offset_id),
            ("Stored", time_text(row.stored_ms)),
            ("Sent", self.born),
            ("Sent from", self.born_host),
            ("Redeliveries", str(self.redeliveries)),
            ("Size", f"{row.size:,} bytes"),
        ]
        yield Rows(f"Message {row.id}", ("Field", "Value"), place)
        yield Rows("Properties", ("Name", "Value"), sorted(self.properties.items()), "None.")
        tracks = [(each.group, each.state) for each in self.groups]
        yield Rows("Groups", ("Group", "State"), tracks, "No group has consumed its topic.")
        cut = ", beginning" if self.body_is_cut else ""
        yield Rows(f"Body as {self.body_form}{cut}", ("",), [(line,) for line in self.body.splitlines()], "Empty.")


class MessageSent(Result, frozen=True, kw_only=True):
    """A sent message."""

    id: Annotated[str, Meta(description="unique id")]
    status: Annotated[str, Meta(description="`OK`, or the reason why a failure could lose it")]
    topic: Annotated[str, Meta(description="topic")]
    broker: Annotated[str, Meta(description="name of the broker")]
    queue: Annotated[int, Meta(description="id of the queue")]
    offset: Annotated[int, Meta(description="offset in the queue")]

    def tables(self) -> Iterator[Rows]:
        """Yield one line."""
        yield Rows(f"Message {self.id}: {self.status}, broker {self.broker}, queue {self.queue}, offset {self.offset}.")


class TraceRow(Summary, frozen=True, kw_only=True):
    """One event of a message."""

    event: Annotated[str, Meta(description="`Pub`, `SubBefore`, `SubAfter`, `EndTransaction` or `Recall`")]
    group: Annotated[str, Meta(description="producer group or consumer group")]
    time: Annotated[str | None, Meta(description="when it happened, UTC; null: old clients do not trace it")]
    time_ms: Annotated[int, Meta(description="the same as Unix time in ms; 0: not traced")]
    cost_ms: Annotated[int, Meta(description="duration in ms of a send or a handler")]
    succeeded: Annotated[bool, Meta(description="whether it succeeded")]
    redeliveries: Annotated[int, Meta(description="how often the message was redelivered before")]
    client: Annotated[str, Meta(description="IP address of the client that traced it")]


class MessageTrace(Result, frozen=True, kw_only=True):
    """The traced events of a message."""

    id: Annotated[str, Meta(description="unique id of the message")]
    events: Annotated[list[TraceRow], Meta(description="in the order in which they were stored")]

    def tables(self) -> Iterator[Rows]:
        """Yield one table."""
        columns = ("Event", "Group", "Time", "Cost, ms", "Result", "Redeliveries", "Client")
        rows = [
            (
                each.event,
                each.group,
                time_text(each.time_ms),
                each.cost_ms,
                "ok" if each.succeeded else "failed",
                each.redeliveries,
                each.client,
            )
            for each in self.events
        ]
        yield Rows(f"Message {self.id}", columns, rows)


# ------------------------------------------------------------------------------------------------------------- to find


@COMMANDS.add(
    "find",
    "Find messages by key, id, time, or queue and offset.",
    "mqadmin message find --key order-17",
    "mqadmin message find --topic Orders --since 15m",
    "mqadmin message find --topic Orders --queue broker-a:0 --offset 1200 --limit 5",
)
async def find(
    admin: Admin,
    key: Annotated[str | None, typer.Option("-k", "--key", help="One of its keys.")] = None,
    message_id: Annotated[str | None, typer.Option("--id", help="Its unique id or offset id.")] = None,
    topic: TopicOption = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="BROKER:ID", help="A queue, with --offset.")] = None,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="First offset in --queue.")] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="Stored from this time on.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Stored before this time.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=MAX_LIMIT, help="Messages at most.")] = 32,
    as_json: Json = False,
) -> None:
    """Print the found messages. Without --topic, all topics are searched for a key or an id."""
    if sum(each is not None for each in (key, message_id, queue)) > 1:
        raise usage_error("--key, --id and --queue are three ways to search: give one of them.")
    since_ms, until_ms = (None if each is None else moment_argument(each) for each in (since, until))
    if message_id is not None:
        found = [await message_of(admin, message_id, topic)]
    elif key is not None:
        query = KeyQuery(limit=limit + 1, since_ms=since_ms or 0, until_ms=INT64_MAX if until_ms is None else until_ms)
        found = await with_key(admin, key, topic, query)
    else:
        found = await _of_ranges(admin, topic, queue, offset, since_ms, until_ms, limit + 1)
    if not found:
        raise not_found("no message matches. Check topic, key and times; old messages are deleted.")
    rows = [row_of(message) for message in found[:limit]]
    print_result(MessageList(messages=rows, is_cut=len(found) > limit), as_json=as_json)


async def _of_ranges(
    admin: Admin,
    topic: str | None,
    queue: str | None,
    offset: int | None,
    since_ms: int | None,
    until_ms: int | None,
    limit: int,
) -> list[MessageExt]:
    """Return the first messages of a queue from an offset on, or of a topic between two times."""
    if topic is None or (queue is None and since_ms is None and until_ms is None):
        raise usage_error("give --key, --id, or --topic with --since, --until, or --queue and --offset.")
    if queue is not None:
        ranges = [await range_from(admin, _queue(topic, queue), offset or 0)]
    else:
        ranges = await ranges_of(admin, topic, since_ms, until_ms)
    stored, _ = await read(admin, part_of(ranges, 0, limit))
    return [each.message for each in stored]


def _queue(topic: str, text: str) -> MessageQueue:
    found = _QUEUE.fullmatch(text)
    if found is None:
        raise usage_error(f"a queue must be BROKER:ID, such as broker-a:0, not {text!r}.")
    return MessageQueue(topic, found[1], int(found[2]))


# ------------------------------------------------------------------------------------------------------------- to show


@COMMANDS.add(
    "show",
    "Show one message with its body and properties.",
    "mqadmin message show 7F0000010001... --topic Orders",
)
async def show_message(
    admin: Admin,
    message_id: MessageId,
    topic: TopicOption = None,
    form: Annotated[
        str, typer.Option("--as", metavar="|".join(FORMS), help="Form of the body. Default: the form that suits it.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Print one message. Without --topic, all topics are searched."""
    if form and form not in FORMS:
        raise usage_error(f"{form!r} is not a form of a body; use one of {', '.join(FORMS)}.")
    message = await message_of(admin, message_id, topic)
    view = view_of(message.body, form)
    if view.problem is not None:
        raise usage_error(view.problem)
    details = MessageDetails(
        message=row_of(message),
        born=utc_text(message.born_timestamp),
        born_host=address_text(message.born_host),
        redeliveries=message.reconsume_times,
        properties=dict(message.properties),
        body=view.text,
        body_form=view.form,
        body_is_cut=view.is_cut,
        groups=await _tracks(admin, message),
    )
    print_result(details, as_json=as_json)


async def _tracks(admin: Admin, message: MessageExt) -> list[GroupTrack]:
    try:
        tracks = await admin.messages.tracks(message)
    except BrokerError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return []
    return [GroupTrack(group=each.group, state=each.track_type.value) for each in tracks]


# ------------------------------------------------------------------------------------------------------------- to send


@COMMANDS.add(
    "send",
    "Send a message.",
    "mqadmin message send Orders 'hello' --key order-17 --tag paid",
    "mqadmin message send Orders --file order.json",
)
async def send(
    admin: Admin,
    topic: TopicArgument,
    body: Annotated[str | None, typer.Argument(metavar="BODY", help="Text of the body, sent as UTF-8.")] = None,
    file: Annotated[Path | None, typer.Option("--file", metavar="PATH", help="A file with the body.")] = None,
    keys: Annotated[list[str] | None, typer.Option("-k", "--key", help="A key; may be repeated.")] = None,
    tag: Annotated[str, typer.Option("--tag", help="Tag of the message.")] = "",
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="A property; may be repeated.")
    ] = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="BROKER:ID", help="The queue. Default: any.")] = None,
    as_json: Json = False,
) -> None:
    """Send one message, and print where it is stored."""
    if body is not None and file is None:
        data = body.encode()
    elif body is None and file is not None:
        data = _content(file)
    else:
        raise usage_error("give the body as an argument, or a file with --file.")
    target = None if queue is None else _queue(topic, queue)
    message = Message(topic, data, tags=tag, keys=keys or "", properties=_properties(properties))
    async with Producer(PRODUCER_GROUP, client=admin.client) as producer:
        sent = await producer.send(message, queue=target)
    result = MessageSent(
        id=sent.msg_id,
        status=sent.status.name,
        topic=topic,
        broker=sent.queue.broker_name,
        queue=sent.queue.queue_id,
        offset=sent.queue_offset,
    )
    print_result(result, as_json=as_json)


def _content(file: Path) -> bytes:
    """Return the bytes of a file, at most MAX_FRAME_BYTES: no message is as large, so a longer file is refused, too."""
    with file.open("rb") as opened:
        return opened.read(MAX_FRAME_BYTES)


def _properties(texts: list[str] | None) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts or []]
    for name, is_set, value in pairs:
        if not name or not value:
            raise usage_error(f"a property must be NAME=VALUE, not {name + is_set + value!r}.")
    return {name: value for name, _, value in pairs}


# ------------------------------------------------------------------------------------------------------------ to trace


@COMMANDS.add("trace", "Show when a message was sent and handled.", "mqadmin message trace 7F0000010001...")
async def trace(
    admin: Admin,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="Unique id.")],
    trace_topic: Annotated[
        str, typer.Option("--trace-topic", metavar="TOPIC", help="Topic of the traces.")
    ] = SystemTopic.TRACE,
    as_json: Json = False,
) -> None:
    """Print the traced events of a message. Clients trace messages only if that is enabled."""
    events = await admin.messages.trace(message_id, trace_topic)
    if not events:
        raise not_found(f"message {message_id} has no trace. Check its id, and that its clients trace messages.")
    print_result(MessageTrace(id=message_id, events=[_trace_row(event) for event in events]), as_json=as_json)


def _trace_row(event: TraceEvent) -> TraceRow:
    return TraceRow(
        event=event.kind,
        group=event.group,
        time=utc_text(event.time_ms),
        time_ms=event.time_ms,
        cost_ms=event.cost_ms,
        succeeded=event.succeeded,
        redeliveries=event.retry_times,
        client=event.client_host,
    )
