"""Consumer groups and the clients of groups: configuration, members, and the state that a member reports.

    config = SubscriptionGroupConfig("billing", retry_max_times=3)
    await admin.group_config.put("10.0.0.1:10911", config)
    info = await admin.group_config.running_info("billing", client_id)

A group has a retry topic from its first member on, and the route of that topic names the brokers of the group.
Source: docs/reference/wire.md, "Groups", "Connections of groups", "Calls to clients".
"""

from collections.abc import Iterable
from typing import Final

from skylarkmq.clients.sdk.admin.requests import AdminRequests
from skylarkmq.clients.sdk.base.arguments import check_group, check_type
from skylarkmq.clients.sdk.base.errors import BrokerError, NoRoute, printable
from skylarkmq.protocol.bodies.client_state import ConsumerRunningInfo
from skylarkmq.protocol.bodies.connections import ConsumerConnection, ProducerConnection
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.subscription_group import (
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from skylarkmq.protocol.codes import RETRY_PREFIX, RequestCode, ResponseCode
from skylarkmq.protocol.headers.client_calls import ConsumerRunningInfoHeader
from skylarkmq.protocol.headers.consumer import ConsumerGroupHeader, DeleteGroupHeader
from skylarkmq.protocol.headers.stats import ProducerGroupHeader

_NO_MEMBER: Final = "Not found the consumer group connection"
_NO_PRODUCER: Final = "Not found the producer group connection"


class GroupConfigs:
    """The section `Admin.group_config`. Addresses are `host:port`."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    def __repr__(self) -> str:
        return f"<GroupConfigs {self._requests.client}>"

    # -------------------------------------------------------------------------------------------------- configuration

    async def put(self, address: str, config: SubscriptionGroupConfig, *, timeout_s: float | None = None) -> None:
        """Create a group on one broker, or replace its configuration; attributes are changes, as for topics."""
        check_type("config", config, SubscriptionGroupConfig)
        async with self._requests.within(timeout_s, "put"):
            await self._put(address, config)

    async def put_all(
        self, address: str, configs: Iterable[SubscriptionGroupConfig], *, timeout_s: float | None = None
    ) -> None:
        """Do the same for several groups: a broker of 5.x sets all of them or none."""
        wanted = list(configs)
        body = SubscriptionGroupList(wanted).encode()
        async with self._requests.within(timeout_s, "put_all"):
            try:
                await self._requests.send(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body)
            except BrokerError as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                for config in wanted:
                    await self._put(address, config)

    async def on_broker(self, address: str, *, timeout_s: float | None = None) -> dict[str, SubscriptionGroupConfig]:
        """Return the groups of one broker, by name."""
        return (await self.table(address, timeout_s=timeout_s)).subscription_group_table

    async def table(self, address: str, *, timeout_s: float | None = None) -> SubscriptionGroupWrapper:
        """Return the groups of one broker by name, with the version of the table."""
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        async with self._requests.within(timeout_s, "table"):
            return await self._requests.read(SubscriptionGroupWrapper, address, code)

    async def groups(self, *, timeout_s: float | None = None) -> dict[str, SubscriptionGroupConfig]:
        """Return all consumer groups by name; for a group on several brokers, the configuration of the last one."""
        table: dict[str, SubscriptionGroupConfig] = {}
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        async with self._requests.within(timeout_s, "groups"):
            for address in await self._requests.master_addresses():
                table |= (await self._requests.read(SubscriptionGroupWrapper, address, code)).subscription_group_table
        return dict(sorted(table.items()))

    async def create(
        self, config: SubscriptionGroupConfig, brokers: Iterable[str] | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Create a consumer group on each broker, or change it. `brokers`: names; default: all."""
        check_type("config", config, SubscriptionGroupConfig)
        async with self._requests.within(timeout_s, "create"):
            for address in await self._requests.master_addresses(brokers):
                await self._put(address, config)

    async def delete_on_masters(self, group: str, *, offsets: bool = True, timeout_s: float | None = None) -> None:
        """Delete a consumer group on all masters, and with `offsets` its committed offsets."""
        check_type("group", group, str)
        flag = str(offsets).lower()
        header = DeleteGroupHeader(group_name=group, clean_offset=flag, remove_offset=flag)
        async with self._requests.within(timeout_s, "delete_on_masters"):
            for address in await self._requests.master_addresses():
                await self._requests.send(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def delete(self, address: str, group: str, *, offsets: bool = True, timeout_s: float | None = None) -> None:
        """Delete a group from one broker, and with `offsets` its committed offsets. An unknown group is no error."""
        check_type("group", group, str)
        flag = str(offsets).lower()
        header = DeleteGroupHeader(group_name=group, clean_offset=flag, remove_offset=flag)
        async with self._requests.within(timeout_s, "delete"):
            await self._requests.send(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def _put(self, address: str, config: SubscriptionGroupConfig) -> None:
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await self._requests.send(address, code, body=config.encode())

    # -------------------------------------------------------------------------------------------------------- clients

    async def members(self, group: str, *, timeout_s: float | None = None) -> ConsumerConnection:
        """Return the members of a group and their subscriptions, from the first broker that has members.

        BrokerError if no broker has any.
        """
        check_type("group", group, str)
        failure: BrokerError | None = None
        code, header = RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupHeader(consumer_group=group)
        async with self._requests.within(timeout_s, "members"):
            for address in await self._requests.master_addresses():
                try:
                    return await self._requests.read(ConsumerConnection, address, code, header)
                except BrokerError as error:
                    failure = error
        raise failure or NoRoute("no broker is registered. Check that one runs, and the name server of its settings.")

    async def consumers(
        self, group: str, address: str | None = None, *, timeout_s: float | None = None
    ) -> ConsumerConnection:
        """Return the members of a group and their subscriptions, from one broker; None: the first one of the group.

        NoRoute if the group never had a member, BrokerError with CONSUMER_NOT_ONLINE (206) if it has no member now.
        """
        check_group(group)
        code, header = RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupHeader(consumer_group=group)
        async with self._requests.within(timeout_s, "consumers"):
            broker = address or (await brokers_of_group(self._requests, group))[0]
            found = await self._requests.read(ConsumerConnection, broker, code, header)
        if not found.connection_set:  # RocketMQ's brokers may respond with an empty list
            raise BrokerError.of(code, ResponseCode.CONSUMER_NOT_ONLINE, _NO_MEMBER, f"broker {broker}")
        return found

    async def producers(self, group: str, topic: str, *, timeout_s: float | None = None) -> ProducerConnection:
        """Return the producers of a group, from the first broker of a topic. BrokerError if there are none."""
        check_group(group)
        check_type("topic", topic, str)
        code, header = RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerGroupHeader(producer_group=group)
        async with self._requests.within(timeout_s, "producers"):
            broker = (await self._requests.addresses_of(topic))[0]
            found = await self._requests.read(ProducerConnection, broker, code, header)
        if not found.connection_set:
            raise BrokerError.of(code, ResponseCode.SYSTEM_ERROR, _NO_PRODUCER, f"broker {broker}", topic)
        return found

    async def running_info(
        self, group: str, client_id: str, *, jstack: bool = False, timeout_s: float | None = None
    ) -> ConsumerRunningInfo:
        """Return the state that a member reports; a broker relays the request to it. `jstack`: with its stacks.

        BrokerError if the member is not connected, or does not respond.
        """
        check_group(group)
        check_type("client_id", client_id, str)
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        header = ConsumerRunningInfoHeader(group, client_id, jstack_enable=str(jstack).lower())
        async with self._requests.within(timeout_s, "running_info"):
            address = (await brokers_of_group(self._requests, group))[0]
            return await self._requests.read(ConsumerRunningInfo, address, code, header)

    async def readers(self, group: str, *, timeout_s: float | None = None) -> dict[MessageQueue, str]:
        """Return the client id of the member that reads each queue, as far as members are online and report it.

        Each member gets one request, which a broker relays. `timeout_s` limits each request.
        """
        found: dict[MessageQueue, str] = {}
        try:
            for member in (await self.consumers(group, timeout_s=timeout_s)).connection_set:
                info = await self.running_info(group, member.client_id, timeout_s=timeout_s)
                found |= dict.fromkeys(info.mq_table, member.client_id)
        except (BrokerError, NoRoute):  # no members, or one has just left
            return found
        return found


async def brokers_of_group(requests: AdminRequests, group: str) -> list[str]:
    """Return the address of each broker that has the group's retry topic. NoRoute if the group never had a member."""
    try:
        return await requests.addresses_of(RETRY_PREFIX + group)
    except NoRoute as error:
        raise NoRoute(
            f"no broker has the retry topic of group {printable(group)}: the group never had a member. Check its name, "
            "or start a member.",
            code=error.code,
            topic=error.topic,
        ) from error
