"""Commands that read queues: printMsg, printMsgByQueue, consumeMessage, queryCq.

Reads are pulls by offset, and commit nothing.
"""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Annotated, Final, NamedTuple

import msgspec
import typer

from skylarkmq.clients.mqadmin.commands import Commands
from skylarkmq.clients.mqadmin.failures import not_found, usage_error
from skylarkmq.clients.mqadmin.fastjson import indented
from skylarkmq.clients.mqadmin.java_output import Lines, java_text, printf
from skylarkmq.clients.mqadmin.options import is_true, stripped
from skylarkmq.clients.mqadmin.rocketmq.message_text import (
    as_pulled,
    body_text,
    charset,
    message_text,
    queue_text,
)
from skylarkmq.clients.mqadmin.time_arguments import time_argument
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.admin.messages import TOOLS_GROUP
from skylarkmq.clients.sdk.base.clocks import now_ms
from skylarkmq.clients.sdk.base.errors import invalid_response
from skylarkmq.clients.sdk.connection.topic_route import MASTER
from skylarkmq.clients.sdk.consuming.queue_calls import Pulled
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.stats import ConsumeQueueData
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.hash_order import queue_bucket_order

COMMANDS = Commands()

AT_ONCE: Final = 32
UTF_8: Final = "utf-8"
_STATUS: Final = {
    ResponseCode.SUCCESS: "FOUND",
    ResponseCode.PULL_NOT_FOUND: "NO_NEW_MSG",
    ResponseCode.PULL_RETRY_IMMEDIATELY: "NO_MATCHED_MSG",
    ResponseCode.PULL_OFFSET_MOVED: "OFFSET_ILLEGAL",
}
"""RocketMQ's PullStatus by response code."""
_AT_END: Final = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED)
_LINE: Final = "======================================"

Topic = Annotated[str, typer.Option("-t", "--topic", help="Name of the topic.")]
Charset = Annotated[str, typer.Option("-c", "--charsetName", help="Charset of the bodies, such as UTF-8 or GBK.")]
Tags = Annotated[str, typer.Option("-s", "--subExpression", help="Only messages with these tags: TagA || TagB.")]
_TIME: Final = "Unix time in ms, or yyyy-MM-dd#HH:mm:ss:SSS."
Begin = Annotated[str | None, typer.Option("-b", "--beginTimestamp", help=f"Stored from then on: {_TIME}")]
End = Annotated[str | None, typer.Option("-e", "--endTimestamp", help=f"Stored before then: {_TIME}")]


@COMMANDS.add("printMsg", "Print Message Detail.")
async def print_messages(
    admin: Admin,
    topic: Topic,
    charset_name: Charset = UTF_8,
    tags: Tags = "*",
    begin: Begin = None,
    end: End = None,
    with_body: Annotated[str, typer.Option("-d", "--printBody", help="false: without bodies.")] = "true",
    parent: Annotated[str | None, typer.Option("-l", "--lmqParentTopic", help="Parent of a light topic.")] = None,
) -> None:
    """Print the messages of all queues of a topic."""
    topic = topic.strip()
    route_topic = stripped(parent)
    encoding = charset(charset_name) if is_true(with_body) else None
    queues = await admin.queues(route_topic or topic)
    if not queues:
        raise not_found(f"topic {route_topic or topic} has no readable queue. Check its permissions (topicRoute).")
    for queue in queue_bucket_order(msgspec.structs.replace(each, topic=topic) for each in queues):
        first, last = await admin.messages.bounds(queue, _time(begin), _time(end), route_topic=route_topic)
        printf("minOffset=%s, maxOffset=%s, %s%n", first, last, queue_text(queue))
        async for pulled in _pulls(admin, queue, first, last, tags.strip(), route_topic):
            status = _STATUS[ResponseCode(pulled.code)]
            if status == "FOUND":
                _print_pulled(pulled, queue, encoding)
            else:
                what = "no matched msg" if status == "NO_MATCHED_MSG" else "print msg finished"
                printf("%s %s. status=%s, offset=%s%n", queue_text(queue), what, status, pulled.next_offset)
        printf("--------------------------------------------------------\n")


