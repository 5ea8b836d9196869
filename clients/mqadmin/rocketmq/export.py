"""Commands that write the state of a cluster to JSON files: exportConfigs, exportMetadata, exportMetrics.

The files have the names and members of RocketMQ's, and are meant for comparison and for migrations.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from skylarkmq.clients.mqadmin.commands import Commands
from skylarkmq.clients.mqadmin.failures import usage_error
from skylarkmq.clients.mqadmin.fastjson import indented
from skylarkmq.clients.mqadmin.files import ROCKETMQ_FILES, write_file
from skylarkmq.clients.mqadmin.java_output import printf
from skylarkmq.clients.mqadmin.rocketmq.cluster import number
from skylarkmq.clients.mqadmin.rocketmq.stats import TOPIC_PUT_NUMS, messages_of_day
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.base.clocks import now_ms
from skylarkmq.clients.sdk.base.errors import BrokerError, NoRoute
from skylarkmq.protocol.bodies.stats import BrokerStatsData
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    VERSION_NAME,
    ResponseCode,
    SystemTopic,
    is_reserved_topic,
)
from skylarkmq.protocol.versions import version_name

COMMANDS = Commands()

DIRECTORY: Final = ROCKETMQ_FILES / "export"
_CONFIG_KEYS: Final = (
    "brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime", "filterServerNums",
    "flushDiskType", "maxMessageSize", "messageDelayLevel", "msgTraceTopicName", "slaveReadEnable", "traceOn",
    "traceTopicEnable", "useTLS", "autoCreateTopicEnable", "autoCreateSubscriptionGroup",
)  # fmt: skip
_OWN_GROUPS: Final = frozenset((
    "DEFAULT_CONSUMER", "DEFAULT_PRODUCER", "TOOLS_CONSUMER", "SCHEDULE_CONSUMER", "FILTERSRV_CONSUMER",
    "__MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER", "SELF_TEST_P_GROUP", "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_ONSAPI_PULL",
))  # fmt: skip
"""Groups that RocketMQ's brokers create."""
_DAY_KEYS: Final = ("normalOneDayInNum", "normalOneDayOutNum", "transOneDayInNum", "scheduleOneDayInNum")
_MOST_PERM: Final = 8
OUT_TPS_4_9: Final = "getTransferedTps"
"""The name of `getTransferredTps` in RocketMQ 4.9."""

Cluster = Annotated[str, typer.Option("-c", "--clusterName", help="Name of the cluster.")]
Directory = Annotated[Path, typer.Option("-f", "--filePath", help="Directory of the file.")]


@COMMANDS.add("exportConfigs", "Export configs.")
async def export_configs(admin: Admin, cluster: Cluster, directory: Directory = DIRECTORY) -> None:
    """Write settings of the masters, and the number of brokers and name servers, to configs.json."""
    brokers = await admin.broker_addresses(cluster.strip())
    masters = (await admin.masters(cluster.strip())).values()
    configs = {}
    for address in masters:
        config = await admin.brokers.config(address)
        configs[config.get("brokerName", address)] = {key: config[key] for key in _CONFIG_KEYS if key in config}
    scale = {
        "namesrvSize": len(admin.client.name_servers),
        "masterBrokerSize": len(masters),
        "slaveBrokerSize": sum(map(len, brokers.values())) - len(masters),
    }
    path = _write(directory / "configs.json", {"brokerConfigs": configs, "clusterScale": scale})
    printf("export %s success", path)


@COMMANDS.add("exportMetadata", "Export metadata.")
async def export_metadata(
    admin: Admin,
    cluster: Annotated[str | None, typer.Option("-c", "--clusterName", help="Name of the cluster.")] = None,
    broker: Annotated[str | None, typer.Option("-b", "--brokerAddr", help="One broker; with -t or -g.")] = None,
    directory: Directory = DIRECTORY,
    only_topics: Annotated[bool, typer.Option("-t", "--topic", help="Only topics, to topic.json.")] = False,
    only_groups: Annotated[
        bool, typer.Option("-g", "--subscriptionGroup", help="Only groups, to subscriptionGroup.json.")
    ] = False,
    with_special: Annotated[bool, typer.Option("-s", "--specialTopic", help="Also retry and DLQ topics.")] = False,
) -> None:
    """Write topics and groups, except those of the system, to metadata.json. Queues of all brokers are added up."""
    if broker is not None:
        await _export_broker(admin, broker.strip(), directory, only_topics, only_groups, with_special)
        return
    if cluster is None:
        raise usage_error("give the name of a cluster (-c), or the address of a broker (-b) with -t or -g.")
    topics: dict[str, TopicConfig] = {}
    groups: dict[str, SubscriptionGroupConfig] = {}
    for address in (await admin.masters(cluster.strip())).values():
        for name, topic in (await _user_topics(admin, address, with_special)).items():
            if name in topics:
                topic.write_queue_nums += topics[name].write_queue_nums
                topic.read_queue_nums += topics[name].read_queue_nums
            topics[name] = topic
        for name, group in (await _user_groups(admin, address)).items():
            if name in groups:
                group.retry_queue_nums += groups[name].retry_queue_nums
            groups[name] = group
    content: dict[str, Any] = {"exportTime": now_ms()}
    if only_topics or not only_groups:
        content["topicConfigTable"] = topics
    if (only_groups and not only_topics) or not only_topics:
        content["subscriptionGroupTable"] = groups
    name = "topic.json" if only_topics else "subscriptionGroup.json" if only_groups else "metadata.json"
    printf("export %s success%n", _write(directory / name, content))


