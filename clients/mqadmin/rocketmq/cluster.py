"""Commands about whole clusters: clusterList, clusterRT."""

import logging
import math
from collections.abc import Iterator
from typing import Annotated, Final, NamedTuple

import typer

from skylarkmq.clients.mqadmin.commands import Commands, repeated
from skylarkmq.clients.mqadmin.failures import Failures, not_found
from skylarkmq.clients.mqadmin.java_output import beijing_time, java_format, printf
from skylarkmq.clients.mqadmin.options import BodySize, Interval, is_true, stripped
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.base.clocks import now_ms
from skylarkmq.clients.sdk.base.errors import ClientError, invalid_response
from skylarkmq.clients.sdk.producing.producer import Producer
from skylarkmq.protocol.bodies.cluster import ClusterInfo
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.hash_order import bucket_order
from skylarkmq.protocol.message import Message

COMMANDS = Commands()
log = logging.getLogger(__name__)

_RATES_HEAD: Final = "%-22s  %-22s  %-4s  %-22s %-16s  %16s  %30s  %-22s  %-11s  %-12s  %-8s  %-10s%n"
_RATES_ROW: Final = "%-22s  %-22s  %-4s  %-22s %-16s  %16s  %30s  %-22s  %11s  %-12s  %-8s  %10s%n"
_NO_RATES: Final = ("", "     0.00(,ms)", "     0.00(,ms|,ms)", "0-0(0.0w, 0.0, 0.0)", "", "0.00", "0.0000", False)
_TOTALS_HEAD: Final = "%-16s  %-32s %14s %14s %14s %14s%n"
_TOTALS_ROW: Final = "%-16s  %-32s %14d %14d %14d %14d%n"
_TIMES_HEAD: Final = "%-24s  %-24s  %-4s  %-8s  %-8s%n"
_TIMES_ROW: Final = "%-24s  %-24s  %-8s  %-16s  %-16s%n"
_MOMENTS: Final = ("YesterdayMorning", "TodayMorning", "TodayNow")


@COMMANDS.add("clusterList", "List cluster infos.")
async def cluster_list(
    admin: Admin,
    more: Annotated[bool, typer.Option("-m", "--moreStats", help="Messages of yesterday and of today.")] = False,
    interval: Interval = None,
    cluster: Annotated[str | None, typer.Option("-c", "--clusterName", help="Only this cluster.")] = None,
) -> None:
    """Print a row for each broker. A broker that cannot be reached gets a row without figures, and a line on stderr."""
    async for _ in repeated(interval):
        failures = Failures()
        info = await admin.cluster()
        rows = list(_brokers_of(info, stripped(cluster)))
        await (_print_totals if more else _print_rates)(admin, rows, failures)
        if interval is None:
            failures.raise_if_any()


class _Broker(NamedTuple):
    cluster: str
    name: str
    broker_id: int
    address: str


def _brokers_of(info: ClusterInfo, cluster: str | None) -> Iterator[_Broker]:
    """Yield all brokers, or the brokers of a cluster, by their names. CommandFailed if there is no such cluster."""
    if cluster is not None and cluster not in info.cluster_addr_table:
        known = ", ".join(sorted(info.cluster_addr_table)) or "none"
        raise not_found(f"no cluster {cluster} is registered. Registered: {known}.")
    for cluster_name in bucket_order(info.cluster_addr_table) if cluster is None else [cluster]:
        for name in sorted(info.cluster_addr_table[cluster_name]):
            data = info.broker_addr_table.get(name)
            for broker_id, address in sorted(data.broker_addrs.items() if data else ()):
                yield _Broker(cluster_name, name, broker_id, address)


async def _runtime_info(admin: Admin, address: str, failures: Failures) -> dict[str, str] | None:
    try:
        return await admin.brokers.runtime_info(address)
    except ClientError as error:
        failures.add(error)
        return None


async def _print_rates(admin: Admin, brokers: list[_Broker], failures: Failures) -> None:
    heads = ("#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version", "#InTPS(LOAD)", "#OutTPS(LOAD)")
    printf(_RATES_HEAD, *heads, "#Timer(Progress)", "#PCWait(ms)", "#Hour", "#SPACE", "#ACTIVATED")
    for broker in brokers:
        info = await _runtime_info(admin, broker.address, failures)
        printf(_RATES_ROW, *broker, *(_NO_RATES if info is None else _rates(info, broker.address)))


