"""Commands about brokers: brokerStatus, brokerConsumeStats, getBrokerConfig, updateBrokerConfig, haStatus,
resetMasterFlushOffset, sendMsgStatus, and those that delete files.

For a whole cluster, brokerStatus, getBrokerConfig and updateBrokerConfig go on after the failure of a broker. Each
failure is a line on stderr; the exit code is the code of the first failure.
"""

import re
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Final

import typer

from skylarkmq.clients.mqadmin.addresses import all_addresses, master_addresses
from skylarkmq.clients.mqadmin.commands import Commands, repeated
from skylarkmq.clients.mqadmin.failures import Failures, usage_error
from skylarkmq.clients.mqadmin.java_output import cut_broker, cut_front, local_time, local_time_ms, printf
from skylarkmq.clients.mqadmin.options import (
    MOST_INTERVAL_S,
    BrokerAddress,
    ClusterName,
    Interval,
    RequiredBrokerAddress,
    is_true,
    one_of,
)
from skylarkmq.clients.mqadmin.rocketmq.message_text import result_text
from skylarkmq.clients.mqadmin.rocketmq.setting_lines import print_settings
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.clients.sdk.connection.topic_route import MASTER
from skylarkmq.clients.sdk.producing.producer import Producer
from skylarkmq.protocol.bodies.ha import HAClientInfo, HARuntimeInfo
from skylarkmq.protocol.frame import MAX_FRAME_BYTES
from skylarkmq.protocol.message import Message

COMMANDS = Commands()

ClusterToClean = Annotated[
    str | None, typer.Option("-c", "--cluster", metavar="NAME", help="Only the brokers of this cluster.")
]

_CONSUME_HEAD: Final = "%-64s  %-64s  %-32s  %-4s  %-20s  %-20s  %-20s  %s%n"
_CONSUME_ROW: Final = "%-64s  %-64s  %-32s  %-4d  %-20d  %-20d  %-20d  %s%n"
_SLAVE_HEAD: Final = "%-32s  %-16s %16s %16s %16s %16s%n"
_SLAVE_ROW: Final = "%-32s  %-16d %16d %16.2f %16s %16d%n"
_PERMISSION: Final = re.compile("0*[0-7]")


# ------------------------------------------------------------------------------------------------- state and settings


@COMMANDS.add("brokerStatus", "Fetch broker runtime status data.")
async def broker_status(admin: Admin, broker: BrokerAddress = None, cluster: ClusterName = None) -> None:
    """Print `key: value` lines, sorted; for a cluster with the address in front."""
    address, cluster = one_of(broker, cluster)
    if address is not None:
        for key, value in sorted((await admin.brokers.runtime_info(address)).items()):
            printf("%-32s: %s%n", key, value)
        return

    async def show(address: str) -> None:
        for key, value in sorted((await admin.brokers.runtime_info(address)).items()):
            printf("%-24s %-32s: %s%n", address, key, value)

    await _each(await all_addresses(admin, None, cluster), show)


@COMMANDS.add("getBrokerConfig", "Get broker config by cluster or special broker.")
async def get_broker_config(admin: Admin, broker: BrokerAddress = None, cluster: ClusterName = None) -> None:
    """Print the settings of a broker, or of all masters and slaves of a cluster."""
    address, cluster = one_of(broker, cluster)
    if address is not None:
        await _print_config(admin, address, address)
        return
    failures = Failures()
    for by_id in (await admin.broker_addresses(cluster)).values():
        await _print_configs(admin, by_id, failures)
    failures.raise_if_any()


@COMMANDS.add("updateBrokerConfig", "Update broker's config.")
async def update_broker_config(
    admin: Admin,
    key: Annotated[str, typer.Option("-k", "--key", help="Name of the setting.")],
    value: Annotated[str, typer.Option("-v", "--value", help="Its new value.")],
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    slaves: Annotated[
        str | None, typer.Option("-a", "--updateAllBroker", help="Any value: the slaves of the cluster, too.")
    ] = None,
) -> None:
    """Change a setting of a broker, or of all masters of a cluster."""
    key, value = key.strip(), value.strip()
    if key == "brokerPermission" and not _PERMISSION.fullmatch(value):
        raise usage_error(f"brokerPermission is a sum of 4 (read) and 2 (write), not {value}.")

    async def update(address: str) -> None:
        await admin.brokers.update_config(address, {key: value})
        printf("update broker config success, %s%n", address)

    await _each(await (master_addresses if slaves is None else all_addresses)(admin, broker, cluster), update)


