"""Topics on brokers and in name servers: their configuration, routes, groups and statistics.

    masters = await admin.masters("DefaultCluster")
    for address in masters.values():
        await admin.topic_config.put(address, TopicConfig("Orders", 8, 8))

Requests of RocketMQ 5.x have a fallback for brokers of 4.9, which respond REQUEST_CODE_NOT_SUPPORTED (3): a list of
topics becomes one request for each, and one topic's configuration is taken from the broker's table.
Source: docs/reference/wire.md, "Topics", "Routes", "Statistics of topics and groups".
"""

from collections.abc import Iterable
from typing import Final

from skylarkmq.clients.sdk.admin.requests import AdminRequests
from skylarkmq.clients.sdk.base.arguments import check_type
from skylarkmq.clients.sdk.base.errors import BrokerError, NoRoute, reading_response
from skylarkmq.clients.sdk.connection.topic_route import TopicRoute
from skylarkmq.protocol.bodies.cluster import TopicList
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.route import TopicRouteData
from skylarkmq.protocol.bodies.stats import GroupList, TopicConfigList, TopicOffset, TopicStatsTable
from skylarkmq.protocol.bodies.topic import TopicConfig, TopicConfigSerializeWrapper
from skylarkmq.protocol.codes import Permission, RequestCode, ResponseCode, SystemTopic
from skylarkmq.protocol.headers.topic import CreateTopicHeader, TopicHeader

_SIGNS: Final = ("+", "-")


