"""`mqadmin topic`: create, list, show, update and delete topics."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Final

import msgspec
import typer
from msgspec import Meta

from skylarkmq.clients.mqadmin.commands import Commands
from skylarkmq.clients.mqadmin.failures import not_found, usage_error
from skylarkmq.clients.mqadmin.people.broker_state import masters_of
from skylarkmq.clients.mqadmin.people.changes import Change
from skylarkmq.clients.mqadmin.people.completion import TopicArgument
from skylarkmq.clients.mqadmin.people.confirmation import Yes, confirm
from skylarkmq.clients.mqadmin.people.filters import ClusterOption, NameFilter, name_matches
from skylarkmq.clients.mqadmin.people.output import Json, Result, Rows, Watch, print_result, show, time_text, utc_text
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.admin.gathering import gathered
from skylarkmq.clients.sdk.admin.topic_kinds import KINDS, NORMAL, SYSTEM, kind_of
from skylarkmq.clients.sdk.base.errors import BrokerError, NoRoute
from skylarkmq.clients.sdk.connection.topic_route import MASTER
from skylarkmq.clients.terminal.printed_output import Summary, counted
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import Permission, ResponseCode

COMMANDS = Commands()

ALL: Final = "all"
MAX_QUEUES: Final = 65_536
_PERMISSIONS: Final = {"rw": Permission.READ_WRITE, "r": Permission.READ, "w": Permission.WRITE, "none": 0}
_TYPES: Final = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")
_TYPE_ATTRIBUTE: Final = "message.type"

Perm = Annotated[str | None, typer.Option("--perm", metavar="rw|r|w|none", help="Rights of clients.")]
MessageType = Annotated[
    str | None, typer.Option("--type", metavar="|".join(_TYPES), help="Kind of messages, for clients of RocketMQ 5.")
]
Attributes = Annotated[
    list[str] | None, typer.Option("--attribute", metavar="NAME=VALUE", help="An attribute; may be repeated.")
]
Order = Annotated[bool | None, typer.Option("--order/--no-order", help="Whether the topic is an ordered one.")]


class TopicRow(Summary, frozen=True, kw_only=True):
    """One topic of a list."""

    name: Annotated[str, Meta(description="name")]
    kind: Annotated[str, Meta(description="`normal`, `retry`, `dead letters` or `system`")]
    brokers: Annotated[list[str], Meta(description="names of the brokers that have it")]
    read_queues: Annotated[int, Meta(description="readable queues on all brokers")]
    write_queues: Annotated[int, Meta(description="writable queues on all brokers")]
    permission: Annotated[str, Meta(description="`rw`, `r`, `w` or `none`")]
    message_type: Annotated[str, Meta(description="`NORMAL`, `FIFO`, `DELAY`, `TRANSACTION` or `MIXED`")]


class TopicList(Result, frozen=True, kw_only=True):
    """The topics of a cluster."""

    topics: Annotated[list[TopicRow], Meta(description="sorted by name")]

    def tables(self) -> Iterator[Rows]:
        """Yield one table."""
        rows = [
            (each.name, each.read_queues, each.write_queues, each.permission, each.message_type, len(each.brokers))
            for each in self.topics
        ]
        yield Rows("", ("Topic", "Read queues", "Write queues", "Permission", "Type", "Brokers"), rows, "No topics.")


class TopicBroker(Summary, frozen=True, kw_only=True):
    """A topic on one broker."""

    broker: Annotated[str, Meta(description="name of the broker")]
    read_queues: Annotated[int, Meta(description="readable queues")]
    write_queues: Annotated[int, Meta(description="writable queues")]
    permission: Annotated[str, Meta(description="`rw`, `r`, `w` or `none`")]


class TopicQueue(Summary, frozen=True, kw_only=True):
    """One queue of a topic."""

    broker: Annotated[str, Meta(description="name of the broker")]
    queue: Annotated[int, Meta(description="id of the queue")]
    first_offset: Annotated[int, Meta(description="offset of the first stored message")]
    next_offset: Annotated[int, Meta(description="offset of the next message to be stored")]
    last_stored: Annotated[str | None, Meta(description="when the last message was stored, UTC")]
    last_stored_ms: Annotated[int, Meta(description="the same as Unix time in ms; 0: never")]


class TopicDetails(Result, frozen=True, kw_only=True):
    """One topic."""

    name: Annotated[str, Meta(description="name")]
    messages: Annotated[int, Meta(description="stored messages")]
    messages_per_second: Annotated[float, Meta(description="rate of sends of the last minute")]
    brokers: Annotated[list[TopicBroker], Meta(description="the brokers that have it")]
    queues: Annotated[list[TopicQueue], Meta(description="its queues")]
    groups: Annotated[list[str], Meta(description="groups that consume it or have consumed it")]

    def tables(self) -> Iterator[Rows]:
        """Yield brokers, queues and groups."""
        yield Rows(f"Topic {self.name}: {counted(self.messages, 'message')}, {self.messages_per_second:,.1f} sends/s")
        brokers = [(each.broker, each.read_queues, each.write_queues, each.permission) for each in self.brokers]
        yield Rows("Brokers", ("Broker", "Read queues", "Write queues", "Permission"), brokers, "No broker.")
        queues = [
            (each.broker, each.queue, each.first_offset, each.next_offset, time_text(each.last_stored_ms))
            for each in self.queues
        ]
        yield Rows("Queues", ("Broker", "Queue", "First offset", "Next offset", "Last message"), queues)
        yield Rows("Groups", ("Group",), [(name,) for name in self.groups], "No group has consumed it.")


# ----------------------------------------------------------------------------------------------------------- to create


@COMMANDS.add("create", "Create a topic.", "mqadmin topic create Orders --queues 8")
async def create(
    admin: Admin,
    topic: TopicArgument,
    queues: Annotated[int, typer.Option("-q", "--queues", min=1, max=MAX_QUEUES, help="Queues on each broker.")] = 8,
    perm: Perm = None,
    order: Order = None,
    message_type: MessageType = None,
    attributes: Attributes = None,
    cluster: ClusterOption = None,
    as_json: Json = False,
) -> None:
    """Create the topic on each master. CommandFailed if a broker has it."""
    if await _has_route(admin, topic):
        raise usage_error(f"topic {topic} exists. `mqadmin topic update` changes it.")
    config = TopicConfig(
        topic,
        queues,
        queues,
        _permission(perm or "rw"),
        order=bool(order),
        attributes=_changes(message_type, attributes),
    )
    addresses = await masters_of(admin, cluster)
    for address in addresses:
        await admin.topic_config.put(address, config)
    print_result(Change(kind="topic", name=topic, action="created", servers=addresses), as_json=as_json)


@COMMANDS.add("update", "Change a topic; options that are not given stay.", "mqadmin topic update Orders --queues 16")
async def update(
    admin: Admin,
    topic: TopicArgument,
    queues: Annotated[
        int | None, typer.Option("-q", "--queues", min=1, max=MAX_QUEUES, help="Queues on each broker.")
    ] = None,
    read_queues: Annotated[
        int | None, typer.Option("--read-queues", min=0, max=MAX_QUEUES, help="Readable queues.")
    ] = None,
    write_queues: Annotated[
        int | None, typer.Option("--write-queues", min=0, max=MAX_QUEUES, help="Writable queues.")
    ] = None,
    perm: Perm = None,
    order: Order = None,
    message_type: MessageType = None,
    attributes: Attributes = None,
    as_json: Json = False,
) -> None:
    """Change the topic on each master that has it."""
    attribute_changes = _changes(message_type, attributes)
    given = (queues, read_queues, write_queues, perm, order)
    if not attribute_changes and all(value is None for value in given):
        raise usage_error("nothing to change: give --queues, --perm, --order, --type or --attribute.")
    permission = None if perm is None else _permission(perm)
    route = await admin.topic_config.route(topic)
    addresses = [each.broker_addrs[MASTER] for each in route.broker_datas if MASTER in each.broker_addrs]
    if not addresses:
        raise not_found(f"no master of topic {topic} is registered. `mqadmin cluster status` lists the brokers.")
    for address in addresses:
        old = await admin.topic_config.get(address, topic)
        changed = msgspec.structs.replace(
            old,
            read_queue_nums=_first(read_queues, queues, old.read_queue_nums),
            write_queue_nums=_first(write_queues, queues, old.write_queue_nums),
            perm=_first(permission, old.perm),
            order=bool(_first(order, old.order)),
            attributes=attribute_changes,
        )
        await admin.topic_config.put(address, changed)
    print_result(Change(kind="topic", name=topic, action="updated", servers=addresses), as_json=as_json)


@COMMANDS.add("delete", "Delete a topic with its messages and offsets.", "mqadmin topic delete Orders --yes")
async def delete(admin: Admin, topic: TopicArgument, yes: Yes = False, as_json: Json = False) -> None:
    """Delete the topic on all brokers and name servers."""
    stored = (await admin.topic_config.statistics(topic)).offset_table.values()
    count = sum(each.max_offset - each.min_offset for each in stored)
    confirm(f"Topic {topic} with {counted(count, 'message')} will be deleted on all brokers.", is_agreed=yes)
    addresses = await masters_of(admin)
    await admin.delete_topic(topic)
    print_result(Change(kind="topic", name=topic, action="deleted", servers=addresses), as_json=as_json)


# ------------------------------------------------------------------------------------------------------------- to read


@COMMANDS.add(
    "list",
    "List topics with their queues and permission.",
    "mqadmin topic list --filter Order",
    "mqadmin topic list --kind all --json",
)
async def list_topics(
    admin: Admin,
    kind: Annotated[str, typer.Option("--kind", metavar="KIND", help=f"{', '.join(KINDS)} or {ALL}.")] = NORMAL,
    text: NameFilter = "",
    as_json: Json = False,
    watch: Watch = None,
) -> None:
    """Print the topics that the brokers have."""
    wanted = kind.replace("-", " ")
    if wanted not in {*KINDS, ALL}:
        raise usage_error(f"{kind!r} is not a kind of topic; use {', '.join(KINDS)} or {ALL}.")

    async def read() -> TopicList:
        rows = await _rows(admin)
        chosen = [row for row in rows if wanted in {row.kind, ALL} and name_matches(row.name, text)]
        return TopicList(topics=chosen)

    await show(read, as_json=as_json, watch=watch)


@COMMANDS.add(
    "show",
    "Show the brokers, queues and groups of a topic.",
    "mqadmin topic show Orders",
    "mqadmin topic show Orders --watch",
)
async def show_topic(admin: Admin, topic: TopicArgument, as_json: Json = False, watch: Watch = None) -> None:
    """Print one topic."""
    await show(partial(_details, admin, topic), as_json=as_json, watch=watch)


async def _rows(admin: Admin) -> list[TopicRow]:
    """Return all topics, from the table of each broker: of its master, or else a slave."""
    brokers = {name: min(by_id.items())[1] for name, by_id in (await admin.broker_addresses()).items() if by_id}
    tables = await gathered([partial(admin.topic_config.table, address) for address in brokers.values()])
    own = await gathered([partial(admin.topic_config.system_names, address) for address in brokers.values()])
    system = {name for names in own for name in names}
    found: dict[str, dict[str, TopicConfig]] = {}
    for broker, table in zip(brokers, tables, strict=True):
        for name, config in table.topic_config_table.items():
            found.setdefault(name, {})[broker] = config
    return [_row(name, configs, is_system=name in system) for name, configs in sorted(found.items())]


def _row(name: str, configs: dict[str, TopicConfig], *, is_system: bool) -> TopicRow:
    first = next(iter(configs.values()))
    return TopicRow(
        name=name,
        kind=SYSTEM if is_system else kind_of(name),
        brokers=list(configs),
        read_queues=sum(each.read_queue_nums for each in configs.values()),
        write_queues=sum(each.write_queue_nums for each in configs.values()),
        permission=_permission_text(first.perm),
        message_type=first.attributes.get(_TYPE_ATTRIBUTE, _TYPES[0]),
    )


async def _details(admin: Admin, topic: str) -> TopicDetails:
    route = await admin.topic_config.route(topic)
    statistics = await admin.topic_config.statistics(topic)
    queues = sorted(statistics.offset_table.items())
    return TopicDetails(
        name=topic,
        messages=sum(each.max_offset - each.min_offset for _, each in queues),
        messages_per_second=statistics.topic_put_tps,
        brokers=[
            TopicBroker(
                broker=each.broker_name,
                read_queues=each.read_queue_nums,
                write_queues=each.write_queue_nums,
                permission=_permission_text(each.perm),
            )
            for each in sorted(route.queue_datas, key=lambda data: data.broker_name)
        ],
        queues=[
            TopicQueue(
                broker=queue.broker_name,
                queue=queue.queue_id,
                first_offset=each.min_offset,
                next_offset=each.max_offset,
                last_stored=utc_text(each.last_update_timestamp),
                last_stored_ms=each.last_update_timestamp,
            )
            for queue, each in queues
        ],
        groups=sorted(await _groups(admin, topic)),
    )


async def _groups(admin: Admin, topic: str) -> list[str]:
    try:
        return await admin.topic_config.groups(topic)
    except BrokerError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return []


# --------------------------------------------------------------------------------------------------------------- parts


async def _has_route(admin: Admin, topic: str) -> bool:
    try:
        await admin.topic_config.route(topic)
    except NoRoute:
        return False
    return True


def _permission(text: str) -> int:
    if text not in _PERMISSIONS:
        raise usage_error(f"{text!r} is not a permission; use one of {', '.join(_PERMISSIONS)}.")
    return _PERMISSIONS[text]


def _permission_text(perm: int) -> str:
    bits = perm & Permission.READ_WRITE
    return next(text for text, value in _PERMISSIONS.items() if value == bits)


def _changes(message_type: str | None, attributes: list[str] | None) -> dict[str, str]:
    """Return the changes of attributes. CommandFailed for one that is not NAME=VALUE."""
    changes = {}
    for text in attributes or []:
        name, is_set, value = text.partition("=")
        if not name or not is_set or not value:
            raise usage_error(f"an attribute must be NAME=VALUE, not {text!r}.")
        changes[name] = value
    if message_type is not None:
        if message_type.upper() not in _TYPES:
            raise usage_error(f"{message_type!r} is not a message type; use one of {', '.join(_TYPES)}.")
        changes[_TYPE_ATTRIBUTE] = message_type.upper()
    return changes


def _first(*values: int | None) -> int:
    """Return the first value that is given; the last one always is."""
    return next(value for value in values if value is not None)