@COMMANDS.add("haStatus", "Fetch ha runtime status data.")
async def ha_status(
    admin: Admin, cluster: ClusterName = None, broker: BrokerAddress = None, interval: Interval = None
) -> None:
    """Print the slaves of a master, or the connection of a slave. RocketMQ 5 only."""
    async for _ in repeated(interval):
        for address in await master_addresses(admin, broker, cluster):
            status = await admin.brokers.ha_status(address)
            if status.master:
                _print_master(address, status)
            else:
                _print_slave(status.ha_client_runtime_info)


@COMMANDS.add("resetMasterFlushOffset", "Reset master flush offset in slave.")
async def reset_master_flush_offset(
    admin: Admin,
    broker: RequiredBrokerAddress,
    offset: Annotated[int, typer.Option("-o", "--offset", help="Offset in the commit log.")],
) -> None:
    """Change the offset up to which a slave assumes its master's log to be flushed. RocketMQ 5 only."""
    await admin.brokers.reset_master_flush_offset(broker, offset)
    printf("reset master flush offset to %d success%n", offset)


# --------------------------------------------------------------------------------------------------- groups and sends


@COMMANDS.add("brokerConsumeStats", "Fetch broker consume stats data.")
async def broker_consume_stats(
    admin: Admin,
    broker: RequiredBrokerAddress,
    timeout_ms: Annotated[
        int, typer.Option("-t", "--timeoutMillis", min=1, max=MOST_INTERVAL_S * 1000, help="Limit of the request.")
    ] = 50_000,
    level: Annotated[int, typer.Option("-l", "--level", help="Only queues with at least this difference.")] = 0,
    order: Annotated[str, typer.Option("-o", "--order", metavar="BOOL", help="Only ordered topics.")] = "false",
) -> None:
    """Print the offsets of all groups of a broker. Queues of which a group has consumed nothing are left out."""
    timeout_s = timeout_ms / 1000
    listed = await admin.brokers.consume_stats(broker, ordered=is_true(order), timeout_s=timeout_s)
    heads = ("#Topic", "#Group", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff", "#LastTime")
    printf(_CONSUME_HEAD, *heads)
    topics = [(group, stats) for entry in listed.consume_stats_list for group, each in entry.items() for stats in each]
    for group, stats in topics:
        for queue, offsets in sorted(stats.offset_table.items()):
            diff = offsets.broker_offset - offsets.consumer_offset
            if diff >= level and offsets.last_timestamp > 0:
                names = cut_front(queue.topic), group, cut_broker(queue.broker_name), queue.queue_id
                figures = offsets.broker_offset, offsets.consumer_offset, diff, local_time(offsets.last_timestamp)
                printf(_CONSUME_ROW, *names, *figures)
    printf("%nDiff Total: %d%n", sum(stats.diff for _, stats in topics))


@COMMANDS.add("sendMsgStatus", "Send msg to broker.")
async def send_msg_status(
    admin: Admin,
    broker: Annotated[str, typer.Option("-b", "--brokerName", help="Name of the broker, which is also a topic.")],
    size: Annotated[
        int, typer.Option("-s", "--messageSize", min=1, max=MAX_FRAME_BYTES, help="Bytes of a body, in steps of 11.")
    ] = 128,
    count: Annotated[int, typer.Option("-c", "--count", min=0, help="Number of messages.")] = 50,
) -> None:
    """Send messages to the topic named like the broker, and print the time and the result of each."""
    topic = broker.strip()
    await admin.queues(topic)  # or the first message of a misspelled name would create a topic
    async with Producer("PID_SMSC", client=admin.client) as producer:
        await producer.send(_greeting(topic, 16))
        for _ in range(count):
            begun_s = time.monotonic()
            result = await producer.send(_greeting(topic, size))
            elapsed_ms = int((time.monotonic() - begun_s) * 1000)
            printf("rt=%sms, SendResult=%s%n", elapsed_ms, result_text(result))


# -------------------------------------------------------------------------------------------------------------- files


@COMMANDS.add("cleanExpiredCQ", "Clean expired ConsumeQueue on broker.")
async def clean_expired_queues(admin: Admin, broker: BrokerAddress = None, cluster: ClusterToClean = None) -> None:
    """Delete the files of consume queues whose messages the log no longer has."""
    await _clean(admin, broker, cluster, admin.brokers.clean_expired_queues)


@COMMANDS.add("cleanUnusedTopic", "Clean unused topic on broker.")
async def clean_unused_topics(admin: Admin, broker: BrokerAddress = None, cluster: ClusterToClean = None) -> None:
    """Delete the consume queues of topics that do not exist."""
    await _clean(admin, broker, cluster, admin.brokers.clean_unused_topics)


@COMMANDS.add("deleteExpiredCommitLog", "Delete expired CommitLog files.")
async def delete_expired_log(admin: Admin, broker: BrokerAddress = None, cluster: ClusterToClean = None) -> None:
    """Delete the files of the commit log that are older than the broker keeps them."""
    await _clean(admin, broker, cluster, admin.brokers.delete_expired_log)


async def _clean(
    admin: Admin, broker: str | None, cluster: str | None, clean: Callable[[str], Awaitable[None]]
) -> None:
    """Run a clean-up on a broker, on the brokers of a cluster, or on all brokers. RocketMQ's tool prints no end of the
    line."""
    if broker is not None:
        addresses = [broker]
    else:
        by_name = await admin.broker_addresses((cluster or "").strip() or None)
        addresses = [address for by_id in by_name.values() for address in by_id.values()]
    for address in addresses:
        await clean(address)
    printf("success" if addresses else "false")


async def _each(addresses: list[str], action: Callable[[str], Awaitable[None]]) -> None:
    """Run an action for each address. CommandFailed after all of them if one failed."""
    failures = Failures()
    for address in addresses:
        try:
            await action(address)
        except ClientError as error:
            failures.add(error)
    failures.raise_if_any()


async def _print_configs(admin: Admin, by_id: dict[int, str], failures: Failures) -> None:
    """Print the settings of a broker's master and slaves."""
    master = by_id.get(MASTER, "NO_MASTER")
    if MASTER not in by_id:
        printf("============Master: %s============%n", master)
    for broker_id, address in by_id.items():
        head = f"Master: {address}" if broker_id == MASTER else f"My Master: {master}=====Slave: {address}"
        try:
            await _print_config(admin, head, address)
        except ClientError as error:
            failures.add(error)


async def _print_config(admin: Admin, head: str, address: str) -> None:
    settings = await admin.brokers.config(address)
    printf("============%s============%n", head)
    print_settings(settings)
    printf("%n")


def _greeting(topic: str, size: int) -> Message:
    return Message(topic, b"hello jodie" * -(-size // 11))


def _print_master(address: str, status: HARuntimeInfo) -> None:
    counts = address, status.master_commit_log_max_offset, len(status.ha_connection_info), status.in_sync_slave_nums
    printf("%n#MasterAddr\t%s%n#MasterCommitLogMaxOffset\t%d%n#SlaveNum\t%d%n#InSyncSlaveNum\t%d%n", *counts)
    heads = ("#SlaveAddr", "#SlaveAckOffset", "#Diff", "#TransferSpeed(KB/s)", "#Status", "#TransferFromWhere")
    printf(_SLAVE_HEAD, *heads)
    for slave in status.ha_connection_info:
        state = "OK" if slave.in_sync else "Fall Behind"
        speed = slave.transferred_byte_in_second / 1024
        printf(_SLAVE_ROW, slave.addr, slave.slave_ack_offset, slave.diff, speed, state, slave.transfer_from_where)


def _print_slave(info: HAClientInfo) -> None:
    printf("%n#MasterAddr\t%s%n", info.master_addr)
    printf("#CommitLogMaxOffset\t%d%n", info.max_offset)
    printf("#TransferSpeed(KB/s)\t%.2f%n", info.transferred_byte_in_second / 1024)
    printf("#LastReadTime\t%s%n", local_time_ms(info.last_read_timestamp))
    printf("#LastWriteTime\t%s%n", local_time_ms(info.last_write_timestamp))
    printf("#MasterFlushOffset\t%s%n", info.master_flush_offset)