class TopicConfigs:
    """The section `Admin.topic_config`. Addresses are `host:port`."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    def __repr__(self) -> str:
        return f"<TopicConfigs {self._requests.client}>"

    # -------------------------------------------------------------------------------------------------- configuration

    async def put(self, address: str, config: TopicConfig, *, timeout_s: float | None = None) -> None:
        """Create a topic on one broker, or replace its configuration. All fields are sent, so none keeps its value.

        Attributes are changes: `+name` or `name` sets one, `-name` removes one; the others stay.
        """
        check_type("config", config, TopicConfig)
        async with self._requests.within(timeout_s, "put"):
            await self._put(address, config)

    async def put_all(self, address: str, configs: Iterable[TopicConfig], *, timeout_s: float | None = None) -> None:
        """Do the same for several topics: a broker of 5.x sets all of them or none."""
        wanted = list(configs)
        body = TopicConfigList(wanted).encode()
        async with self._requests.within(timeout_s, "put_all"):
            try:
                await self._requests.send(address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
            except BrokerError as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                for config in wanted:
                    await self._put(address, config)

    async def get(self, address: str, topic: str, *, timeout_s: float | None = None) -> TopicConfig:
        """Return the topic's configuration on one broker. BrokerError with TOPIC_NOT_EXIST (17) if the broker does not
        have the topic."""
        check_type("topic", topic, str)
        code = RequestCode.GET_TOPIC_CONFIG
        async with self._requests.within(timeout_s, "get"):
            try:
                return await self._requests.read(TopicConfig, address, code, TopicHeader(topic=topic))
            except BrokerError as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
            table = await self._requests.read(TopicConfigSerializeWrapper, address, RequestCode.GET_ALL_TOPIC_CONFIG)
        found = table.topic_config_table.get(topic)
        if found is None:
            remark = f"No topic in this broker. topic: {topic}"
            raise BrokerError.of(code, ResponseCode.TOPIC_NOT_EXIST, remark, f"broker {address}", topic)
        return found

    async def create(
        self,
        topic: str,
        queues: int = 8,
        *,
        perm: int = Permission.READ_WRITE,
        order: bool = False,
        brokers: Iterable[str] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Create a topic with this number of queues on each broker, or change it. `brokers`: names; default: all."""
        check_type("topic", topic, str)
        check_type("queues", queues, int)
        check_type("perm", perm, int)
        header = CreateTopicHeader(
            topic=topic,
            default_topic=SystemTopic.AUTO_CREATE,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=str(order).lower(),
        )
        async with self._requests.within(timeout_s, "create"):
            for address in await self._requests.master_addresses(brokers):
                await self._requests.send(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def delete(self, topic: str, *, timeout_s: float | None = None) -> None:
        """Delete a topic, with its messages and offsets, on all masters and name servers."""
        check_type("topic", topic, str)
        header = TopicHeader(topic=topic)
        async with self._requests.within(timeout_s, "delete"):
            for address in await self._requests.master_addresses():
                await self._requests.send(address, RequestCode.DELETE_TOPIC_IN_BROKER, header)
            name_servers = self._requests.client.routes.name_servers
            await name_servers.request_each(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)

    async def delete_on_brokers(
        self, topic: str, cluster: str, *, with_slaves: bool = False, timeout_s: float | None = None
    ) -> None:
        """Delete a topic, with its messages and offsets, on the masters of a cluster. NoRoute for an unknown cluster.

        `with_slaves`: on its slaves, too, which otherwise follow their masters.
        """
        check_type("topic", topic, str)
        async with self._requests.within(timeout_s, "delete_on_brokers"):
            if with_slaves:
                by_name = await self._requests.broker_addresses(cluster)
                addresses = [address for by_id in by_name.values() for address in by_id.values()]
            else:
                addresses = list((await self._requests.masters(cluster)).values())
            for address in addresses:
                await self._requests.send(address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic=topic))

    async def delete_on_name_servers(
        self, topic: str, cluster: str | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Delete the routes of a topic to the brokers of a cluster from every name server. None: to all brokers."""
        check_type("topic", topic, str)
        header = TopicHeader(topic=topic, cluster_name=cluster)
        async with self._requests.within(timeout_s, "delete_on_name_servers"):
            name_servers = self._requests.client.routes.name_servers
            await name_servers.request_each(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)

    async def _put(self, address: str, config: TopicConfig) -> None:
        header = CreateTopicHeader(
            topic=config.topic_name,
            default_topic=SystemTopic.AUTO_CREATE,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type.value,
            topic_sys_flag=config.topic_sys_flag,
            order=str(config.order).lower(),
            attributes=_changes(config.attributes),
        )
        await self._requests.send(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    # ---------------------------------------------------------------------------------------------- routes and figures

    async def names(self, *, timeout_s: float | None = None) -> list[str]:
        """Return the names of all topics, in the order of the name server."""
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        async with self._requests.within(timeout_s, "names"):
            body = await self._requests.client.routes.name_servers.request(code)
        with reading_response(code, "a name server"):
            return TopicList.decode(body).topic_list

    async def table(self, address: str, *, timeout_s: float | None = None) -> TopicConfigSerializeWrapper:
        """Return the topics of one broker by name, with the version of the table."""
        async with self._requests.within(timeout_s, "table"):
            return await self._requests.read(TopicConfigSerializeWrapper, address, RequestCode.GET_ALL_TOPIC_CONFIG)

    async def system_names(self, address: str, *, timeout_s: float | None = None) -> list[str]:
        """Return the names of the topics that a broker made for itself."""
        code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
        async with self._requests.within(timeout_s, "system_names"):
            return (await self._requests.read(TopicList, address, code)).topic_list

    async def route(self, topic: str, *, timeout_s: float | None = None) -> TopicRouteData:
        """Return the queues and addresses of the topic's brokers. NoRoute if no name server has it."""
        check_type("topic", topic, str)
        async with self._requests.within(timeout_s, "route"):
            return await self._route(topic)

    async def queues(self, topic: str, *, timeout_s: float | None = None) -> tuple[MessageQueue, ...]:
        """Return the readable queues of a topic."""
        check_type("topic", topic, str)
        async with self._requests.within(timeout_s, "queues"):
            return (await self._requests.client.routes.reload(topic)).subscribe_queues

    async def offsets(self, topic: str, *, timeout_s: float | None = None) -> dict[MessageQueue, TopicOffset]:
        """Return the first and the next offset of each queue, and the time of its last message, in order of queues."""
        return dict(sorted((await self.statistics(topic, timeout_s=timeout_s)).offset_table.items()))

    async def groups(self, topic: str, *, timeout_s: float | None = None) -> list[str]:
        """Return the groups that consume the topic, or did, as the first broker of its route lists them."""
        check_type("topic", topic, str)
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        async with self._requests.within(timeout_s, "groups"):
            address = (await self._requests.addresses_of(topic))[0]
            return (await self._requests.read(GroupList, address, code, TopicHeader(topic=topic))).group_list

    async def statistics(
        self, topic: str, *, route_of: str | None = None, timeout_s: float | None = None
    ) -> TopicStatsTable:
        """Return the first and the next offset of each queue with the time of its last message, and the rate of sends.

        `route_of`: the topic whose route names the brokers, for topics without their own route (light message queues).
        """
        check_type("topic", topic, str)
        total = TopicStatsTable()
        code, header = RequestCode.GET_TOPIC_STATS_INFO, TopicHeader(topic=topic)
        async with self._requests.within(timeout_s, "statistics"):
            for address in await self._requests.addresses_of(topic if route_of is None else route_of):
                stats = await self._requests.read(TopicStatsTable, address, code, header)
                total.offset_table |= stats.offset_table
                total.topic_put_tps += stats.topic_put_tps
        return total

    async def clusters(self, topic: str, *, timeout_s: float | None = None) -> list[str]:
        """Return the clusters that contain the first broker of the topic's route."""
        check_type("topic", topic, str)
        async with self._requests.within(timeout_s, "clusters"):
            table = (await self._requests.cluster()).cluster_addr_table
            route = await self._route(topic)
        if not route.broker_datas:
            raise NoRoute(f"the route of topic {topic} names no broker. Check its registration.", topic=topic)
        first = route.broker_datas[0].broker_name
        return [cluster for cluster, names in table.items() if first in names]

    async def _route(self, topic: str) -> TopicRouteData:
        """Return a route whose names, addresses and numbers are valid. NoRoute or InvalidResponse."""
        client = self._requests.client
        route = await client.routes.request(topic)
        TopicRoute.of(topic, route, None, client.settings.max_route_queues)
        return route


def _changes(attributes: dict[str, str]) -> str:
    """Return attributes as `+name=value,-name`."""
    signed = ((name if name.startswith(_SIGNS) else f"+{name}", value) for name, value in attributes.items())
    return ",".join(f"{name}={value}" if value else name for name, value in signed)
