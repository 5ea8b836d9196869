"""`mqadmin group`: list, show, create, delete and reset consumer groups; their lag."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Final

import typer

from skylarkmq.clients.mqadmin.commands import Commands
from skylarkmq.clients.mqadmin.failures import not_found, usage_error
from skylarkmq.clients.mqadmin.people.broker_state import masters_of
from skylarkmq.clients.mqadmin.people.changes import Change
from skylarkmq.clients.mqadmin.people.completion import GroupArgument, TopicOption, topics
from skylarkmq.clients.mqadmin.people.confirmation import Yes, confirm
from skylarkmq.clients.mqadmin.people.filters import ClusterOption, NameFilter, name_matches
from skylarkmq.clients.mqadmin.people.group_results import (
    GroupDetails,
    GroupLag,
    GroupList,
    GroupReset,
    GroupRow,
    GroupTopic,
    Member,
    QueueLag,
    QueueMove,
)
from skylarkmq.clients.mqadmin.people.output import Json, Watch, print_result, progress, show, time_text, utc_text
from skylarkmq.clients.mqadmin.time_arguments import moment_argument
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.admin.gathering import gathered
from skylarkmq.clients.sdk.admin.offsets import TO_END
from skylarkmq.clients.sdk.base.errors import BrokerError, NoRoute
from skylarkmq.clients.terminal.printed_output import counted
from skylarkmq.protocol.bodies.connections import ConsumerConnection
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.stats import ConsumeStats
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.codes import SYSTEM_GROUPS, ResponseCode
from skylarkmq.protocol.versions import version_name

COMMANDS = Commands()

MAX_RETRIES: Final = 10_000
MAX_MEMBERS: Final = 100
"""Members whose queues `lag --members` requests."""
_FIRST, _END = "first", "end"


# ------------------------------------------------------------------------------------------------------------- to read


@COMMANDS.add(
    "list", "List groups with members and lag.", "mqadmin group list", "mqadmin group list --filter bill --watch 5"
)
async def list_groups(
    admin: Admin,
    text: NameFilter = "",
    with_system: Annotated[bool, typer.Option("--all", help="Include the groups of the system.")] = False,
    as_json: Json = False,
    watch: Watch = None,
) -> None:
    """Print a row for each group. Each takes two requests, so a bar shows the progress."""

    async def read() -> GroupList:
        configs = [
            config
            for name, config in (await admin.groups()).items()
            if name_matches(name, text) and (with_system or name not in SYSTEM_GROUPS)
        ]
        with progress("groups", len(configs)) as advance:
            rows = await gathered([partial(_row, admin, config, advance) for config in configs])
        return GroupList(groups=rows)

    await show(read, as_json=as_json, watch=watch)


@COMMANDS.add("show", "Show settings, members and topics of a group.", "mqadmin group show billing")
async def show_group(admin: Admin, group: GroupArgument, as_json: Json = False, watch: Watch = None) -> None:
    """Print one group."""
    await show(partial(_details, admin, group), as_json=as_json, watch=watch)


@COMMANDS.add(
    "lag",
    "Show how far a group is behind, by queue.",
    "mqadmin group lag billing --watch",
    "mqadmin group lag billing -t Orders",
)
async def lag(
    admin: Admin,
    group: GroupArgument,
    topic: TopicOption = None,
    with_members: Annotated[
        bool,
        typer.Option("--members", help="Show the member of each queue: one request to each of at most 100 members."),
    ] = False,
    as_json: Json = False,
    watch: Watch = None,
) -> None:
    """Print the lag of a group."""
    await show(partial(_lag, admin, group, topic, with_members=with_members), as_json=as_json, watch=watch)


# ----------------------------------------------------------------------------------------------------------- to change


@COMMANDS.add("create", "Create a consumer group.", "mqadmin group create billing --retries 3")
async def create(
    admin: Admin,
    group: GroupArgument,
    retries: Annotated[
        int, typer.Option("--retries", min=0, max=MAX_RETRIES, help="Redeliveries before a dead letter.")
    ] = 16,
    ordered: Annotated[bool, typer.Option("--ordered", help="It consumes in order.")] = False,
    broadcast: Annotated[
        bool, typer.Option("--broadcast/--no-broadcast", help="Whether each member may receive all messages.")
    ] = True,
    cluster: ClusterOption = None,
    as_json: Json = False,
) -> None:
    """Create the group on each master. CommandFailed if a broker has it."""
    if group in await admin.groups():
        raise usage_error(f"group {group} exists. `mqadmin updateSubGroup` changes it.")
    config = SubscriptionGroupConfig(
        group, retry_max_times=retries, consume_message_orderly=ordered, consume_broadcast_enable=broadcast
    )
    addresses = await masters_of(admin, cluster)
    for address in addresses:
        await admin.group_config.put(address, config)
    print_result(Change(kind="group", name=group, action="created", servers=addresses), as_json=as_json)


@COMMANDS.add("delete", "Delete a group with its offsets.", "mqadmin group delete billing --yes")
async def delete(
    admin: Admin,
    group: GroupArgument,
    keep_offsets: Annotated[bool, typer.Option("--keep-offsets", help="Keep its committed offsets.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete the group on all brokers. Its topics of retries and dead letters stay."""
    if group not in await admin.groups():
        raise _unknown(group)
    count = len((await _members(admin, group)).connection_set)
    offsets = "keeps its offsets" if keep_offsets else "loses its offsets"
    effect = f"Group {group} will be deleted on all brokers and {offsets}. It has {counted(count, 'member')}."
    confirm(effect, is_agreed=yes)
    addresses = await masters_of(admin)
    await admin.delete_group(group, offsets=not keep_offsets)
    print_result(Change(kind="group", name=group, action="deleted", servers=addresses), as_json=as_json)


