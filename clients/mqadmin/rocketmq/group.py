"""Commands about the configuration of consumer groups: updateSubGroup, updateSubGroupList, deleteSubGroup,
getConsumerConfig."""

from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from skylarkmq.clients.mqadmin.addresses import master_addresses
from skylarkmq.clients.mqadmin.attributes import attribute_changes
from skylarkmq.clients.mqadmin.commands import Commands
from skylarkmq.clients.mqadmin.failures import Failures, not_found, usage_error
from skylarkmq.clients.mqadmin.group_text import group_fields, group_line, retry_policy_of
from skylarkmq.clients.mqadmin.java_output import printf
from skylarkmq.clients.mqadmin.options import BrokerAddress, ClusterName, is_true, one_of
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.base.errors import ClientError, checking_argument, invalid_response
from skylarkmq.clients.sdk.connection.topic_route import MASTER
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupList
from skylarkmq.protocol.codes import DLQ_PREFIX, RETRY_PREFIX, RequestCode

COMMANDS = Commands()

_BAR: Final = "=" * 29

GroupName = Annotated[str, typer.Option("-g", "--groupName", metavar="NAME", help="Consumer group name.")]
ConfigFile = Annotated[
    Path, typer.Option("-f", "--filename", metavar="FILE", help="A JSON list of group configurations.")
]


@COMMANDS.add("updateSubGroup", "Update or create subscription group.")
async def update_sub_group(
    admin: Admin,
    group: GroupName,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    consume_enable: Annotated[
        str, typer.Option("-s", "--consumeEnable", metavar="true|false", help="Members may consume.")
    ] = "true",
    from_min: Annotated[
        str, typer.Option("-m", "--consumeFromMinEnable", metavar="true|false", help="Start at the first offset.")
    ] = "false",
    broadcast: Annotated[
        str, typer.Option("-d", "--consumeBroadcastEnable", metavar="true|false", help="Members may broadcast.")
    ] = "false",
    orderly: Annotated[
        str, typer.Option("-o", "--consumeMessageOrderly", metavar="true|false", help="Members consume in order.")
    ] = "false",
    retry_queues: Annotated[int, typer.Option("-q", "--retryQueueNums", help="Queues of the retry topic.")] = 1,
    retry_max_times: Annotated[int, typer.Option("-r", "--retryMaxTimes", help="Redeliveries of a message.")] = 16,
    retry_policy: Annotated[
        str | None, typer.Option("-p", "--groupRetryPolicy", metavar="JSON", help="When messages are redelivered.")
    ] = None,
    broker_id: Annotated[int, typer.Option("-i", "--brokerId", help="Id of the broker to consume from.")] = MASTER,
    slow_broker: Annotated[
        int, typer.Option("-w", "--whichBrokerWhenConsumeSlowly", help="Id of the broker for members that lag.")
    ] = 1,
    notify: Annotated[
        str, typer.Option("-a", "--notifyConsumerIdsChanged", metavar="true|false", help="Notify members of changes.")
    ] = "true",
    attributes: Annotated[
        str | None, typer.Option("--attributes", metavar="CHANGES", help="Attributes: +a=b,+c=d,-e")
    ] = None,
) -> None:
    """Create a group on a broker or on all masters of a cluster. Options that are not given get these defaults again:
    such a group may not broadcast."""
    config = SubscriptionGroupConfig(
        group_name=group.strip(),
        consume_enable=is_true(consume_enable),
        consume_from_min_enable=is_true(from_min),
        consume_broadcast_enable=is_true(broadcast),
        consume_message_orderly=is_true(orderly),
        retry_queue_nums=retry_queues,
        retry_max_times=retry_max_times,
        broker_id=broker_id,
        which_broker_when_consume_slowly=slow_broker,
        notify_consumer_ids_changed_enable=is_true(notify),
        attributes={} if attributes is None else attribute_changes(attributes),
    )
    if retry_policy is not None:
        config.group_retry_policy = retry_policy_of(retry_policy)
    failures = Failures()
    for address in await master_addresses(admin, broker, cluster):
        try:
            await admin.group_config.put(address, config)
        except ClientError as error:  # RocketMQ's tool goes on with the other masters
            failures.add(error)
        else:
            printf("create subscription group to %s success.%n", address)
    failures.raise_if_any()
    printf("%s%n", group_line(config))


