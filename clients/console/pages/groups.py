"""Consumer groups: the list, one group with its lag by queue and member, and its actions."""

from functools import partial
from typing import Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skylarkmq.clients.console.actions import Question, confirmed, form_page, refused
from skylarkmq.clients.console.cluster import Cluster, containing
from skylarkmq.clients.console.fields import checked_name, is_checked, required, time_ms, whole
from skylarkmq.clients.console.paging import paging
from skylarkmq.clients.console.rendering import address, form_of, path_of, respond, time_text
from skylarkmq.clients.console.state import cluster_of
from skylarkmq.clients.sdk.admin.gathering import gathered
from skylarkmq.clients.sdk.admin.offsets import TO_END
from skylarkmq.clients.sdk.base.errors import BrokerError, ClientError, InvalidArgument, NoRoute
from skylarkmq.protocol.bodies.connections import ConsumerConnection
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.stats import ConsumeStats
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.message import check_group_name

MAX_ASKED_MEMBERS: Final = 20
"""Members that are asked for their queues; a broker relays each of these requests to a client."""


class GroupRow(NamedTuple):
    """A group of the list. `members` and `lag` are None if they are not known."""

    config: SubscriptionGroupConfig
    members: int | None
    lag: int | None


async def groups(request: Request) -> Response:
    """Serve the list; lag and members are read for the rows of the page only."""
    cluster = cluster_of(request)
    text = request.query_params.get("q", "").strip()
    configs = await cluster.groups()
    found = await containing(list(configs), text)
    page = paging(request, len(found))
    rows = await gathered([partial(_row, cluster, configs[name]) for name in page.of(found)])
    return respond(request, "groups.html", rows=rows, paging=page, query=text)


async def _row(cluster: Cluster, config: SubscriptionGroupConfig) -> GroupRow:
    members, progress = await _state_of(cluster, config.group_name)
    lag = None if progress is None else progress.diff
    return GroupRow(config, 0 if members is None else len(members.connection_set), lag)


async def _state_of(cluster: Cluster, group: str) -> tuple[ConsumerConnection | None, ConsumeStats | None]:
    """Return the members of a group, and its offsets; None for each that it does not have.

    A group without a retry topic never had a member: all brokers are asked, since an operator may have set its offsets.
    """
    try:
        return await _connected(cluster, group), await cluster.admin.offsets.progress(group)
    except NoRoute:
        table = await cluster.admin.group_offsets(group)
        return None, ConsumeStats(table) if table else None


async def members_of(cluster: Cluster, group: str) -> ConsumerConnection | None:
    """Return the members of a group; None if it has none now."""
    try:
        return await _connected(cluster, group)
    except NoRoute:
        return None


async def _connected(cluster: Cluster, group: str) -> ConsumerConnection | None:
    """Return the members of a group; None if it has none now. NoRoute if it never had one."""
    try:
        return await cluster.admin.group_config.consumers(group)
    except BrokerError as error:
        if error.code not in {ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR}:
            raise
        return None


async def group(request: Request) -> Response:
    """Serve one group."""
    cluster = cluster_of(request)
    name = request.path_params["group"]
    config = (await cluster.groups()).get(name)
    members, progress = await _state_of(cluster, name)
    if config is None and progress is None and members is None:
        raise BrokerError(
            f"no broker has group {name}. Check its name in the list of groups.",
            code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        )
    owners = {} if members is None else await _owners(cluster, name, members)
    queues = [] if progress is None else sorted(progress.offset_table.items())
    queues.sort(key=lambda row: row[1].consumer_offset - row[1].broker_offset)
    lag_by_member: dict[str, int] = {}
    for queue, offsets in queues:
        owner = owners.get(queue, "")
        lag_by_member[owner] = lag_by_member.get(owner, 0) + offsets.broker_offset - offsets.consumer_offset
    connections = [] if members is None else members.connection_set
    page, member_page = paging(request, len(queues)), paging(request, len(connections), "members")
    return respond(
        request,
        "group.html",
        group=name,
        config=config,
        progress=progress,
        members=members,
        topics=sorted({queue.topic for queue, _ in queues}),
        queues=page.of(queues),
        paging=page,
        owners=owners,
        connections=member_page.of(connections),
        member_paging=member_page,
        lag_by_member=lag_by_member,
    )


