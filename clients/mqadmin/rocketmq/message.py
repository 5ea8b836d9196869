"""Commands that find messages: queryMsgById, queryMsgByUniqueKey, queryMsgByKey, queryMsgByOffset,
queryMsgTraceById.
"""

from collections import defaultdict
from typing import Annotated, Final

import typer

from skylarkmq.clients.mqadmin.commands import Commands
from skylarkmq.clients.mqadmin.failures import REFUSED, CommandFailed, Failures, not_found
from skylarkmq.clients.mqadmin.java_output import local_time, printf
from skylarkmq.clients.mqadmin.options import is_true, stripped
from skylarkmq.clients.mqadmin.rocketmq.message_text import (
    as_pulled,
    body_file_of,
    body_text,
    charset,
    direct_result_text,
    print_message,
    print_tracks,
    result_text,
)
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.admin.messages import KeyQuery
from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.clients.sdk.producing.producer import Producer
from skylarkmq.clients.sdk.telemetry.trace_events import TraceEvent
from skylarkmq.protocol.bodies.enums import ConsumeType
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.decimals import INT64_MAX
from skylarkmq.protocol.hash_order import bucket_order
from skylarkmq.protocol.message import Message, MessageExt

COMMANDS = Commands()

RESEND_GROUP: Final = "ReSendMsgById"
MAX_SHOWN: Final = 32
CONSUME_TYPE: Final = "PROP_CONSUME_TYPE"
_TRACE_ROW: Final = "%-10s %-20s %-20s %-20s %-10s %-10s%n"

Topic = Annotated[str, typer.Option("-t", "--topic", help="Topic of the message.")]
MessageId = Annotated[str, typer.Option("-i", "--msgId", help="Message id.")]
Group = Annotated[str | None, typer.Option("-g", "--consumerGroup", help="Group of a client that handles it now.")]
ClientId = Annotated[str | None, typer.Option("-d", "--clientId", help="Client of the group (-g) that handles it now.")]
BodyFormat = Annotated[str | None, typer.Option("-f", "--bodyFormat", help="Print the body in this charset.")]
Cluster = Annotated[
    str | None, typer.Option("-c", "--cluster", help="Only this cluster; or the parent topic of a light topic.")
]
Begin = Annotated[int, typer.Option("-b", "--beginTimestamp", help="Stored from then on (Unix time in ms).")]
End = Annotated[int, typer.Option("-e", "--endTimestamp", help="Stored until then (Unix time in ms).")]


@COMMANDS.add("queryMsgById", "Query Message by Id.")
async def query_by_id(
    admin: Admin,
    topic: Topic,
    msg_id: Annotated[str, typer.Option("-i", "--msgId", help="Message ids, separated by commas.")],
    group: Group = None,
    client_id: ClientId = None,
    send: Annotated[str | None, typer.Option("-s", "--sendMessage", help="true: send the message again.")] = None,
    _unit: Annotated[str | None, typer.Option("-u", "--unitName", help="Accepted; has no effect.")] = None,
    body_format: BodyFormat = None,
    cluster: Cluster = None,
) -> None:
    """Print messages, have a client handle them (-g, -d), or send them again (-s true)."""
    ids = [each.strip() for each in msg_id.split(",") if each.strip()]
    if group is not None and client_id is not None:
        for each in ids:
            await _consume_directly(admin, await _found(admin, topic, each, cluster), group.strip(), client_id.strip())
    elif send is not None:
        if is_true(send):
            async with Producer(RESEND_GROUP, client=admin.client) as producer:
                for each in ids:
                    message = await _found(admin, topic, each, cluster)
                    printf("prepare resend msg. originalMsgId=%s", each)
                    printf("%s", result_text(await producer.send(_copy(message))))
    else:
        encoding = None if body_format is None else charset(body_format)
        failures = Failures()
        for each in ids:
            await _print_with_tracks(admin, await _found(admin, topic, each, cluster), encoding, failures)
        failures.raise_if_any()


@COMMANDS.add("queryMsgByUniqueKey", "Query Message by Unique key.")
async def query_by_unique_key(
    admin: Admin,
    msg_id: MessageId,
    topic: Topic,
    group: Group = None,
    client_id: ClientId = None,
    show_all: Annotated[
        bool, typer.Option("-a", "--showAll", help="Print all messages with the id, at most 32.")
    ] = False,
    cluster: Cluster = None,
) -> None:
    """Print the oldest message with a unique id, or all of them; or have a client handle it (-g, -d)."""
    topic, msg_id = topic.strip(), msg_id.strip()
    if group is not None and client_id is not None:
        await _consume_directly(admin, await _found(admin, topic, msg_id, None), group.strip(), client_id.strip())
        return
    query = KeyQuery(limit=MAX_SHOWN, cluster=stripped(cluster))
    found = await admin.messages.with_unique_key(topic, msg_id, query)
    if not found:
        raise _no_message(topic, msg_id)
    failures = Failures()
    found.sort(key=lambda message: message.store_timestamp)
    for index, message in enumerate(found if show_all else found[:1]):
        print_message(message, body_file_of(message, index), has_offset_id=False)
        await _try_tracks(admin, message, "", failures)
    failures.raise_if_any()


