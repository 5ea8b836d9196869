"""The command statsAll: rates and messages of a day, of topics and of their consumer groups."""

from typing import Annotated, Final

import typer

from skylarkmq.clients.mqadmin.commands import Commands
from skylarkmq.clients.mqadmin.failures import Failures, not_found
from skylarkmq.clients.mqadmin.java_output import cut_front, printf
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.base.errors import BrokerError, ClientError, NoRoute
from skylarkmq.clients.sdk.connection.topic_route import MASTER
from skylarkmq.protocol.bodies.stats import BrokerStatsData
from skylarkmq.protocol.codes import DLQ_PREFIX, RETRY_PREFIX, ResponseCode

COMMANDS = Commands()

TOPIC_PUT_NUMS: Final = "TOPIC_PUT_NUMS"
GROUP_GET_NUMS: Final = "GROUP_GET_NUMS"
_HEAD: Final = "%-64s  %-64s %12s %11s %11s %14s %14s%n"
_ROW: Final = "%-64s  %-64s %12d %11.2f %11.2f %14d %14d%n"
_NO_CONSUMER: Final = "%-64s  %-64s %12d %11.2f %11s %14d %14s%n"


@COMMANDS.add("statsAll", "Topic and Consumer tps stats.")
async def stats_all(
    admin: Admin,
    only_active: Annotated[bool, typer.Option("-a", "--activeTopic", help="Only with messages today.")] = False,
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="Only this topic.")] = None,
) -> None:
    """Print a row for each topic and consumer group."""
    names = await admin.topic_config.names()
    if topic and topic not in names:
        raise not_found(f"no topic {topic}. `mqadmin topicList` lists the topics.")
    failures = Failures()
    heads = "#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS", "#InMsg24Hour", "#OutMsg24Hour"
    printf(_HEAD, *heads)
    for name in names:
        if name.startswith((RETRY_PREFIX, DLQ_PREFIX)) or (topic and name != topic):
            continue
        try:
            await _print_topic(admin, name, only_active)
        except NoRoute:
            continue  # RocketMQ lists names of clusters and brokers as topics too, some of them without a route
        except ClientError as error:
            failures.add(error)
    failures.raise_if_any()


async def _print_topic(admin: Admin, topic: str, only_active: bool) -> None:
    route = await admin.topic_config.route(topic)
    masters = [each.broker_addrs[MASTER] for each in route.broker_datas if MASTER in each.broker_addrs]
    groups = await admin.topic_config.groups(topic)
    in_tps, in_day = await _rates(admin, masters, TOPIC_PUT_NUMS, topic)
    shown = cut_front(topic)
    if not groups and (in_day or not only_active):
        printf(_NO_CONSUMER, shown, "", 0, in_tps, "", in_day, "NO_CONSUMER")
    for group in groups:
        out_tps, out_day = await _rates(admin, masters, GROUP_GET_NUMS, f"{topic}@{group}")
        lag = await _lag(admin, group, topic)
        if in_day or out_day or not only_active:
            printf(_ROW, shown, cut_front(group), lag, in_tps, out_tps, in_day, out_day)


async def _rates(admin: Admin, addresses: list[str], name: str, key: str) -> tuple[float, int]:
    """Return the rate of the last minute and the messages of the last day, over all brokers.

    A broker responds with SYSTEM_ERROR (1) if it has not counted any.
    """
    tps, day = 0.0, 0
    for address in addresses:
        try:
            stats = await admin.brokers.stats(address, name, key)
        except BrokerError as error:
            if error.code != ResponseCode.SYSTEM_ERROR:
                raise
            continue
        tps += stats.stats_minute.tps
        day += messages_of_day(stats)
    return tps, day


async def _lag(admin: Admin, group: str, topic: str) -> int:
    """Return the number of messages that a group has not consumed; 0 if it has no offsets."""
    try:
        return max((await admin.offsets.progress(group, topic)).diff, 0)
    except (BrokerError, NoRoute):
        return 0  # as RocketMQ's tool prints it for a group that is not online


def messages_of_day(stats: BrokerStatsData) -> int:
    """Return the messages of a day; before the broker has samples of a day, of an hour or a minute."""
    return stats.stats_day.sum or stats.stats_hour.sum or stats.stats_minute.sum
