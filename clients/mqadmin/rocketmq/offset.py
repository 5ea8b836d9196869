"""Commands about the offsets of groups: consumerProgress, resetOffsetByTime, skipAccumulatedMessage,
cloneGroupOffset."""

from collections.abc import Mapping
from typing import Annotated, Final

import typer

from skylarkmq.clients.mqadmin.commands import Commands
from skylarkmq.clients.mqadmin.failures import Failures, not_found
from skylarkmq.clients.mqadmin.java_output import cut_broker, cut_front, local_time, printf
from skylarkmq.clients.mqadmin.options import is_true
from skylarkmq.clients.mqadmin.time_arguments import time_argument
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.admin.messages import LIGHT_TOPIC_PREFIX
from skylarkmq.clients.sdk.admin.offsets import TO_END, Rollback
from skylarkmq.clients.sdk.base.clocks import now_ms
from skylarkmq.clients.sdk.base.errors import BrokerError, ClientError, NoRoute
from skylarkmq.protocol.bodies.connections import ConsumerConnection
from skylarkmq.protocol.bodies.enums import ConsumeType, MessageModel
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.stats import ConsumeStats
from skylarkmq.protocol.codes import RETRY_PREFIX, SystemTopic
from skylarkmq.protocol.hash_order import bucket_order, capacity_of_copy, queue_bucket_order
from skylarkmq.protocol.versions import version_name

COMMANDS = Commands()

_PROGRESS_HEAD: Final = "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s%s%n"
_PROGRESS_ROW: Final = "%-64s  %-32s  %-4d  %-20d  %-20d  %-20d %-20d %s%n"
_MEMBERS_HEAD: Final = "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s %-20s%s%n"
_MEMBERS_ROW: Final = "%-64s  %-32s  %-4d  %-20d  %-20d  %-20s %-20d %-20d %s%n"
_GROUPS_HEAD: Final = "%-64s  %-6s  %-24s %-5s  %-14s  %-7s  %s%n"
_GROUPS_ROW: Final = "%-64s  %-6d  %-24s %-5s  %-14s  %-7d  %d%n"
_ROLLBACK_HEAD: Final = "%-20s  %-20s  %-20s  %-20s  %-20s  %-20s%n"
_ROLLBACK_ROW: Final = "%-20s  %-20d  %-20d  %-20d  %-20d  %-20d%n"

Group = Annotated[str, typer.Option("-g", "--group", metavar="NAME", help="Consumer group name.")]
Topic = Annotated[str, typer.Option("-t", "--topic", metavar="NAME", help="Topic name.")]
Force = Annotated[
    str, typer.Option("-f", "--force", metavar="true|false", help="Also move forward, on brokers of RocketMQ 4.9.")
]
RouteCluster = Annotated[
    str | None, typer.Option("-c", "--cluster", help="Cluster, or parent topic of a light queue, to find the brokers.")
]

# ------------------------------------------------------------------------------------------------------------ progress


@COMMANDS.add("consumerProgress", "Query consumer's progress, speed.")
async def consumer_progress(
    admin: Admin,
    group: Annotated[str | None, typer.Option("-g", "--groupName", metavar="NAME", help="Consumer group.")] = None,
    topic: Annotated[str | None, typer.Option("-t", "--topicName", metavar="NAME", help="Only this topic.")] = None,
    show_clients: Annotated[
        str, typer.Option("-s", "--showClientIP", metavar="true|false", help="With the member of each queue.")
    ] = "false",
    cluster: RouteCluster = None,
) -> None:
    """Print the offsets and the lag of a group in each queue; without -g a row for each group."""
    if group is None:
        await _print_groups(admin)
        return
    name = group.strip()
    if topic is None:
        stats = await _progress(admin, name)
    else:
        stats = await _progress(admin, name, topic.strip(), _route_of(topic.strip(), cluster))
    members = await _members_by_queue(admin, name) if is_true(show_clients) else None
    _print_progress(stats, members)


async def _progress(admin: Admin, group: str, topic: str | None = None, route_of: str | None = None) -> ConsumeStats:
    """Return a group's offsets. BrokerError or CommandFailed if there are none because of the state of the group."""
    stats = await admin.offsets.progress(group, topic, route_of=route_of)
    if not stats.offset_table:
        members = await admin.group_config.consumers(group)
        if members.message_model == MessageModel.BROADCASTING:
            raise not_found(f"group {group} is a broadcast group: its members store their offsets themselves.")
    return stats


