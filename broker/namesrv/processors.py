"""The requests of a name server, from brokers, clients and operators.

    103 104 322 904          brokers: register, unregister, compare versions, heartbeat
    105                      clients: the route of a topic
    106 206 224 216          operators: the cluster, topics, topics of a cluster, delete a topic
    304 311 312 313          operators: names of clusters and brokers, topics of units
    205 327                  operators: remove and add the write permission of a broker's topics
    100 101 102 219          operators: texts by namespace and key

Requests for routes have their own pool, as in RocketMQ. The response for a missing route is TOPIC_NOT_EXIST (17) with
RocketMQ's remark, regardless of the reason; the reason is logged, once a minute per topic and for a limited number of
topics.
Source: docs/reference/wire.md, "Name server".
"""

import logging
import zlib
from collections.abc import Callable
from functools import partial
from typing import Final

from skylarkmq.broker.namesrv.config import NamesrvConfig
from skylarkmq.broker.namesrv.kv_config import ORDER_TOPIC_CONFIG, KVConfig
from skylarkmq.broker.namesrv.registration_conflicts import ConflictError
from skylarkmq.broker.namesrv.route_table import HEARTBEAT_TIMEOUT_MS, BrokerAddress, Registration, RouteTable
from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.dispatch import Dispatcher, Processor
from skylarkmq.broker.remoting.request_source import ClientChannel, RequestSource
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
"""From this version ordinal on a registration is a RegisterBrokerBody; before, it is only the topic table."""
STANDARD_JSON_VERSION: Final = 401
"""From this version ordinal (V4_9_4) on a client reads routes with a strict JSON parser."""

UNIT: Final = 1
UNIT_SUB: Final = 2
"""Bits of a topic's system flag."""
CRC_MASK: Final = 0x7FFF_FFFF
MISSES_RESET_MS: Final = 60_000
MAX_LOGGED_MISSES: Final = 100
REFUSAL_LOG_INTERVAL_MS: Final = 1_000

log = logging.getLogger(__name__)