async def _export_broker(
    admin: Admin, address: str, directory: Path, only_topics: bool, only_groups: bool, with_special: bool
) -> None:
    """Write the topics or the groups of one broker, with the version of the table."""
    if only_topics:
        version = (await admin.topic_config.table(address)).data_version
        topics = await _user_topics(admin, address, with_special)
        content = {"dataVersion": version, "topicConfigTable": topics}
        printf("export %s success", _write(directory / "topic.json", content))
    elif only_groups:
        version = (await admin.group_config.table(address)).data_version
        groups = await _user_groups(admin, address)
        content = {"dataVersion": version, "subscriptionGroupTable": groups}
        printf("export %s success", _write(directory / "subscriptionGroup.json", content))
    else:
        raise usage_error("with -b give -t for the topics or -g for the groups of the broker.")


@COMMANDS.add("exportMetrics", "Export metrics.")
async def export_metrics(admin: Admin, cluster: Cluster, directory: Directory = DIRECTORY) -> None:
    """Write rates, messages of a day, sizes and versions of each master, and their sums, to metrics.json."""
    report = {}
    tps_totals = dict.fromkeys(("totalNormalInTps", "totalNormalOutTps", "totalTransInTps", "totalScheduleInTps"), 0.0)
    day_totals = dict.fromkeys(_DAY_KEYS, 0)
    for name, address in (await admin.masters(cluster.strip())).items():
        info = await admin.brokers.runtime_info(address)
        config = await admin.brokers.config(address)
        groups = await _user_groups(admin, address)
        tps, day = await _quotas(admin, address, info)
        for key, value in tps.items():
            tps_totals[f"total{key[0].upper()}{key[1:]}"] += value
        for key, count in day.items():
            day_totals[key] += count
        report[name] = {
            "runtimeEnv": {
                "cpuNum": config.get("clientCallbackExecutorThreads"),
                "totalMemKBytes": info.get("totalMemKBytes"),
            },
            "runtimeQuota": {
                "diskRatio": {key: info.get(key) for key in ("commitLogDiskRatio", "consumeQueueDiskRatio")},
                "tps": tps,
                "oneDayNum": day,
                "messageAverageSize": info.get("putMessageAverageSize"),
                "topicSize": len(await _user_topics(admin, address, with_special=False)),
                "groupSize": len(groups),
            },
            "runtimeVersion": {"rocketmqVersion": VERSION_NAME, "clientInfo": await _clients(admin, groups)},
        }
    content = {"evaluateReport": report, "totalData": {"totalTps": tps_totals, "totalOneDayNum": day_totals}}
    printf("export %s success", _write(directory / "metrics.json", content))


async def _quotas(admin: Admin, address: str, info: dict[str, str]) -> tuple[dict[str, float], dict[str, int]]:
    """Return the rates of the last minute and the messages of yesterday: all, transactions and delayed ones."""
    transactions = await _puts(admin, address, SystemTopic.TRANSACTION_HALF)
    delayed = await _puts(admin, address, SystemTopic.SCHEDULE)

    def of_day(kind: str) -> int:
        today, yesterday = (int(number(info, f"{kind}Total{day}Morning", address)) for day in ("Today", "Yesterday"))
        return today - yesterday

    tps = {
        "normalInTps": number(info, "putTps", address),
        "normalOutTps": number(info, "getTransferredTps" if "getTransferredTps" in info else OUT_TPS_4_9, address),
        "transInTps": transactions.stats_minute.tps if transactions else 0.0,
        "scheduleInTps": delayed.stats_minute.tps if delayed else 0.0,
    }
    messages = (
        of_day("msgPut"),
        of_day("msgGet"),
        *(messages_of_day(stats) if stats else 0 for stats in (transactions, delayed)),
    )
    return tps, dict(zip(_DAY_KEYS, messages, strict=True))


async def _puts(admin: Admin, address: str, topic: str) -> BrokerStatsData | None:
    """Return the counters of sends to a topic; None if there are none: the broker responds with SYSTEM_ERROR (1)."""
    try:
        return await admin.brokers.stats(address, TOPIC_PUT_NUMS, topic)
    except BrokerError as error:
        if error.code != ResponseCode.SYSTEM_ERROR:
            raise
        return None


async def _clients(admin: Admin, groups: Iterable[str]) -> list[str]:
    """Return the languages and versions of the consumers that are connected, such as `JAVA%V5_3_3`."""
    found = set()
    for group in groups:
        try:
            members = await admin.group_config.consumers(group)
        except (BrokerError, NoRoute):
            continue  # without members
        found |= {f"{each.language}%{version_name(each.version)}" for each in members.connection_set}
    return sorted(found)


async def _user_topics(admin: Admin, address: str, with_special: bool) -> dict[str, TopicConfig]:
    """Return the topics of a broker that are none of the system's; retry and DLQ topics only with `with_special`."""
    own = set(await admin.topic_config.system_names(address))
    special = () if with_special else (RETRY_PREFIX, DLQ_PREFIX)
    return {
        name: topic
        for name, topic in (await admin.topic_config.table(address)).topic_config_table.items()
        if name not in own and not is_reserved_topic(name) and not name.startswith(special) and topic.perm < _MOST_PERM
    }


async def _user_groups(admin: Admin, address: str) -> dict[str, SubscriptionGroupConfig]:
    """Return the groups of a broker that are none of the system's."""
    found = (await admin.group_config.table(address)).subscription_group_table
    return {
        name: group
        for name, group in found.items()
        if name not in _OWN_GROUPS and not name.startswith(SYSTEM_GROUP_PREFIX)
    }


def _write(path: Path, content: Any) -> Path:
    """Write JSON to a file, and make its directory. OSError, also if the file is a symbolic link."""
    write_file(path, indented(content).encode())
    return path
