"""The sections of a broker that serve consumers and operators, over a real store: for tests of processors.

    parts = BrokerParts(directory)
    peer = parts.peer()
    response = peer.call(pull(...))

The test advances clock and timers; peers are real connections without sockets. The sections are those of
`broker/app/sections`, as in a broker.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from skylarkmq.broker.access.message_rights import AllMessages
from skylarkmq.broker.app.sections.administration import Administration, AdministrationConfig, Figures, Waits
from skylarkmq.broker.app.sections.consumption import Consumption, ConsumptionConfig
from skylarkmq.broker.app.sections.monitoring import counters_of
from skylarkmq.broker.app.sections.tables import Tables, TablesConfig
from skylarkmq.broker.counters.delivery_counters import DeliveryCounters
from skylarkmq.broker.counters.put_latency import PutLatencyStatistics
from skylarkmq.broker.counters.throughput import Throughput
from skylarkmq.broker.delivery.arrivals import Arrivals
from skylarkmq.broker.delivery.calls.client_calls import ClientCalls
from skylarkmq.broker.metadata.consumer_offsets import OffsetsConfig
from skylarkmq.broker.metadata.limits import LimitsConfig
from skylarkmq.broker.metadata.subscription_groups import GroupsConfig
from skylarkmq.broker.metadata.topics import TopicsConfig
from skylarkmq.broker.processors.admin.consume_stats import Identity
from skylarkmq.broker.processors.admin.runtime import RuntimeConfig, StoreTimes
from skylarkmq.broker.processors.consumer.client_manage import ClientManageConfig
from skylarkmq.broker.processors.pull.checks import PullConfig
from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.dispatch import Dispatcher, Processor
from skylarkmq.broker.remoting.selector import Selector
from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.log.append import Append
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.bodies.enums import ConsumeType, MessageModel
from skylarkmq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import PullSysFlag, RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.filters.tag import subscribe
from skylarkmq.protocol.headers.pull import PullMessageHeader
from tests.harness.peer import Peer
from tests.harness.stores import Clock, config_of, message
from tests.harness.timers import SteppedLoop, Timers

TOPIC = "T"
GROUP = "G"
NO_TIMES = StoreTimes(PutLatencyStatistics((0,) * 13, 0), 0)
POOLS_AT_S = 2.5


class BrokerParts:
    """The parts; topic `T` has 4 queues. Each setting goes to every part that has it."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.clock = Clock()
        self.has_master = False
        self.timers = Timers()
        self.pool = Pool("pull", 100_000)
        self.arrivals = Arrivals(self.timers, self.pool)
        self.store = MessageStore(config_of(root, **_of(StoreConfig, settings)), self.clock, self.arrivals.arrived)
        self.store.load()
        self.store.start()
        self.tables = tables = Tables(
            TablesConfig(
                config_part(LimitsConfig, settings),
                config_part(TopicsConfig, settings, cluster_name="C", broker_name="b"),
                config_part(GroupsConfig, settings),
                OffsetsConfig(),
            ),
            self.clock,
        )
        self.limits, self.topics, self.groups = tables.limits, tables.topics, tables.groups
        self.offsets, self.sessions = tables.offsets, tables.sessions
        self.topics.load(None)
        self.topics.update(TopicConfig(TOPIC, 4, 4))
        self.groups.load(None)
        config = ConsumptionConfig(
            config_part(PullConfig, settings, broker_ip="10.0.0.1"),
            config_part(ClientManageConfig, settings),
            32,
            60_000,
        )
        self.loop = SteppedLoop(self.clock)
        self.dispatcher = Dispatcher()
        self.selector = Selector(self.dispatcher, RemotingConfig())
        consumption = Consumption(
            config,
            tables,
            self.store,
            self.arrivals,
            DeliveryCounters(),
            self.dispatcher.latencies,
            settings.get("rights", AllMessages()),
            self.loop,
            self.clock,
            lambda: self.has_master,
        )
        consumption.register(self.dispatcher, defaultdict(lambda: self.pool))
        consumption.attach(self.selector)
        self.pulls, self.clients, self.notices = consumption.pulls, consumption.clients, consumption.notices
        self._administer(root, settings)

    def _administer(self, root: Path, settings: dict[str, Any]) -> None:
        """Make the section of operators. Changes wait for `disk`; `waits` has what they waited for."""
        self.calls = ClientCalls()
        self.sent_back = DeliveryCounters()
        self.traffic = Throughput(lambda: counters_of(self.store, self.pulls))
        self.times = NO_TIMES
        self.disk = asyncio.Event()
        self.disk.set()
        self.waits: list[str] = []
        runtime = config_part(RuntimeConfig, {"boot_ms": self.clock.now_ms} | settings, store_path=root)
        self.administration = Administration(
            AdministrationConfig("C", Identity("b", "h:1"), runtime, settings.get("resets_by_broker", True)),
            self.tables,
            self.store,
            self.arrivals,
            self.pulls.deliveries,
            self.calls,
            settings.get("rights", AllMessages()),
            Waits(*(partial(self.wait_for, name) for name in Waits._fields)),
            Figures(
                self.traffic,
                self.sent_back,
                lambda: [pool.statistics(POOLS_AT_S) for pool in self.dispatcher.pools()],
                lambda: self.times,
            ),
            self.clock,
            lambda: self.clock.now_ms - settings.get("clocks_apart_ms", 0),
        )
        self.administration.register(self.dispatcher, defaultdict(lambda: self.pool))
        self.administration.attach()
        self.windows = self.administration.windows

    async def wait_for(self, name: str) -> None:
        """Wait until a table is saved, or topics are announced."""
        await self.disk.wait()
        self.waits.append(name)

    def serve(self, handlers: dict[RequestCode, Processor]) -> None:
        """Register the handlers of another processor."""
        for code, handler in handlers.items():
            self.dispatcher.register([code], handler, self.pool)

    def peer(self, port: int = 4321) -> Peer:
        """Return another client."""
        return Peer(self.dispatcher, self.selector, ("127.0.0.9", port))

    def put(self, *bodies: bytes, tag: str = "", topic: str = TOPIC, queue_id: int = 0) -> list[Append]:
        """Store messages in one event-loop iteration."""
        appends = [message(body, topic, queue_id, tag) for body in bodies]
        for append in appends:
            self.store.put(append)
        self.store.commit()
        return appends