class NamesrvProcessors:
    """Processors on the route table and the KV configuration; `now_ms` is a clock that never goes back."""

    def __init__(
        self, config: NamesrvConfig, routes: RouteTable[ClientChannel], kv: KVConfig, now_ms: Callable[[], int]
    ) -> None:
        self._config = config
        self._routes = routes
        self._kv = kv
        self._now_ms = now_ms
        self._serves_routes_from_ms = now_ms() + config.wait_seconds_for_service * 1000
        self.pool = Pool("default", DEFAULT_POOL_CAPACITY)
        """The pool of all requests except those for routes."""
        self._route_pool = Pool("route", ROUTE_POOL_CAPACITY)
        self._misses: set[str] = set()
        self._misses_since_ms = now_ms()
        self._next_refusal_ms = now_ms()
        self._unlogged = 0

    def __repr__(self) -> str:
        return f"<NamesrvProcessors {self._routes!r} {self._kv!r}>"

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Return the pools of all requests."""
        return self.pool, self._route_pool

    def configure(self, config: NamesrvConfig) -> None:
        """Use other settings from now on."""
        self._config = config

    def register(self, dispatcher: Dispatcher) -> None:
        """Register every request in the processor table."""
        dispatcher.register([RequestCode.GET_ROUTEINFO_BY_TOPIC], self.route, self._route_pool)
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

    # ---------------------------------------------------------------------------------------------------------- brokers

    def register_broker(self, source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """REGISTER_BROKER (103): store a broker's address and topics. A slave gets its master's address, all brokers
        get the ordered topics."""
        header = command.header(RegisterBrokerHeader)
        if header.body_crc32 and zlib.crc32(command.body) & CRC_MASK != header.body_crc32:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        topics = _topics_of(command, compressed=is_true(header.compressed))
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
            host=source.host,
        )
        if self._routes.is_ignored(registration):
            self._log_refusal("ignored", broker, source, "another address has a newer stateVersion")
        try:
            master = self._routes.register(registration, source.client, self._now_ms())
        except RequestError as error:
            self._log_refusal("refused", broker, source, _why(error))
            raise
        if not known:
            log.info("broker registered %s topics=%d", described(broker), len(topics.topic_config_table))
        response = RegisterBrokerResponseHeader()
        if master is not None:
            response = RegisterBrokerResponseHeader(ha_server_addr=master.ha_address, master_addr=master.address)
        return RemotingCommand.response(ext=response, body=self._ordered_topics())

    def _ordered_topics(self) -> bytes:
        values = self._kv.namespace(ORDER_TOPIC_CONFIG)
        if values is None or not self._config.return_order_topic_config_to_broker:
            return b""
        return KVTable(dict(values)).encode()

    def _log_refusal(self, outcome: str, broker: BrokerAddress, source: RequestSource, reason: str) -> None:
        """Log a registration without effect, with both addresses; at most one line per second."""
        now_ms = self._now_ms()
        if now_ms < self._next_refusal_ms:
            self._unlogged += 1
            return
        log.warning(
            "broker %s %s peer=%s reason=%s unlogged=%d",
            outcome,
            described(broker),
            source.peer,
            reason,
            self._unlogged,
        )
        self._next_refusal_ms, self._unlogged = now_ms + REFUSAL_LOG_INTERVAL_MS, 0

    def unregister_broker(self, source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """UNREGISTER_BROKER (104): remove a broker that stops."""
        broker = _broker_of(command)
        try:
            self._routes.unregister_from(source.host, broker)
        except ConflictError as error:
            self._log_refusal("not unregistered", broker, source, _why(error))
            raise
        log.info("broker unregistered %s", described(broker))
        return RemotingCommand.response()

    def query_data_version(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """QUERY_DATA_VERSION (322): compare a broker's DataVersion with the stored one, which is returned; counts as
        heartbeat."""
        broker = _broker_of(command)
        version = DataVersion.decode_request(command.body)
        known = self._routes.data_version(broker.cluster, broker.address)
        self._routes.record_heartbeat(broker.cluster, broker.address, self._now_ms())
        ext = DataVersionResponseHeader(changed=known != version)
        return RemotingCommand.response(ext=ext, body=b"" if known is None else known.encode())

    def heartbeat(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """BROKER_HEARTBEAT (904): record a heartbeat."""
        broker = _broker_of(command)
        self._routes.record_heartbeat(broker.cluster, broker.address, self._now_ms())
        return RemotingCommand.response()

    # ---------------------------------------------------------------------------------------------------------- clients

    def route(self, source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """GET_ROUTEINFO_BY_TOPIC (105): return the brokers and queues of a topic."""
        header = command.header(TopicHeader)
        topic = header.topic
        if self._config.need_wait_for_service and self._now_ms() < self._serves_routes_from_ms:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "name server not ready")
        route = self._routes.route(topic)
        if route is None:
            self._log_miss(topic, source)
            remark = f"No topic route info in name server for the topic: {topic}{FAQ}"
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, remark)
        if self._config.order_message_enable:
            route.order_topic_conf = self._kv.get(ORDER_TOPIC_CONFIG, topic)
        standard = command.version >= STANDARD_JSON_VERSION or is_true(header.accept_standard_json_only)
        return RemotingCommand.response(body=route.encode_standard() if standard else route.encode())

    def _log_miss(self, topic: str, source: RequestSource) -> None:
        now_ms = self._now_ms()
        if now_ms - self._misses_since_ms >= MISSES_RESET_MS:
            self._misses.clear()
            self._misses_since_ms = now_ms
        if topic not in self._misses and len(self._misses) < MAX_LOGGED_MISSES:
            self._misses.add(topic)
            log.info(
                "no route topic=%r peer=%s reason=%s", topic, source.peer, self._routes.missing_route_reason(topic)
            )

    # -------------------------------------------------------------------------------------------------------- operators

    def cluster_info(self, _source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_CLUSTER_INFO (106): return all brokers, with unquoted numeric keys for all clients."""
        return RemotingCommand.response(body=self._routes.cluster_info().encode())

    def topics(self, _source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206): return all topics."""
        if not self._config.enable_all_topic_list:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "disable")
        return RemotingCommand.response(body=TopicList(self._routes.topics()).encode())

    def topics_of_cluster(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """GET_TOPICS_BY_CLUSTER (224): return the topics of a cluster."""
        if not self._config.enable_topic_list:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "disable")
        cluster = command.header(ClusterHeader).cluster
        return RemotingCommand.response(body=TopicList(self._routes.topics_of_cluster(cluster)).encode())

    def delete_topic(self, source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """DELETE_TOPIC_IN_NAMESRV (216): remove a topic, in one cluster or in all; always succeeds."""
        header = command.header(TopicHeader)
        self._routes.delete_topic(header.topic, header.cluster_name or None)
        log.info("topic deleted topic=%r cluster=%s peer=%s", header.topic, header.cluster_name, source.peer)
        return RemotingCommand.response()

    def system_topics(self, _source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS (304): return the names of clusters and brokers, and the address of one broker,
        from which the client requests its list."""
        return RemotingCommand.response(body=TopicList(self._routes.names(), self._routes.any_address()).encode())

    def flagged_topics(
        self, wanted: int, unwanted: int, _source: RequestSource, _command: RemotingCommand
    ) -> RemotingCommand:
        """GET_UNIT_TOPIC_LIST (311), GET_HAS_UNIT_SUB_TOPIC_LIST (312), GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST (313):
        return the topics whose system flag has the bits `wanted` and not `unwanted`."""
        if not self._config.enable_topic_list:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "disable")
        return RemotingCommand.response(body=TopicList(self._routes.topics_flagged(wanted, unwanted)).encode())

    def wipe_write_permission(self, source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """WIPE_WRITE_PERM_OF_BROKER (205): remove the write permission; producers use other brokers, consumers stay."""
        return RemotingCommand.response(ext=WipedTopicsHeader(self._permit(source, command, allowed=False)))

    def add_write_permission(self, source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """ADD_WRITE_PERM_OF_BROKER (327): restore the write permission."""
        return RemotingCommand.response(ext=AddedTopicsHeader(self._permit(source, command, allowed=True)))

    def _permit(self, source: RequestSource, command: RemotingCommand, *, allowed: bool) -> int:
        name = command.header(BrokerNameHeader).broker_name
        topics = self._routes.permit_writing(name, allowed=allowed)
        log.info("routes changed broker=%r writable=%s topics=%d peer=%s", name, allowed, topics, source.peer)
        return topics

    async def put_kv(self, source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """PUT_KV_CONFIG (100): set a text."""
        header = command.header(KVConfigHeader)
        if header.namespace is None or header.key is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        if header.value is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "value is null")
        await self._kv.put(header.namespace, header.key, header.value)
        log.info("configuration set namespace=%r key=%r peer=%s", header.namespace, header.key, source.peer)
        return RemotingCommand.response()

    async def delete_kv(self, source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """DELETE_KV_CONFIG (102): remove a text, which may be missing."""
        header = command.header(KVConfigHeader)
        if header.namespace is None or header.key is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        await self._kv.delete(header.namespace, header.key)
        log.info("configuration removed namespace=%r key=%r peer=%s", header.namespace, header.key, source.peer)
        return RemotingCommand.response()

    def get_kv(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """GET_KV_CONFIG (101): return a text."""
        header = command.header(KVConfigHeader)
        value = self._kv.get(header.namespace or "", header.key or "")
        if value is None:
            remark = f"No config item, Namespace: {_java(header.namespace)} Key: {_java(header.key)}"
            return RemotingCommand.response(ResponseCode.QUERY_NOT_FOUND, remark, KVValueResponseHeader())
        return RemotingCommand.response(ext=KVValueResponseHeader(value=value))

    def kv_namespace(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """GET_KVLIST_BY_NAMESPACE (219): return all texts of a namespace."""
        header = command.header(KVConfigHeader)
        values = self._kv.namespace(header.namespace or "")
        if values is None:
            remark = f"No config item, Namespace: {_java(header.namespace)}"
            raise RequestError(ResponseCode.QUERY_NOT_FOUND, remark)
        return RemotingCommand.response(body=KVTable(dict(values)).encode())


def described(broker: BrokerAddress) -> str:
    """Return a broker as it appears in the log."""
    return f"broker={broker.broker_name} id={broker.broker_id} cluster={broker.cluster} address={broker.address}"


def _why(error: RequestError) -> str:
    """Return the reason of a refusal for the log; for a conflict it names the holder, which the remark does not."""
    return f"held by {error.holder}" if isinstance(error, ConflictError) else error.remark


def _broker_of(command: RemotingCommand) -> BrokerAddress:
    header = command.header(BrokerHeader)
    return BrokerAddress(header.cluster_name, header.broker_name, header.broker_id or 0, header.broker_addr)


def _topics_of(command: RemotingCommand, *, compressed: bool) -> TopicConfigSerializeWrapper:
    """Return the topics of a registration; none if it has no body."""
    if not command.body:
        return TopicConfigSerializeWrapper()
    if command.version < FILTER_SERVERS_VERSION:
        return TopicConfigSerializeWrapper.decode_request(command.body)
    decode = RegisterBrokerBody.decode_compressed if compressed else RegisterBrokerBody.decode_request
    return decode(command.body).topic_config_serialize_wrapper


def _java(text: str | None) -> str:
    return "null" if text is None else text
