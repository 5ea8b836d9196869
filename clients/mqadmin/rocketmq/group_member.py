"""Commands about the clients of groups: consumerConnection, producerConnection, producer, consumerStatus."""

from pathlib import Path
from typing import Annotated, Final

import typer

from skylarkmq.clients.mqadmin.commands import Commands
from skylarkmq.clients.mqadmin.failures import Failures
from skylarkmq.clients.mqadmin.files import file_name
from skylarkmq.clients.mqadmin.java_output import Lines, printf
from skylarkmq.clients.mqadmin.options import stripped
from skylarkmq.clients.mqadmin.running_info import have_same_subscriptions, problems, running_info_text
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.base.clocks import now_ms
from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.protocol.bodies.client_state import ConsumerRunningInfo
from skylarkmq.protocol.bodies.connections import ConsumerConnection
from skylarkmq.protocol.hash_order import bucket_order
from skylarkmq.protocol.versions import version_name

COMMANDS = Commands()

_MEMBER_ROW: Final = "%-36s %-22s %-10s %s%n"
_STATUS_ROW: Final = "%-10s %-40s %-20s %s%n"

ConsumerGroup = Annotated[str, typer.Option("-g", "--consumerGroup", metavar="NAME", help="Consumer group name.")]
OneBroker = Annotated[
    str | None, typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="Address of a broker; default: the first.")
]


@COMMANDS.add("consumerConnection", "Query consumer's socket connection, client version and subscription.")
async def consumer_connection(admin: Admin, group: ConsumerGroup, broker: OneBroker = None) -> None:
    """Print the members of a consumer group, and their subscriptions."""
    found = await admin.group_config.consumers(group.strip(), stripped(broker))
    printf(_MEMBER_ROW, "#ClientId", "#ClientAddr", "#Language", "#Version")
    for member in found.connection_set:
        printf(_MEMBER_ROW, member.client_id, member.client_addr, member.language, version_name(member.version))
    printf("%nBelow is subscription:%n")
    printf("%-20s %s%n", "#Topic", "#SubExpression")
    for topic in bucket_order(found.subscription_table):
        data = found.subscription_table[topic]
        printf("%-20s %s%n", data.topic, data.sub_string)
    printf("%n")
    printf("ConsumeType: %s%n", found.consume_type)
    printf("MessageModel: %s%n", found.message_model)
    printf("ConsumeFromWhere: %s%n", found.consume_from_where)


@COMMANDS.add("producerConnection", "Query producer's socket connection and client version.")
async def producer_connection(
    admin: Admin,
    group: Annotated[str, typer.Option("-g", "--producerGroup", metavar="NAME", help="Producer group name.")],
    topic: Annotated[str, typer.Option("-t", "--topic", metavar="NAME", help="A topic of the group's broker.")],
) -> None:
    """Print the producers of a group."""
    found = await admin.group_config.producers(group.strip(), topic.strip())
    for number, producer in enumerate(found.connection_set, 1):
        cells = producer.client_id, producer.client_addr, producer.language, version_name(producer.version)
        printf("%04d  %-32s %-22s %-8s %s%n", number, *cells)


@COMMANDS.add("producer", "Query producer's instances, connection, status, etc.")
async def producer(
    admin: Admin,
    broker: Annotated[str, typer.Option("-b", "--broker", metavar="HOST:PORT", help="Address of a broker.")],
) -> None:
    """Print all producers of a broker."""
    table = (await admin.brokers.producers(broker.strip())).data
    for group in bucket_order(table):
        if not table[group]:
            printf("producer group (%s) instances are empty%n", group)
        for one in table[group]:
            printf(
                "producer group (%s) instance : clientId=%s,remoteIP=%s, language=%s, version=%d, "
                "lastUpdateTimestamp=%d%n",
                group,
                one.client_id,
                one.remote_ip,
                one.language,
                one.version,
                one.last_update_timestamp,
            )


@COMMANDS.add("consumerStatus", "Query consumer's internal data structure.")
async def consumer_status(
    admin: Admin,
    group: ConsumerGroup,
    client_id: Annotated[
        str | None, typer.Option("-i", "--clientId", metavar="ID", help="Print the state of this member.")
    ] = None,
    broker: OneBroker = None,
    jstack: Annotated[bool, typer.Option("-s", "--jstack", help="With the stacks of the members' threads.")] = False,
) -> None:
    """Write the state of each member to a file `<ms>/<client id>` in this directory, and check it."""
    name = group.strip()
    members = await admin.group_config.consumers(name, stripped(broker))
    if client_id is not None:
        info = await admin.group_config.running_info(name, client_id.strip(), jstack=jstack)
        printf("%s", Lines(running_info_text(info)))
        return
    failures = Failures()
    infos = await _write_files(admin, name, members, failures, jstack=jstack)
    if infos:
        _print_checks(dict(sorted(infos.items())))
    failures.raise_if_any()


async def _write_files(
    admin: Admin, group: str, members: ConsumerConnection, failures: Failures, *, jstack: bool
) -> dict[str, ConsumerRunningInfo]:
    """Return the states by client id, and write a file and a row for each."""
    started_ms = now_ms()
    infos: dict[str, ConsumerRunningInfo] = {}
    printf(_STATUS_ROW, "#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile")
    for member in members.connection_set:
        try:
            info = await admin.group_config.running_info(group, member.client_id, jstack=jstack)
        except ClientError as error:  # not connected any more, or a client without this request
            failures.add(error)
            continue
        infos[member.client_id] = info
        file = _write(started_ms, member.client_id, running_info_text(info))
        printf("%-10d %-40s %-20s %s%n", len(infos), member.client_id, version_name(member.version), str(file))
    return infos


def _write(started_ms: int, client_id: str, text: str) -> Path:
    """Write the file of a member."""
    file = Path(str(started_ms), file_name(client_id))
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


def _print_checks(infos: dict[str, ConsumerRunningInfo]) -> None:
    checked_ms = now_ms()
    if not have_same_subscriptions(infos.values(), checked_ms):
        printf("%n%nWARN: Different subscription in the same group of consumer!!!%n")
        return
    printf("%n%nSame subscription in the same group of consumer")
    printf("%n%nRebalance OK%n")
    for client_id, info in infos.items():
        for line in problems(client_id, info, checked_ms):
            printf("%s", Lines(line))