@COMMANDS.add("updateSubGroupList", "Update or create subscription group in batch")
async def update_sub_group_list(
    admin: Admin, filename: ConfigFile, broker: BrokerAddress = None, cluster: ClusterName = None
) -> None:
    """Create all groups of a file. Fields that the file does not contain have RocketMQ's defaults."""
    with checking_argument(str(filename)):
        configs = SubscriptionGroupList.decode(b'{"groupConfigList":%b}' % filename.read_bytes()).group_config_list
    if not configs:
        raise usage_error(f"{filename} lists no groups: write a JSON list of group configurations to it.")
    kind = "subscription group" if broker is None else "group"
    for address in await master_addresses(admin, broker, cluster):
        await admin.group_config.put_all(address, configs)
        printf("submit batch of %s config to %s success, please check the result later.%n", kind, address)


@COMMANDS.add("deleteSubGroup", "Delete subscription group from broker.")
async def delete_sub_group(
    admin: Admin,
    group: GroupName,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
    remove_offset: Annotated[
        str, typer.Option("-r", "--removeOffset", metavar="true|false", help="Also delete the committed offsets.")
    ] = "false",
) -> None:
    """Delete a group; with -c also the topics of its retries and dead letters."""
    name, offsets = group.strip(), is_true(remove_offset)
    address, cluster_name = one_of(broker, cluster)
    if address is not None:
        await admin.group_config.delete(address, name, offsets=offsets)
        printf("delete subscription group [%s] from broker [%s] success.%n", name, address)
        return
    assert cluster_name is not None
    for master in await master_addresses(admin, None, cluster_name):
        await admin.group_config.delete(master, name, offsets=offsets)
        pattern = "delete subscription group [%s] from broker [%s] in cluster [%s] success.%n"
        printf(pattern, name, master, cluster_name)
    for topic in (RETRY_PREFIX + name, DLQ_PREFIX + name):
        await admin.topic_config.delete_on_brokers(topic, cluster_name, with_slaves=True)
        await admin.topic_config.delete_on_name_servers(topic, cluster_name)


@COMMANDS.add("getConsumerConfig", "Get consumer config by subscription group name.")
async def get_consumer_config(admin: Admin, group: GroupName) -> None:
    """Print the configuration of a group on each broker that has it."""
    name = group.strip()
    cluster = await admin.cluster()
    clusters = {broker: cluster for cluster, brokers in cluster.cluster_addr_table.items() for broker in brokers}
    is_found = False
    for broker, data in sorted(cluster.broker_addr_table.items()):
        if not data.broker_addrs:
            continue
        address = data.broker_addrs.get(MASTER) or data.broker_addrs[min(data.broker_addrs)]
        config = (await admin.group_config.on_broker(address)).get(name)
        if config is not None:
            is_found = True
            fields = _fields(config, address)
            printf("%s%s:%s%s%n", _BAR, clusters.get(broker), broker, _BAR)
            for field, value in fields.items():
                printf("%-40s=  %s%n", field, value)
    if not is_found:
        raise not_found(f"no broker has a group {name}. Check its name, or create it with updateSubGroup.")


def _fields(config: SubscriptionGroupConfig, address: str) -> dict[str, str]:
    """Return the fields of a group as text. InvalidResponse if its retry policy is not one of RocketMQ's."""
    try:
        return group_fields(config)
    except msgspec.ValidationError as error:
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        raise invalid_response(code, f"broker {address}", f"groupRetryPolicy: {error}") from error