def _print_progress(stats: ConsumeStats, members: Mapping[MessageQueue, str] | None) -> None:
    heads = ("#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset")
    if members is None:
        printf(_PROGRESS_HEAD, *heads, "#Diff", "#Inflight", "#LastTime")
    else:
        printf(_MEMBERS_HEAD, *heads, "#Client IP", "#Diff", "#Inflight", "#LastTime")
    for queue, row in sorted(stats.offset_table.items()):
        last = "N/A" if row.last_timestamp == 0 else local_time(row.last_timestamp)
        offsets = row.broker_offset, row.consumer_offset
        cells = cut_front(queue.topic), cut_broker(queue.broker_name), queue.queue_id, *offsets
        lags = row.broker_offset - row.consumer_offset, row.pull_offset - row.consumer_offset
        if members is None:
            printf(_PROGRESS_ROW, *cells, *lags, last)
        else:
            printf(_MEMBERS_ROW, *cells, members.get(queue, "N/A"), *lags, last)
    printf("%n")
    printf("Consume TPS: %.2f%n", float(stats.consume_tps))
    printf("Consume Diff Total: %d%n", stats.diff)
    printf("Consume Inflight Total: %d%n", stats.inflight_diff)


async def _members_by_queue(admin: Admin, group: str) -> dict[MessageQueue, str]:
    """Return the host of the member that reads each queue, as far as members are online and report it."""
    readers = await admin.group_config.readers(group)
    return {queue: client_id.split("@")[0] for queue, client_id in readers.items()}


async def _print_groups(admin: Admin) -> None:
    """Print a row for each group that has a retry topic. Unknown figures are 0, an unknown version is OFFLINE."""
    failures = Failures()
    printf(_GROUPS_HEAD, "#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total")
    for topic in bucket_order(await admin.topic_config.names()):
        if topic.startswith(RETRY_PREFIX):
            await _print_group(admin, _group_of(topic), failures)
    failures.raise_if_any()


async def _print_group(admin: Admin, group: str, failures: Failures) -> None:
    stats, members = ConsumeStats(), ConsumerConnection()
    try:
        stats = await admin.offsets.progress(group)
        members = await admin.group_config.consumers(group)
    except (BrokerError, NoRoute):
        pass  # no member is online, or the group has just been deleted
    except ClientError as error:
        failures.add(error)
    connections = members.connection_set
    version = version_name(min(member.version for member in connections)) if connections else "OFFLINE"
    kind = model = ""
    if connections:
        kind = "PULL" if members.consume_type == ConsumeType.CONSUME_ACTIVELY else "PUSH"
        model = members.message_model if members.consume_type == ConsumeType.CONSUME_PASSIVELY else ""
    tps = int(stats.consume_tps)
    printf(_GROUPS_ROW, cut_front(group), len(connections), version, kind, model, tps, stats.diff)


def _group_of(retry_topic: str) -> str:
    """Return the group of a retry topic: `%RETRY%group`, or `%RETRY%group+topic` of a group that pops."""
    name = retry_topic.removeprefix(RETRY_PREFIX)
    group, _, topic = name.partition("+")
    return group if topic and "+" not in topic else name


# -------------------------------------------------------------------------------------------------------------- resets