@COMMANDS.add("queryMsgByKey", "Query Message by Key.")
async def query_by_key(
    admin: Admin,
    topic: Topic,
    key: Annotated[str, typer.Option("-k", "--msgKey", help="One of the keys of the messages.")],
    begin: Begin = 0,
    end: End = INT64_MAX,
    limit: Annotated[int, typer.Option("-m", "--maxNum", help="At most this many from each broker.")] = 64,
    cluster: Cluster = None,
) -> None:
    """Print a row for each message that has a key."""
    query = KeyQuery(limit=limit, since_ms=begin, until_ms=end, cluster=stripped(cluster))
    found = await admin.messages.with_key(topic.strip(), key.strip(), query)
    if not found:
        raise not_found(
            f"no message of topic {topic.strip()} has the key {key.strip()}. Check both, and that the message was "
            "stored with this key (KEYS)."
        )
    printf("%-50s %4s %40s%n", "#Message ID", "#QID", "#Offset")
    for message in found:
        printf("%-50s %4d %40d%n", message.msg_id, message.queue_id, message.queue_offset)


@COMMANDS.add("queryMsgByOffset", "Query Message by offset.")
async def query_by_offset(
    admin: Admin,
    topic: Topic,
    broker: Annotated[str, typer.Option("-b", "--brokerName", help="Name of the broker.")],
    queue_id: Annotated[int, typer.Option("-i", "--queueId", help="Number of the queue.")],
    offset: Annotated[int, typer.Option("-o", "--offset", help="Offset in the queue.")],
    body_format: BodyFormat = None,
) -> None:
    """Print the message at an offset of a queue."""
    encoding = None if body_format is None else charset(body_format)
    queue = MessageQueue(topic.strip(), broker.strip(), queue_id)
    pulled = await admin.messages.pull(queue, offset, 1)
    if not pulled.messages:
        raise not_found(
            f"no message at offset {offset} of {queue}. Its offsets are {pulled.min_offset} to {pulled.max_offset - 1}."
        )
    message = as_pulled(pulled.messages[0], pulled.min_offset, pulled.max_offset)
    failures = Failures()
    await _print_with_tracks(admin, message, encoding, failures)
    failures.raise_if_any()


@COMMANDS.add("queryMsgTraceById", "Query a message trace.")
async def query_trace_by_id(
    admin: Admin,
    msg_id: MessageId,
    topic: Annotated[str, typer.Option("-t", "--traceTopic", help="Topic of the traces.")] = SystemTopic.TRACE,
    begin: Begin = 0,
    end: End = INT64_MAX,
    limit: Annotated[
        int, typer.Option("-c", "--maxNum", help="At most this many trace messages from each broker.")
    ] = 64,
) -> None:
    """Print when a message was sent, and when each consumer group handled it."""
    query = KeyQuery(limit=limit, since_ms=begin, until_ms=end)
    events = await admin.messages.trace(msg_id.strip(), topic.strip(), query)
    if not events:
        raise not_found(
            f"no trace of message {msg_id.strip()} in topic {topic.strip()}. Clients write traces only "
            "if tracing is enabled, and the broker indexes a trace within seconds."
        )
    consumed: defaultdict[str, list[TraceEvent]] = defaultdict(list)
    for event in events:
        if event.kind == "Pub":
            printf(_TRACE_ROW, "#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status")
            _print_event("Pub", event)
            printf("%n")
        elif event.kind == "SubAfter":
            consumed[event.group].append(event)
    for group in bucket_order(consumed):
        printf(_TRACE_ROW, "#Type", "#ConsumerGroup", "#ClientHost", "#ConsumerTime", "#CostTimes", "#Status")
        for event in consumed[group]:
            _print_event("Sub", event)
        printf("%n")


def _print_event(kind: str, event: TraceEvent) -> None:
    status = "success" if event.succeeded else "failed"
    cost = f"{event.cost_ms}ms"
    printf(_TRACE_ROW, kind, event.group, event.client_host, local_time(event.time_ms), cost, status)


async def _found(admin: Admin, topic: str, msg_id: str, cluster: str | None) -> MessageExt:
    """Return the message with an offset id or unique id. CommandFailed if it does not exist."""
    topic = topic.strip()
    message = await admin.messages.find(topic, msg_id, stripped(cluster))
    if message is None:
        raise _no_message(topic, msg_id)
    return message


def _no_message(topic: str, msg_id: str) -> CommandFailed:
    return not_found(f"no message of topic {topic} has the id {msg_id}. Check both, and that it is not deleted by age.")


async def _print_with_tracks(admin: Admin, message: MessageExt, encoding: str | None, failures: Failures) -> None:
    print_message(message, body_file_of(message))
    if encoding is not None:
        printf("%-20s %s%n", "Message Body:", body_text(message, encoding))
    await _try_tracks(admin, message, "\n", failures)


async def _try_tracks(admin: Admin, message: MessageExt, end: str, failures: Failures) -> None:
    try:
        await print_tracks(admin, message, end)
    except ClientError as error:  # the message itself is printed
        failures.add(error)


async def _consume_directly(admin: Admin, message: MessageExt, group: str, client_id: str) -> None:
    """Have a client handle a message, and print the result. CommandFailed if it is not a push consumer."""
    info = await admin.group_config.running_info(group, client_id)
    if info.properties.get(CONSUME_TYPE) != ConsumeType.CONSUME_PASSIVELY:
        raise CommandFailed(
            f"client {client_id} is not a push consumer, so it cannot handle a message directly.", REFUSED
        )
    printf("%s", direct_result_text(await admin.messages.consume_directly(group, client_id, message)))


def _copy(message: MessageExt) -> Message:
    """Return a message to send again: the same body, properties and id."""
    return Message(message.topic, message.body, properties=message.properties, flag=message.flag)
