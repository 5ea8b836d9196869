"""Commands about topics: updateTopic, updateTopicList, deleteTopic, updateTopicPerm, topicRoute, topicStatus,
topicClusterList, topicList, allocateMQ."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from skylarkmq.clients.mqadmin.addresses import master_addresses
from skylarkmq.clients.mqadmin.attributes import attribute_changes
from skylarkmq.clients.mqadmin.commands import Commands
from skylarkmq.clients.mqadmin.failures import not_found, usage_error
from skylarkmq.clients.mqadmin.fastjson import indented
from skylarkmq.clients.mqadmin.java_output import Lines, cut_broker, cut_front, local_time_ms, printf
from skylarkmq.clients.mqadmin.options import BrokerAddress, ClusterName, is_true, one_of, stripped
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.admin.name_servers import ORDER_CONFIG
from skylarkmq.clients.sdk.base.errors import BrokerError, NoRoute, checking_argument
from skylarkmq.clients.sdk.connection.topic_route import MASTER
from skylarkmq.clients.sdk.consuming.allocation import averagely
from skylarkmq.protocol import javajson
from skylarkmq.protocol.bodies.cluster import ClusterInfo
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.route import QueueData, TopicRouteData
from skylarkmq.protocol.bodies.stats import TopicConfigList, queues_of
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import DLQ_PREFIX, RETRY_PREFIX, Permission, ResponseCode
from skylarkmq.protocol.hash_order import bucket_order, queue_bucket_order

COMMANDS = Commands()

_DEFAULT_QUEUES: Final = 8
_MOST_PERM: Final = 7
_UNIT, _UNIT_SUB = 1, 2
_LIST_ROW: Final = "%-20s  %-64s  %-64s%n"
_ROUTE_ROW: Final = "%-45s %-32s %-50s %-10s %-11s %-5s%n"
_ROUTE_LINE: Final = 158
_NO_RATE: Final = 0.0
"""RocketMQ's tool prints the rate of a table that it has made itself, so always 0.0; `statistics` has the real one."""

Topic = Annotated[str, typer.Option("-t", "--topic", metavar="NAME", help="Topic name.")]
Perm = Annotated[int, typer.Option("-p", "--perm", metavar="2|4|6", help="Permission: 2 write, 4 read, 6 both.")]
ConfigFile = Annotated[
    Path, typer.Option("-f", "--filename", metavar="FILE", help="A JSON list of topic configurations.")
]


@COMMANDS.add("updateTopic", "Update or create topic.")
async def update_topic(
    admin: Admin,
    topic: Topic,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    attributes: Annotated[
        str | None, typer.Option("-a", "--attributes", metavar="CHANGES", help="Attributes: +a=b,+c=d,-e")
    ] = None,
    read_queues: Annotated[int, typer.Option("-r", "--readQueueNums", help="Number of queues to read.")] = (
        _DEFAULT_QUEUES
    ),
    write_queues: Annotated[int, typer.Option("-w", "--writeQueueNums", help="Number of queues to write.")] = (
        _DEFAULT_QUEUES
    ),
    perm: Perm = Permission.READ_WRITE,
    order: Annotated[str, typer.Option("-o", "--order", metavar="true|false", help="Ordered topic.")] = "false",
    unit: Annotated[str, typer.Option("-u", "--unit", metavar="true|false", help="Unit topic.")] = "false",
    has_unit_sub: Annotated[
        str, typer.Option("-s", "--hasUnitSub", metavar="true|false", help="Has a unit subscription.")
    ] = "false",
) -> None:
    """Create a topic on a broker, or on all masters of a cluster. Options not given set their defaults."""
    config = TopicConfig(
        topic_name=topic.strip(),
        read_queue_nums=read_queues,
        write_queue_nums=write_queues,
        perm=_checked_perm(perm),
        topic_sys_flag=_UNIT * is_true(unit) | _UNIT_SUB * is_true(has_unit_sub),
        order=is_true(order),
        attributes={} if attributes is None else attribute_changes(attributes),
    )
    address, cluster_name = one_of(broker, cluster)
    if address is not None:
        await admin.topic_config.put(address, config)
        if config.order:
            await _order_on_broker(admin, address, config)
        printf("create topic to %s success.%n", address)
    else:
        for master in await master_addresses(admin, None, cluster_name):
            await admin.topic_config.put(master, config)
            printf("create topic to %s success.%n", master)
        if config.order:
            await _order_in_cluster(admin, bucket_order(await admin.masters(cluster_name)), config)
    printf("%s%n", config)


async def _order_on_broker(admin: Admin, address: str, config: TopicConfig) -> None:
    """Add a broker to the brokers of an ordered topic."""
    table = (await admin.cluster()).broker_addr_table
    name = next((name for name, data in table.items() if address in data.broker_addrs.values()), None)
    if name is None:
        raise not_found(f"no broker with the address {address} is registered: give an address that clusterList prints.")
    conf = f"{name}:{config.write_queue_nums}"
    others = [part for part in (await _order_conf(admin, config.topic_name)).split(";") if part]
    by_broker = {part.split(":")[0]: part for part in [*others, conf]}
    await admin.name_servers.put(ORDER_CONFIG, config.topic_name, ";".join(by_broker.values()))
    printf("set broker orderConf. isOrder=%s, orderConf=[%s]%n", True, conf)


