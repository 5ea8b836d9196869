"""The requests of a name server: brokers tell, clients and operators ask.

    103 104 322 904          brokers: register, unregister, compare versions, give a sign of life
    105                      clients: who serves this topic
    106 206 224 216          operators: the cluster, topics, topics of a cluster, delete a topic
    304 311 312 313          operators: names of clusters and brokers, topics of units
    205 327                  operators: take a broker's topics out of the writable ones, and back
    100 101 102 219          operators: texts by namespace and key

Reads of routes have a pool of their own, as in RocketMQ. A route that is missing is answered 17 with RocketMQ's remark,
whatever the reason; the log says the reason, once a minute for each topic and for a bounded number of topics.
Source: docs/formats.md, "Name server".
"""

import logging
import zlib
from collections.abc import Callable
from functools import partial
from typing import Final

from skylarkmq.broker.namesrv.claims import ClaimError
from skylarkmq.broker.namesrv.config import NamesrvConfig
from skylarkmq.broker.namesrv.kv_config import ORDER_TOPIC_CONFIG, KVConfig
from skylarkmq.broker.namesrv.route_table import HEARTBEAT_TIMEOUT_MS, BrokerAddress, Registration, RouteTable
from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.dispatch import Dispatcher, Processor
from skylarkmq.protocol.bodies.cluster import KVTable, TopicList
from skylarkmq.protocol.bodies.topic import DataVersion, RegisterBrokerBody, TopicConfigSerializeWrapper
from skylarkmq.protocol.codes import FAQ, RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.fields import is_true
from skylarkmq.protocol.headers.namesrv import (
    BrokerHeader,
    ClusterHeader,
    DataVersionResponseHeader,
    KVConfigHeader,
    KVValueResponseHeader,
    RegisterBrokerHeader,
    RegisterBrokerResponseHeader,
)
from skylarkmq.protocol.headers.stats import AddedTopicsHeader, BrokerNameHeader, WipedTopicsHeader
from skylarkmq.protocol.headers.topic import TopicHeader

ROUTE_POOL_CAPACITY: Final = 50_000
DEFAULT_POOL_CAPACITY: Final = 10_000

FILTER_SERVERS_VERSION: Final = 37
"""From this version ordinal on a registration is a RegisterBrokerBody, before that the topic table alone."""
STANDARD_JSON_VERSION: Final = 401
"""From this version ordinal (V4_9_4) on a client reads routes with a strict JSON parser."""

UNIT: Final = 1
UNIT_SUB: Final = 2
"""Bits of a topic's system flag."""
CRC_MASK: Final = 0x7FFF_FFFF
MISSES_FORGOTTEN_AFTER_MS: Final = 60_000
MISSES_LOGGED: Final = 100
REFUSAL_LOGGED_EVERY_MS: Final = 1_000

log = logging.getLogger(__name__)