@COMMANDS.add("printMsgByQueue", "Print Message Detail by queueId.")
async def print_messages_by_queue(
    admin: Admin,
    topic: Topic,
    broker: Annotated[str, typer.Option("-a", "--brokerName", help="Name of the broker.")],
    queue_id: Annotated[int, typer.Option("-i", "--queueId", help="Number of the queue.")],
    charset_name: Charset = UTF_8,
    tags: Tags = "*",
    begin: Begin = None,
    end: End = None,
    with_messages: Annotated[str, typer.Option("-p", "--printMsg", help="true: print messages.")] = "false",
    with_body: Annotated[str, typer.Option("-d", "--printBody", help="true: with bodies.")] = "false",
    by_tag: Annotated[str, typer.Option("-f", "--calculate", help="true: count messages by tag.")] = "false",
) -> None:
    """Print the messages of a queue, and how many there are of each tag."""
    queue = MessageQueue(topic.strip(), broker.strip(), queue_id)
    encoding = charset(charset_name) if is_true(with_body) else None
    first, last = await admin.messages.bounds(queue, _time(begin), _time(end))
    counts: Counter[str] = Counter()
    async for pulled in _pulls(admin, queue, first, last, tags.strip(), None):
        if pulled.code != ResponseCode.SUCCESS:
            break
        counts.update(message.tags for message in pulled.messages if message.tags.strip())
        if is_true(with_messages):
            _print_pulled(pulled, queue, encoding)
    for tag, count in counts.most_common() if is_true(by_tag) else ():
        printf("Tag: %-30s Count: %s%n", tag, count)


class _Range(NamedTuple):
    """The messages that consumeMessage reads: the first `most`, from `offset` on and in a range of times."""

    most: int
    offset: int
    begin_ms: int | None
    end_ms: int | None


@COMMANDS.add("consumeMessage", "Consume message.")
async def consume_message(
    admin: Admin,
    topic: Topic,
    broker: Annotated[str | None, typer.Option("-b", "--brokerName", help="Name of the broker (with -i).")] = None,
    queue_id: Annotated[int | None, typer.Option("-i", "--queueId", help="Number of the queue; default: all.")] = None,
    offset: Annotated[int | None, typer.Option("-o", "--offset", help="First offset (with -i).")] = None,
    group: Annotated[str, typer.Option("-g", "--consumerGroup", help="Group of the pulls.")] = TOOLS_GROUP,
    begin: Annotated[str | None, typer.Option("-s", "--beginTimestamp", help=f"Stored from then on: {_TIME}")] = None,
    end: End = None,
    count: Annotated[int, typer.Option("-c", "--MessageNumber", help="Number of messages.")] = 128,
) -> None:
    """Print the first messages of a topic, or of one queue. No offset is committed."""
    if count <= 0:
        raise usage_error("Please input a positive messageNumber!")
    if queue_id is not None and broker is None:
        raise usage_error("Please set the brokerName before queueId!")
    if offset is not None and queue_id is None:
        raise usage_error("Please set queueId before offset!")
    wanted = _Range(count, offset or 0, _time(begin) or None, _time(end) or None)
    _check_times(wanted)
    if queue_id is None or broker is None:
        await _consume_queues(admin, topic.strip(), group.strip(), wanted)
    else:
        await _consume_queue(admin, MessageQueue(topic.strip(), broker.strip(), queue_id), group.strip(), wanted)


def _check_times(wanted: _Range) -> None:
    now = now_ms()
    if (wanted.begin_ms or 0) > now:
        raise usage_error("Please set the beginTimestamp before now!")
    if (wanted.end_ms or 0) > now:
        raise usage_error("Please set the endTimestamp before now!")
    if wanted.end_ms is not None and (wanted.begin_ms or 0) > wanted.end_ms:
        raise usage_error("Please make sure that the beginTimestamp is less than or equal to the endTimestamp")


async def _consume_queues(admin: Admin, topic: str, group: str, wanted: _Range) -> None:
    left = wanted.most
    for queue in queue_bucket_order(await admin.queues(topic)):
        if left == 0:
            return
        first, last = await admin.messages.bounds(queue, wanted.begin_ms, wanted.end_ms)
        if last - first > left:
            printf("The older %d message of the %d queue will be provided\n", left, queue.queue_id)
            last, left = first + left - 1, 0
        else:
            left -= last - first + 1
        await _print_range(admin, queue, group, first, last)


async def _consume_queue(admin: Admin, queue: MessageQueue, group: str, wanted: _Range) -> None:
    first, last = await admin.messages.bounds(queue, wanted.begin_ms, wanted.end_ms)
    if wanted.offset > last:
        printf("%s no matched msg, offset=%s\n", queue_text(queue), wanted.offset)
        return
    first = max(first, wanted.offset)
    if last - first > wanted.most:
        printf("The oldler %d message will be provided\n", wanted.most)
        last = first + wanted.most - 1
    await _print_range(admin, queue, group, first, last)