@COMMANDS.add("resetOffsetByTime", "Reset consumer offset by timestamp(without client restart).")
async def reset_offset_by_time(
    admin: Admin,
    group: Group,
    topic: Topic,
    timestamp: Annotated[
        str, typer.Option("-s", "--timestamp", metavar="TIME", help="now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS")
    ],
    force: Force = "true",
    cluster: RouteCluster = None,
    broker: Annotated[str | None, typer.Option("-b", "--broker", metavar="HOST:PORT", help="With -q: a broker.")] = (
        None
    ),
    queue: Annotated[int, typer.Option("-q", "--queue", help="With -b: the id of the only queue to reset.")] = -1,
    offset: Annotated[int | None, typer.Option("-o", "--offset", help="With -b and -q: this offset.")] = None,
) -> None:
    """Move a group, and its running members, to the messages that were stored at a time or later."""
    group_name, topic_name, given = group.strip(), topic.strip(), timestamp.strip()
    timestamp_ms = now_ms() if given == "now" else time_argument(given)
    if broker is not None and queue >= 0:
        printf(
            "start reset consumer offset by specified, group[%s], topic[%s], queueId[%s], broker[%s], "
            "timestamp(string)[%s], timestamp(long)[%s]%n",
            group_name,
            topic_name,
            queue,
            broker,
            given,
            timestamp_ms,
        )
        if offset is None:
            offset = await admin.offsets.at_time(broker.strip(), topic_name, queue, timestamp_ms)
        printf("reset consumer offset to %d%n", offset)
        await admin.offsets.reset_queue(broker.strip(), group_name, topic_name, queue, offset)
        return
    values = group_name, topic_name, is_true(force), given, timestamp_ms
    texts = "topic[%s], force[%s], timestamp(string)[%s], timestamp(long)[%s]%n"
    moved = await admin.offsets.reset_or_roll_back(
        group_name,
        topic_name,
        timestamp_ms,
        force=is_true(force),
        to_cpp_clients=cluster is not None,
        route_of=_route_of(topic_name, cluster),
    )
    if isinstance(moved, list):
        printf(f"reset consumer offset by specified consumerGroup[%s], {texts}", *values)
        _print_rollbacks(moved, "#resetOffset")
    else:
        printf(f"start reset consumer offset by specified, group[%s], {texts}", *values)
        _print_offsets(moved)


@COMMANDS.add("skipAccumulatedMessage", "Skip all messages that are accumulated (not consumed) currently.")
async def skip_accumulated_message(
    admin: Admin, group: Group, topic: Topic, force: Force = "true", cluster: RouteCluster = None
) -> None:
    """Move a group, and its running members, to the end of each queue."""
    moved = await admin.offsets.reset_or_roll_back(
        group.strip(), topic.strip(), TO_END, force=is_true(force), route_of=_route_of(topic.strip(), cluster)
    )
    if isinstance(moved, list):
        _print_rollbacks(moved, "#rollbackOffset")
    else:
        _print_offsets(moved)


def _print_offsets(table: Mapping[MessageQueue, int]) -> None:
    printf("%-40s  %-40s  %-40s%n", "#brokerName", "#queueId", "#offset")
    for queue in queue_bucket_order(table, capacity_of_copy(len(table))):
        printf("%-40s  %-40d  %-40d%n", cut_broker(queue.broker_name), queue.queue_id, table[queue])


def _print_rollbacks(rows: list[Rollback], last_head: str) -> None:
    heads = ("#brokerName", "#queueId", "#brokerOffset", "#consumerOffset", "#timestampOffset", last_head)
    printf(_ROLLBACK_HEAD, *heads)
    for row in rows:
        offsets = row.broker_offset, row.consumer_offset, row.timestamp_offset, row.new_offset
        printf(_ROLLBACK_ROW, cut_broker(row.queue.broker_name), row.queue.queue_id, *offsets)


@COMMANDS.add("cloneGroupOffset", "Clone offset from other group.")
async def clone_group_offset(
    admin: Admin,
    source: Annotated[str, typer.Option("-s", "--srcGroup", metavar="NAME", help="Group to copy from.")],
    target: Annotated[str, typer.Option("-d", "--destGroup", metavar="NAME", help="Group to copy to.")],
    topic: Topic,
    offline: Annotated[  # noqa: ARG001 - RocketMQ's tool takes it, and does nothing with it
        str | None, typer.Option("-o", "--offline", metavar="true|false", help="Accepted, without effect.")
    ] = None,
) -> None:
    """Commit the offsets of a group for another group."""
    names = source.strip(), target.strip(), topic.strip()
    await _progress(admin, names[0])
    await admin.offsets.clone(*names)
    printf("clone group offset success. srcGroup[%s], destGroup=[%s], topic[%s]%n", *names)


def _route_of(topic: str, cluster: str | None) -> str | None:
    """Return another topic whose route leads to the brokers of light queues and timers; None: the topic's own."""
    if cluster is None or not cluster.strip():
        return None
    return cluster.strip() if topic.startswith(LIGHT_TOPIC_PREFIX) or topic == SystemTopic.TIMER else None