@contextmanager
def broker_parts(root: Path, **settings: Any) -> Iterator[BrokerParts]:
    """Make parts; stop their store on exit."""
    parts = BrokerParts(root, **settings)
    try:
        yield parts
    finally:
        parts.store.close()


def config_part(config: type[msgspec.Struct], settings: dict[str, Any], **fixed: Any) -> Any:
    """Return a part's configuration with the settings of the test that it has."""
    return config(**fixed, **_of(config, settings))


def _of(config: type[msgspec.Struct], settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that are fields of a configuration."""
    names = {field.name for field in msgspec.structs.fields(config)}
    return {name: value for name, value in settings.items() if name in names}


def pull(*, suspend_ms: int | None = None, code: int = RequestCode.PULL_MESSAGE, **fields: Any) -> RemotingCommand:
    """Return a pull of queue 0 from offset 0 with its own subscription; `suspend_ms` allows it to be parked."""
    flags = fields.pop("sys_flag", PullSysFlag.SUBSCRIPTION)
    if suspend_ms is not None:
        flags |= PullSysFlag.SUSPEND
    header = PullMessageHeader(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=flags,
        commit_offset=0,
        suspend_timeout_millis=suspend_ms or 0,
        sub_version=0,
        subscription="*",
    )
    return RemotingCommand.request(code, msgspec.structs.replace(header, **fields))


def consumer(
    *subscriptions: SubscriptionData,
    group: str = GROUP,
    model: MessageModel = MessageModel.CLUSTERING,
    kind: ConsumeType = ConsumeType.CONSUME_PASSIVELY,
) -> ConsumerData:
    """Return a consumer group as a heartbeat describes it; by default it subscribes to topic `T`."""
    chosen = list(subscriptions) or [subscribe(TOPIC, "*", 1)]
    return ConsumerData(group_name=group, consume_type=kind, message_model=model, subscription_data_set=chosen)


def heartbeat(
    *consumers: ConsumerData, client_id: str = "c1", producers: tuple[str, ...] = (), **fields: Any
) -> RemotingCommand:
    """Return a heartbeat of one client."""
    body = HeartbeatData(client_id, [ProducerData(name) for name in producers], list(consumers), **fields)
    return RemotingCommand.request(RequestCode.HEART_BEAT, body=body.encode())