async def _print_range(admin: Admin, queue: MessageQueue, group: str, first: int, last: int) -> None:
    """Print the messages from offset `first` to `last`."""
    offset = first
    while offset <= last:
        pulled = await admin.messages.pull(queue, offset, last - offset + 1, group=group)
        offset = _offset_after(pulled, queue, offset)
        status = _STATUS[ResponseCode(pulled.code)]
        if status == "FOUND":
            printf("Consume ok\n")
            _print_pulled(pulled, queue, UTF_8)
        elif status == "NO_MATCHED_MSG":
            printf("%s no matched msg. status=%s, offset=%s\n", queue_text(queue), status, offset)
        else:
            printf("%s print msg finished. status=%s, offset=%s\n", queue_text(queue), status, offset)
            return


async def _pulls(
    admin: Admin, queue: MessageQueue, first: int, end: int, tags: str, route_topic: str | None
) -> AsyncIterator[Pulled]:
    """Yield pulls from offset `first` to before `end`; the last one finds no more messages."""
    offset = first
    while offset < end:
        pulled = await admin.messages.pull(queue, offset, AT_ONCE, tags=tags, route_topic=route_topic)
        yield pulled
        if pulled.code in _AT_END:
            return
        offset = _offset_after(pulled, queue, offset)


def _offset_after(pulled: Pulled, queue: MessageQueue, offset: int) -> int:
    """Return the offset of the next pull. InvalidResponse if it would repeat this one, forever."""
    if pulled.next_offset <= offset and pulled.code not in _AT_END:
        reason = f"the offset after {offset} is {pulled.next_offset}"
        raise invalid_response(RequestCode.PULL_MESSAGE, f"broker {queue.broker_name}", reason, queue.topic)
    return pulled.next_offset


def _print_pulled(pulled: Pulled, queue: MessageQueue, encoding: str | None) -> None:
    for message in pulled.messages:
        shown = message_text(as_pulled(message, pulled.min_offset, pulled.max_offset), queue.broker_name)
        body = "NOT PRINT BODY" if encoding is None else body_text(message, encoding)
        printf("MSGID: %s %s BODY: %s%n", message.msg_id, shown, body)


@COMMANDS.add("queryCq", "Query cq command.")
async def query_consume_queue(
    admin: Admin,
    topic: Topic,
    queue_id: Annotated[int, typer.Option("-q", "--queue", help="Number of the queue.")],
    index: Annotated[int, typer.Option("-i", "--index", help="First queue offset.")],
    count: Annotated[int, typer.Option("-c", "--count", help="Number of units.")] = 10,
    broker: Annotated[
        str | None, typer.Option("-b", "--broker", help="Address of the broker; default: the first.")
    ] = None,
    group: Annotated[str | None, typer.Option("-g", "--consumer", help="Group whose filter is applied.")] = None,
) -> None:
    """Print units of a consume queue, and with -g whether the group's filter matches them."""
    topic = topic.strip()
    address = broker.strip() if broker else await _first_master(admin, topic)
    queue = MessageQueue(topic, queue_id=queue_id)
    found = await admin.messages.queue_units(address, queue, index, count, stripped(group))
    if found.subscription_data is not None:
        printf("Subscription data: \n%s\n", Lines(indented(found.subscription_data)))
        printf("%s%n", _LINE)
    if found.filter_data is not None:
        printf("Filter data: \n%s\n", Lines(found.filter_data))
        printf("%s%n", _LINE)
    printf("Queue data: \nmax: %d, min: %d\n", found.max_queue_index, found.min_queue_index)
    printf("%s%n", _LINE)
    for at, unit in enumerate(found.queue_data or (), index):
        printf("idx: %d\n%s\n%s%n", at, _unit_text(unit), _LINE)


async def _first_master(admin: Admin, topic: str) -> str:
    """Return the address of the first master of a topic. CommandFailed if no master is registered."""
    for data in (await admin.topic_config.route(topic)).broker_datas:
        if MASTER in data.broker_addrs:
            return data.broker_addrs[MASTER]
    raise not_found(f"no master of topic {topic} is registered. Give the address of a slave (-b), or start the master.")


def _time(text: str | None) -> int | None:
    """Return the time in an option; None if it is not given."""
    return None if text is None else time_argument(text)


def _unit_text(unit: ConsumeQueueData) -> str:
    """Return a unit as RocketMQ's ConsumeQueueData prints it."""
    return (
        f"ConsumeQueueData{{physicOffset={unit.physic_offset}, physicSize={unit.physic_size}, "
        f"tagsCode={unit.tags_code}, extendDataJson='{java_text(unit.extend_data_json)}', "
        f"bitMap='{java_text(unit.bit_map)}', eval={java_text(unit.eval)}, msg='{java_text(unit.msg)}'}}"
    )