async def _owners(cluster: Cluster, name: str, members: ConsumerConnection) -> dict[MessageQueue, str]:
    """Return which member reads each queue, as the first MAX_ASKED_MEMBERS report it."""
    asked = [connection.client_id for connection in members.connection_set[:MAX_ASKED_MEMBERS]]
    owned = await gathered([partial(_queues_of, cluster, name, client_id) for client_id in asked])
    return {queue: client_id for client_id, queues in zip(asked, owned, strict=True) for queue in queues}


async def _queues_of(cluster: Cluster, name: str, client_id: str) -> list[MessageQueue]:
    try:
        info = await cluster.admin.group_config.running_info(name, client_id)
    except ClientError:  # the member is old, busy or gone: its queues are shown without an owner
        return []
    return [queue for queue, state in info.mq_table.items() if not state.droped]


async def group_form(request: Request) -> Response:
    """Serve the form of a new group, or of one to change."""
    name = request.query_params.get("group")
    config = SubscriptionGroupConfig()
    if name is not None:
        config = (await cluster_of(request).groups()).get(name, SubscriptionGroupConfig(group_name=name))
    return form_page(request, "group_form.html", config=config, is_new=name is None)


async def put_group(request: Request) -> Response:
    """Create a group on all brokers, or change it; what the form does not have keeps its value."""
    form = form_of(request)
    back = address("/group-form", group=form.get("group") if is_checked(request, "exists") else None)
    try:
        name = checked_name(request, "group", check_group_name)
        changes = {
            "consume_enable": is_checked(request, "consume_enable"),
            "consume_broadcast_enable": is_checked(request, "broadcast"),
            "consume_message_orderly": is_checked(request, "orderly"),
            "retry_max_times": whole(form.get("retry_max_times"), "Redeliveries", -1, 1_000),
            "retry_queue_nums": whole(form.get("retry_queue_nums"), "Retry queues", 0, 4_096),
        }
    except InvalidArgument as error:
        return refused(request, back, error)
    cluster = cluster_of(request)
    known = (await cluster.groups()).get(name, SubscriptionGroupConfig(group_name=name))
    config = msgspec.structs.replace(known, attributes={}, **changes)

    async def run() -> str:
        await cluster.admin.create_group(config)
        return f"Group {name} is stored on all brokers."

    effect = f"It gets up to {config.retry_max_times} redeliveries; consuming is {_on(config.consume_enable)}."
    question = Question(f"Store group {name}?", effect, "Store the group", back)
    return await confirmed(request, question, run, path_of("groups", name))


def _on(flag: bool) -> str:
    return "allowed" if flag else "forbidden"


async def delete_group(request: Request) -> Response:
    """Delete a group and its offsets."""
    name = request.path_params["group"]

    async def run() -> str:
        await cluster_of(request).admin.delete_group(name)
        return f"Group {name} is deleted."

    effect = (
        "Its configuration and its offsets are deleted on all brokers. Members that still run create it again, if "
        "autoCreateSubscriptionGroup allows that, and begin where new groups begin."
    )
    question = Question(f"Delete group {name}?", effect, "Delete the group", path_of("groups", name), True)
    return await confirmed(request, question, run, "/groups")


async def reset(request: Request) -> Response:
    """Move a group to a time, or to the end."""
    name = request.path_params["group"]
    back = path_of("groups", name)
    try:
        topic = required(request, "topic", "The topic")
        to_ms = TO_END if form_of(request).get("to") == "end" else time_ms(required(request, "time", "The time"))
    except InvalidArgument as error:
        return refused(request, back, error)
    where = "the end of each queue" if to_ms == TO_END else f"the first message stored at or after {time_text(to_ms)}"

    async def run() -> str:
        moved = await cluster_of(request).admin.offsets.reset_or_roll_back(name, topic, to_ms)
        return f"Group {name} is at {where} in {len(moved):,} queues of {topic}."

    effect = f"The group and its running members continue at {where}: messages are skipped or redelivered."
    question = Question(f"Reset group {name} in {topic}?", effect, "Reset the offsets", back, True)
    return await confirmed(request, question, run, back)


ROUTES = [
    Route("/groups", groups),
    Route("/groups", put_group, methods=["POST"]),
    Route("/group-form", group_form),
    Route("/groups/{group}", group),
    Route("/groups/{group}/delete", delete_group, methods=["POST"]),
    Route("/groups/{group}/reset", reset, methods=["POST"]),
]