async def _order_conf(admin: Admin, topic: str) -> str:
    """Return the brokers and queue numbers of an ordered topic, `broker-a:4;broker-b:4`; blank if there are none."""
    try:
        return await admin.name_servers.get(ORDER_CONFIG, topic) or ""
    except BrokerError as error:
        if error.code != ResponseCode.QUERY_NOT_FOUND:
            raise
        return ""


async def _order_in_cluster(admin: Admin, names: Iterable[str], config: TopicConfig) -> None:
    """Set the brokers of an ordered topic."""
    conf = ";".join(f"{name}:{config.write_queue_nums}" for name in names)
    await admin.name_servers.put(ORDER_CONFIG, config.topic_name, conf)
    printf("set cluster orderConf. isOrder=%s, orderConf=[%s]%n", True, conf)


def _checked_perm(perm: int) -> int:
    if not 0 <= perm <= _MOST_PERM:
        raise usage_error(f"topicPermission value: {perm} is invalid. Give 2 (write), 4 (read) or 6 (both).")
    return perm


@COMMANDS.add("updateTopicList", "create or update topic in batch")
async def update_topic_list(
    admin: Admin, filename: ConfigFile, broker: BrokerAddress = None, cluster: ClusterName = None
) -> None:
    """Create all topics of a file. Fields that the file does not contain have RocketMQ's defaults: 16 queues."""
    with checking_argument(str(filename)):
        configs = TopicConfigList.decode(b'{"topicConfigList":%b}' % filename.read_bytes()).topic_config_list
    if not configs:
        raise usage_error(f"{filename} lists no topics: write a JSON list of topic configurations to it.")
    for address in await master_addresses(admin, broker, cluster):
        await admin.topic_config.put_all(address, configs)
        printf("submit batch of topic config to %s success, please check the result later.%n", address)


@COMMANDS.add("deleteTopic", "Delete topic from broker and NameServer.")
async def delete_topic(
    admin: Admin, topic: Topic, cluster: Annotated[str, typer.Option("-c", "--clusterName", help="Cluster name.")]
) -> None:
    """Delete a topic, its messages and its offsets."""
    name, cluster_name = topic.strip(), cluster.strip()
    await admin.topic_config.delete_on_brokers(name, cluster_name)
    printf("delete topic [%s] from cluster [%s] success.%n", name, cluster_name)
    await admin.topic_config.delete_on_name_servers(name, cluster_name)
    printf("delete topic [%s] from NameServer success.%n", name)


@COMMANDS.add("updateTopicPerm", "Update topic perm.")
async def update_topic_perm(
    admin: Admin, topic: Topic, perm: Perm, broker: BrokerAddress = None, cluster: ClusterName = None
) -> None:
    """Change a topic's permission. The numbers of queues come from the first broker of its route."""
    address, cluster_name = one_of(broker, cluster)
    route = await admin.topic_config.route(topic.strip())
    if not route.queue_datas:
        raise not_found(f"the route of topic {topic} has no queues. Check the registration of its brokers.")
    first = route.queue_datas[0]
    config = TopicConfig(
        topic_name=topic.strip(),
        read_queue_nums=first.read_queue_nums,
        write_queue_nums=first.write_queue_nums,
        perm=_checked_perm(perm),
        topic_sys_flag=first.topic_sys_flag,
    )
    if cluster_name is not None:
        for master in await master_addresses(admin, None, cluster_name):
            await admin.topic_config.put(master, config)
            printf("update topic perm from %s to %s in %s success.%n", first.perm, perm, master)
        return
    assert address is not None
    old = _perm_on_master(route, address)
    if perm == old:
        printf("new perm equals to the old one!%n")
        return
    await admin.topic_config.put(address, config)
    printf("update topic perm from %s to %s in %s success.%n", old, perm, address)
    printf("%s.%n", config)


def _perm_on_master(route: TopicRouteData, address: str) -> int:
    """Return the permission on the broker whose master has this address. CommandFailed if no master has it."""
    name = next((data.broker_name for data in route.broker_datas if data.broker_addrs.get(MASTER) == address), None)
    if name is None:
        raise not_found(
            f"{address} is not the master of a broker of this topic: give an address that topicRoute prints."
        )
    return next((queues.perm for queues in route.queue_datas if queues.broker_name == name), 0)