def _rates(info: dict[str, str], address: str) -> tuple[object, ...]:
    """Return the cells after the address."""
    load = [
        info.get(f"{pool}ThreadPoolQueue{what}") for pool in ("send", "pull") for what in ("Size", "HeadWaitTimeMills")
    ]
    acks = [info.get(f"ackThreadPoolQueue{what}", "N") for what in ("Size", "HeadWaitTimeMills")]
    timers = [number(info, key, address) for key in ("timerReadBehind", "timerOffsetBehind", "timerCongestNum")]
    rates = [number(info, key, address) for key in ("timerEnqueueTps", "timerDequeueTps")]
    earliest = info.get("earliestMessageTimeStamp")
    hours = (now_ms() - number(info, "earliestMessageTimeStamp", address)) / 3_600_000 if earliest else 0.0
    return (
        info.get("brokerVersionDesc"),
        java_format("%9.2f(%s,%sms)", number(info, "putTps", address), *load[:2]),
        java_format("%9.2f(%s,%sms|%s,%sms)", number(info, "getTransferredTps", address), *load[2:], *acks),
        java_format("%d-%d(%.1fw, %.1f, %.1f)", int(timers[0]), int(timers[1]), timers[2] / 10_000, *rates),
        info.get("pageCacheLockTimeMills"),
        java_format("%2.2f", hours),
        java_format("%.4f", number(info, "commitLogDiskRatio", address)),
        info.get("brokerActive", "").lower() == "true",
    )


async def _print_totals(admin: Admin, brokers: list[_Broker], failures: Failures) -> None:
    heads = ("#Cluster Name", "#Broker Name", "#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday")
    printf(_TOTALS_HEAD, *heads)
    for broker in brokers:
        info = await _runtime_info(admin, broker.address, failures) or {}
        puts, gets = (
            [int(number(info, f"{kind}Total{moment}", broker.address)) for moment in _MOMENTS]
            for kind in ("msgPut", "msgGet")
        )
        totals = (puts[1] - puts[0], gets[1] - gets[0], puts[2] - puts[1], gets[2] - gets[1])
        printf(_TOTALS_ROW, broker.cluster, broker.name, *totals)


@COMMANDS.add("clusterRT", "List All clusters Message Send RT.")
async def cluster_rt(
    admin: Admin,
    amount: Annotated[int, typer.Option("-a", "--amount", min=1, help="Messages for each broker.")] = 100,
    size: BodySize = 128,
    cluster: Annotated[str | None, typer.Option("-c", "--cluster", help="Only this cluster.")] = None,
    as_log: Annotated[str, typer.Option("-p", "--printLog", metavar="BOOL", help="Print lines for a log.")] = "false",
    room: Annotated[str, typer.Option("-m", "--machineRoom", help="Name of this place, for a log.")] = "noname",
    interval: Interval = 10,
) -> None:
    """Send messages to the topic named like each broker, again and again, and print the mean time of a send."""
    is_log = is_true(as_log)
    brokers = list(dict.fromkeys(its[:2] for its in _brokers_of(await admin.cluster(), cluster and cluster.strip())))
    if not is_log:
        printf(_TIMES_HEAD, "#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount")
    async with Producer(str(now_ms()), client=admin.client) as producer:
        async for _ in repeated(interval):
            for cluster_name, name in brokers:
                mean_ms, sent = await _mean_send_ms(producer, Message(name, b"a" * size), amount)
                if is_log:
                    row = beijing_time(now_ms()), room.strip(), cluster_name, name
                    printf("%s|%s|%s|%s|%s%n", *row, java_format("%.0f", mean_ms))
                else:
                    rate = java_format("%.2f", mean_ms)
                    printf(_TIMES_ROW, cluster_name, name, rate, sent, amount - sent)


async def _mean_send_ms(producer: Producer, message: Message, amount: int) -> tuple[float, int]:
    """Return the mean time of the sends after the first one, and how many of all succeeded."""
    elapsed_ms = sent = 0
    for number in range(amount):
        begun_ms = now_ms()
        try:
            await producer.send(message)
            sent += 1
        except ClientError as error:
            log.debug("send failed topic=%s error=%s", message.topic, error)
        if number:
            elapsed_ms += now_ms() - begun_ms
    return elapsed_ms / (amount - 1) if amount > 1 else math.nan, sent


def number(info: dict[str, str], key: str, address: str) -> float:
    """Return the first number of a value; 0 if it is missing or blank. InvalidResponse if it is no number."""
    text = info.get(key, "").split(" ")[0]
    try:
        found = float(text or 0)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise invalid_response(RequestCode.GET_BROKER_RUNTIME_INFO, f"broker {address}", f"{key} is {text!r}")
    return found