class NamesrvProcessors:
    """Requests in terms of the route table and the KV configuration; `now_ms` is a clock that never goes back."""

    def __init__(
        self, config: NamesrvConfig, routes: RouteTable[Connection], kv: KVConfig, now_ms: Callable[[], int]
    ) -> None:
        self._config = config
        self._routes = routes
        self._kv = kv
        self._now_ms = now_ms
        self._serves_routes_from_ms = now_ms() + config.wait_seconds_for_service * 1000
        self.pool = Pool("default", DEFAULT_POOL_CAPACITY)
        """Where everything but routes is asked for."""
        self._misses: set[str] = set()
        self._misses_since_ms = now_ms()
        self._next_refusal_ms = now_ms()
        self._unlogged = 0

    def __repr__(self) -> str:
        return f"<NamesrvProcessors {self._routes!r} {self._kv!r}>"

    def configure(self, config: NamesrvConfig) -> None:
        """Answer by other settings from now on."""
        self._config = config

    def register(self, dispatcher: Dispatcher) -> None:
        """Enter every request into the processor table."""
        dispatcher.register([RequestCode.GET_ROUTEINFO_BY_TOPIC], self.route, Pool("route", ROUTE_POOL_CAPACITY))
        table: dict[RequestCode, Processor] = {
            RequestCode.REGISTER_BROKER: self.register_broker,
            RequestCode.UNREGISTER_BROKER: self.unregister_broker,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.BROKER_HEARTBEAT: self.heartbeat,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.cluster_info,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.topics_of_cluster,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: partial(self.flagged_topics, UNIT, 0),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: partial(self.flagged_topics, UNIT_SUB, 0),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: partial(self.flagged_topics, UNIT_SUB, UNIT),
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_permission,
            RequestCode.PUT_KV_CONFIG: self.put_kv,
            RequestCode.GET_KV_CONFIG: self.get_kv,
            RequestCode.DELETE_KV_CONFIG: self.delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.kv_namespace,
        }
        for code, processor in table.items():
            dispatcher.register([code], processor, self.pool)

    # --------------------------------------------------------------------------------------------------------- brokers

    def register_broker(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """103: a broker tells its addresses and topics; a slave hears of its master, all of the ordered topics."""
        header = command.header(RegisterBrokerHeader)
        if header.body_crc32 and zlib.crc32(command.body) & CRC_MASK != header.body_crc32:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        topics = _topics_told(command, compressed=is_true(header.compressed))
        broker = BrokerAddress(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr)
        known = self._routes.data_version(broker.cluster, broker.address) is not None
        registration = Registration(
            broker=broker,
            data_version=topics.data_version,
            topics=topics.topic_config_table,
            ha_address=header.ha_server_addr,
            heartbeat_timeout_ms=header.heartbeat_timeout_millis or HEARTBEAT_TIMEOUT_MS,
            enable_acting_master=is_true(header.enable_acting_master),
            zone=header.zone_name,
            host=connection.host,
        )
        if self._routes.is_ignored(registration):
            self._log_refusal("ignored", broker, connection, "another address has a newer stateVersion")
        try:
            master = self._routes.register(registration, connection, self._now_ms())
        except RequestError as error:
            self._log_refusal("refused", broker, connection, _why(error))
            raise
        if not known:
            log.info("broker registered %s topics=%d", told(broker), len(topics.topic_config_table))
        answer = RegisterBrokerResponseHeader()
        if master is not None:
            answer = RegisterBrokerResponseHeader(ha_server_addr=master.ha_address, master_addr=master.address)
        return RemotingCommand.response(ext=answer, body=self._ordered_topics())

    def _ordered_topics(self) -> bytes:
        values = self._kv.namespace(ORDER_TOPIC_CONFIG)
        if values is None or not self._config.return_order_topic_config_to_broker:
            return b""
        return KVTable(dict(values)).encode()

    def _log_refusal(self, outcome: str, broker: BrokerAddress, connection: Connection, reason: str) -> None:
        """Log a registration that changed nothing, with both addresses; at most one line a second."""
        now_ms = self._now_ms()
        if now_ms < self._next_refusal_ms:
            self._unlogged += 1
            return
        log.warning(
            "broker %s %s peer=%s reason=%s unlogged=%d",
            *(outcome, told(broker), connection.peer, reason, self._unlogged),
        )
        self._next_refusal_ms, self._unlogged = now_ms + REFUSAL_LOGGED_EVERY_MS, 0

    def unregister_broker(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """104: a broker stops."""
        broker = _broker_told(command)
        try:
            self._routes.unregister_from(connection.host, broker)
        except ClaimError as error:
            self._log_refusal("not unregistered", broker, connection, _why(error))
            raise
        log.info("broker unregistered %s", told(broker))
        return RemotingCommand.response()

    def query_data_version(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """322: has this broker news? Its stored DataVersion goes back, and it counts as a sign of life."""
        broker = _broker_told(command)
        version = DataVersion.decode_request(command.body)
        known = self._routes.data_version(broker.cluster, broker.address)
        self._routes.heard_of(broker.cluster, broker.address, self._now_ms())
        ext = DataVersionResponseHeader(changed=known != version)
        return RemotingCommand.response(ext=ext, body=b"" if known is None else known.encode())

    def heartbeat(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """904: a sign of life, nothing more."""
        broker = _broker_told(command)
        self._routes.heard_of(broker.cluster, broker.address, self._now_ms())
        return RemotingCommand.response()

    # --------------------------------------------------------------------------------------------------------- clients

    def route(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """105: who serves a topic."""
        header = command.header(TopicHeader)
        topic = header.topic
        if self._config.need_wait_for_service and self._now_ms() < self._serves_routes_from_ms:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "name server not ready")
        route = self._routes.route(topic)
        if route is None:
            self._log_miss(topic, connection)
            remark = f"No topic route info in name server for the topic: {topic}{FAQ}"
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, remark)
        if self._config.order_message_enable:
            route.order_topic_conf = self._kv.get(ORDER_TOPIC_CONFIG, topic)
        standard = command.version >= STANDARD_JSON_VERSION or is_true(header.accept_standard_json_only)
        return RemotingCommand.response(body=route.encode_standard() if standard else route.encode())

    def _log_miss(self, topic: str, connection: Connection) -> None:
        now_ms = self._now_ms()
        if now_ms - self._misses_since_ms >= MISSES_FORGOTTEN_AFTER_MS:
            self._misses.clear()
            self._misses_since_ms = now_ms
        if topic not in self._misses and len(self._misses) < MISSES_LOGGED:
            self._misses.add(topic)
            log.info("no route topic=%r peer=%s reason=%s", topic, connection.peer, self._routes.why_no_route(topic))

    # ------------------------------------------------------------------------------------------------------- operators

    def cluster_info(self, _connection: Connection, _command: RemotingCommand) -> RemotingCommand:
        """106: all brokers, with bare numeric keys whoever asks."""
        return RemotingCommand.response(body=self._routes.cluster_info().encode())

    def topics(self, _connection: Connection, _command: RemotingCommand) -> RemotingCommand:
        """206: all topics."""
        if not self._config.enable_all_topic_list:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "disable")
        return RemotingCommand.response(body=TopicList(self._routes.topics()).encode())

    def topics_of_cluster(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """224: the topics of one cluster."""
        if not self._config.enable_topic_list:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "disable")
        cluster = command.header(ClusterHeader).cluster
        return RemotingCommand.response(body=TopicList(self._routes.topics_of_cluster(cluster)).encode())

    def delete_topic(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """216: forget a topic, in one cluster or in all; always a success."""
        header = command.header(TopicHeader)
        self._routes.delete_topic(header.topic, header.cluster_name or None)
        log.info("topic deleted topic=%r cluster=%s peer=%s", header.topic, header.cluster_name, connection.peer)
        return RemotingCommand.response()

    def system_topics(self, _connection: Connection, _command: RemotingCommand) -> RemotingCommand:
        """304: clusters and brokers by name, and where one of the brokers is, to be asked for its own."""
        return RemotingCommand.response(body=TopicList(self._routes.names(), self._routes.any_address()).encode())

    def flagged_topics(
        self, wanted: int, unwanted: int, _connection: Connection, _command: RemotingCommand
    ) -> RemotingCommand:
        """311, 312, 313: topics with these bits of their system flag, and without those."""
        if not self._config.enable_topic_list:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "disable")
        return RemotingCommand.response(body=TopicList(self._routes.topics_flagged(wanted, unwanted)).encode())

    def wipe_write_permission(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """205: producers go elsewhere, consumers stay."""
        return RemotingCommand.response(ext=WipedTopicsHeader(self._permit(connection, command, allowed=False)))

    def add_write_permission(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """327: and they come back."""
        return RemotingCommand.response(ext=AddedTopicsHeader(self._permit(connection, command, allowed=True)))

    def _permit(self, connection: Connection, command: RemotingCommand, *, allowed: bool) -> int:
        name = command.header(BrokerNameHeader).broker_name
        topics = self._routes.permit_writing(name, allowed=allowed)
        log.info("routes changed broker=%r writable=%s topics=%d peer=%s", name, allowed, topics, connection.peer)
        return topics

    async def put_kv(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """100: set a text."""
        header = command.header(KVConfigHeader)
        if header.namespace is None or header.key is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        if header.value is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "value is null")
        await self._kv.put(header.namespace, header.key, header.value)
        log.info("configuration set namespace=%r key=%r peer=%s", header.namespace, header.key, connection.peer)
        return RemotingCommand.response()

    async def delete_kv(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """102: remove a text, which need not be there."""
        header = command.header(KVConfigHeader)
        if header.namespace is None or header.key is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        await self._kv.delete(header.namespace, header.key)
        log.info("configuration removed namespace=%r key=%r peer=%s", header.namespace, header.key, connection.peer)
        return RemotingCommand.response()

    def get_kv(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """101: one text."""
        header = command.header(KVConfigHeader)
        value = self._kv.get(header.namespace or "", header.key or "")
        if value is None:
            remark = f"No config item, Namespace: {_java(header.namespace)} Key: {_java(header.key)}"
            return RemotingCommand.response(ResponseCode.QUERY_NOT_FOUND, remark, KVValueResponseHeader())
        return RemotingCommand.response(ext=KVValueResponseHeader(value=value))

    def kv_namespace(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """219: all texts of a namespace."""
        header = command.header(KVConfigHeader)
        values = self._kv.namespace(header.namespace or "")
        if values is None:
            remark = f"No config item, Namespace: {_java(header.namespace)}"
            raise RequestError(ResponseCode.QUERY_NOT_FOUND, remark)
        return RemotingCommand.response(body=KVTable(dict(values)).encode())


def told(broker: BrokerAddress) -> str:
    """A broker as the log names it."""
    return f"broker={broker.broker_name} id={broker.broker_id} cluster={broker.cluster} address={broker.address}"


def _why(error: RequestError) -> str:
    """The reason of a refusal for the log: that of a claim names the holder, which its remark does not."""
    return f"held by {error.held_by}" if isinstance(error, ClaimError) else error.remark


def _broker_told(command: RemotingCommand) -> BrokerAddress:
    header = command.header(BrokerHeader)
    return BrokerAddress(header.cluster_name, header.broker_name, header.broker_id or 0, header.broker_addr)


def _topics_told(command: RemotingCommand, *, compressed: bool) -> TopicConfigSerializeWrapper:
    """The topics of a registration; one without a body has none."""
    if not command.body:
        return TopicConfigSerializeWrapper()
    if command.version < FILTER_SERVERS_VERSION:
        return TopicConfigSerializeWrapper.decode_request(command.body)
    decode = RegisterBrokerBody.decode_compressed if compressed else RegisterBrokerBody.decode_request
    return decode(command.body).topic_config_serialize_wrapper


def _java(text: str | None) -> str:
    return "null" if text is None else text