@COMMANDS.add(
    "reset",
    "Move a group, and its running members, to another time.",
    "mqadmin group reset billing --topic Orders --to 2h",
    "mqadmin group reset billing --topic Orders --to end --yes",
)
async def reset(
    admin: Admin,
    group: GroupArgument,
    topic: Annotated[str, typer.Option("-t", "--topic", metavar="TOPIC", help="The topic.", autocompletion=topics)],
    to: Annotated[
        str, typer.Option("--to", metavar="TIME", help="first, end, 2h (ago; s, m, h, d), or 2024-05-01T13:00.")
    ],
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Move the group in all queues of a topic."""
    timestamp_ms = 0 if to == _FIRST else TO_END if to == _END else moment_argument(to)
    await admin.topic_config.route(topic)
    if group not in await admin.groups():
        raise _unknown(group)
    wanted = {_FIRST: "the first message", _END: "the end"}.get(to, f"{time_text(timestamp_ms)}")
    confirm(f"Group {group} will be moved to {wanted} of topic {topic}: it repeats or skips messages.", is_agreed=yes)
    moved = await admin.offsets.reset_or_roll_back(group, topic, timestamp_ms)
    table = {row.queue: row.new_offset for row in moved} if isinstance(moved, list) else moved
    result = GroupReset(
        group=group,
        topic=topic,
        queues=[
            QueueMove(broker=queue.broker_name, queue=queue.queue_id, offset=offset)
            for queue, offset in sorted(table.items())
        ],
    )
    print_result(result, as_json=as_json)


# --------------------------------------------------------------------------------------------------------------- parts


async def _row(admin: Admin, config: SubscriptionGroupConfig, advance: Callable[[], None]) -> GroupRow:
    stats = await _progress(admin, config.group_name)
    members = await _members(admin, config.group_name)
    advance()
    return GroupRow(
        name=config.group_name,
        members=len(members.connection_set),
        lag=None if stats is None else stats.diff,
        messages_per_second=0.0 if stats is None else stats.consume_tps,
        max_retries=config.retry_max_times,
        is_enabled=config.consume_enable,
    )


async def _details(admin: Admin, group: str) -> GroupDetails:
    config = (await admin.groups()).get(group)
    if config is None:
        raise _unknown(group)
    stats = await _progress(admin, group) or ConsumeStats()
    members = await _members(admin, group)
    lags = dict.fromkeys(members.subscription_table, 0)
    for queue, row in stats.offset_table.items():
        lags[queue.topic] = lags.get(queue.topic, 0) + row.broker_offset - row.consumer_offset
    subscriptions = {topic: data.sub_string for topic, data in members.subscription_table.items()}
    return GroupDetails(
        name=group,
        max_retries=config.retry_max_times,
        is_enabled=config.consume_enable,
        is_ordered=config.consume_message_orderly,
        may_broadcast=config.consume_broadcast_enable,
        members=[
            Member(
                client_id=each.client_id,
                address=each.client_addr,
                language=each.language,
                version=version_name(each.version),
            )
            for each in members.connection_set
        ],
        topics=[
            GroupTopic(topic=topic, subscription=subscriptions.get(topic), lag=behind)
            for topic, behind in sorted(lags.items())
        ],
    )


async def _lag(admin: Admin, group: str, topic: str | None, *, with_members: bool) -> GroupLag:
    stats = await admin.offsets.progress(group, topic)
    if (topic is not None or not stats.offset_table) and group not in await admin.groups():
        raise _unknown(group)
    members = await _members(admin, group)
    wanted = [each.client_id for each in members.connection_set][:MAX_MEMBERS] if with_members else []
    readers = await _readers(admin, group, wanted)
    return GroupLag(
        group=group,
        lag=stats.diff,
        messages_per_second=stats.consume_tps,
        members=len(members.connection_set),
        members_requested=len(wanted),
        queues=[
            QueueLag(
                topic=queue.topic,
                broker=queue.broker_name,
                queue=queue.queue_id,
                lag=row.broker_offset - row.consumer_offset,
                committed=row.consumer_offset,
                next_offset=row.broker_offset,
                last_consumed=utc_text(row.last_timestamp),
                last_consumed_ms=row.last_timestamp,
                client_id=readers.get(queue),
            )
            for queue, row in sorted(stats.offset_table.items())
        ],
    )


async def _readers(admin: Admin, group: str, client_ids: list[str]) -> dict[MessageQueue, str]:
    """Return the client id of the member that reads each queue, as far as these members report it."""
    tables = await gathered([partial(_queues, admin, group, client_id) for client_id in client_ids])
    return {queue: client_id for client_id, queues in zip(client_ids, tables, strict=True) for queue in queues}


async def _queues(admin: Admin, group: str, client_id: str) -> list[MessageQueue]:
    """Return the queues that a member reads; none if it has just left, or does not report them."""
    try:
        return list((await admin.group_config.running_info(group, client_id)).mq_table)
    except (BrokerError, NoRoute):
        return []


async def _progress(admin: Admin, group: str) -> ConsumeStats | None:
    """Return the offsets of a group; None if it never had a member."""
    try:
        return await admin.offsets.progress(group)
    except NoRoute:
        return None


async def _members(admin: Admin, group: str) -> ConsumerConnection:
    """Return the members of a group; none if no broker has some."""
    try:
        return await admin.group_config.consumers(group)
    except NoRoute:
        return ConsumerConnection()
    except BrokerError as error:
        if error.code not in {ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST}:
            raise
        return ConsumerConnection()


def _unknown(group: str) -> Exception:
    return not_found(f"no broker has a group {group}. `mqadmin group list` lists the groups.")