@COMMANDS.add("topicRoute", "Examine topic route info.")
async def topic_route(
    admin: Admin,
    topic: Topic,
    as_list: Annotated[bool, typer.Option("-l", "--list", help="Print a table instead of JSON.")] = False,
) -> None:
    """Print the brokers and queues of a topic, as a name server has them."""
    route = await admin.topic_config.route(topic.strip())
    if not as_list:
        printf("%s%n", Lines(indented(route)))
        return
    queues = {data.broker_name: data for data in route.queue_datas}
    printf(_ROUTE_ROW, "#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm")
    reads = writes = 0
    for broker in sorted(route.broker_datas, key=lambda data: data.broker_name):
        data = queues.get(broker.broker_name)
        if data is None:
            raise not_found(f"the route of topic {topic} has no queues of broker {broker.broker_name}.")
        reads += data.read_queue_nums
        writes += data.write_queue_nums
        addresses = ", ".join(f"{broker_id}={address}" for broker_id, address in sorted(broker.broker_addrs.items()))
        counts = data.read_queue_nums, data.write_queue_nums, data.perm
        printf(_ROUTE_ROW, broker.cluster, broker.broker_name, f"{{{addresses}}}", *counts)
    printf("%s%n", "-" * _ROUTE_LINE)
    printf(_ROUTE_ROW, "Total:", len(queues), "", reads, writes, "")


@COMMANDS.add("topicStatus", "Examine topic Status info.")
async def topic_status(
    admin: Admin,
    topic: Topic,
    cluster: Annotated[
        str | None, typer.Option("-c", "--cluster", help="Topic whose route is used, such as the cluster's name.")
    ] = None,
) -> None:
    """Print the first and the next offset of each queue, and the time of its last message."""
    route_of = stripped(cluster)
    stats = await admin.topic_config.statistics(topic.strip(), route_of=route_of)
    if not stats.offset_table and route_of is None:
        raise not_found(f"Not found the topic stats info: topic {topic} has no queues. Check its configuration.")
    printf("%-32s  %-4s  %-20s  %-20s    %s%n", "#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated")
    for queue, row in sorted(stats.offset_table.items()):
        updated_ms = row.last_update_timestamp
        updated = local_time_ms(updated_ms) if updated_ms > 0 else ""
        cells = cut_broker(queue.broker_name), queue.queue_id, row.min_offset, row.max_offset, updated
        printf("%-32s  %-4d  %-20d  %-20d    %s%n", *cells)
    printf("%n")
    printf("Topic Put TPS: %s%n", _NO_RATE)


@COMMANDS.add("topicClusterList", "Get cluster info for topic.")
async def topic_cluster_list(admin: Admin, topic: Topic) -> None:
    """Print the clusters that have a topic."""
    for cluster in bucket_order(await admin.topic_config.clusters(topic.strip())):
        printf("%s%n", cluster)


@COMMANDS.add("topicList", "Fetch all topic list from name server.")
async def topic_list(
    admin: Admin,
    with_groups: Annotated[
        bool, typer.Option("-c", "--clusterModel", help="With the cluster and the consumer groups of each topic.")
    ] = False,
) -> None:
    """Print the names of all topics."""
    names = bucket_order(await admin.topic_config.names())
    if not with_groups:
        for name in names:
            printf("%s%n", name)
        return
    cluster = await admin.cluster()
    printf("%-20s  %-48s  %-48s%n", "#Cluster Name", "#Topic", "#Consumer Group")
    for name in names:
        if not name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            cluster_name, groups = await _cluster_and_groups(admin, cluster, name)
            for group in bucket_order(groups) or [""]:
                printf(_LIST_ROW, cut_front(cluster_name, 20), cut_front(name), cut_front(group))


async def _cluster_and_groups(admin: Admin, cluster: ClusterInfo, topic: str) -> tuple[str, list[str]]:
    """Return the cluster and the groups of a topic; blank and none as far as they are unknown."""
    try:
        route = await admin.topic_config.route(topic)
        first = route.broker_datas[0].broker_name if route.broker_datas else None
    except NoRoute:  # deleted since the list was requested
        return "", []
    cluster_name = next((name for name, brokers in cluster.cluster_addr_table.items() if first in brokers), "null")
    try:
        return cluster_name, await admin.topic_config.groups(topic)
    except (BrokerError, NoRoute):  # for some system topics
        return cluster_name, []


@COMMANDS.add("allocateMQ", "Allocate MQ.")
async def allocate_mq(
    admin: Admin,
    topic: Topic,
    ips: Annotated[str, typer.Option("-i", "--ipList", metavar="IP,IP", help="The members of a group.")],
) -> None:
    """Print which queues each member would get from the rule AVG."""
    route = await admin.topic_config.route(topic.strip())
    readable = [data for data in route.queue_datas if data.perm & Permission.READ]
    queues = queue_bucket_order(_queues(topic.strip(), readable))
    members = ips.strip().split(",")
    result = {member: averagely(queues, members, member) for member in bucket_order(dict.fromkeys(members))}
    printf("%s%n", javajson.dumps({"result": result}).decode())


def _queues(topic: str, brokers: Iterable[QueueData]) -> Iterator[MessageQueue]:
    for data in brokers:
        yield from queues_of(topic, data.broker_name, data.read_queue_nums)
