"""The requests of producers: sends with their checks and responses, and backpressure while the disk is too slow."""

import os
import random
from collections.abc import Callable
from typing import NamedTuple

from skylarkmq.broker.access.quota_refusals import Refusals
from skylarkmq.broker.app.sections.tables import Tables
from skylarkmq.broker.base.clocks import Clock
from skylarkmq.broker.config.sections import DaemonConfig
from skylarkmq.broker.counters.put_latency import PutLatency
from skylarkmq.broker.delivery.deferral import Deferral
from skylarkmq.broker.processors.send.checks import SendChecks, SendConfig
from skylarkmq.broker.processors.send.disk_backpressure import SendBackpressure
from skylarkmq.broker.processors.send.messages import SendMessages
from skylarkmq.broker.processors.send.processor import SendProcessor
from skylarkmq.broker.processors.send.response import SendResponses
from skylarkmq.broker.processors.send.retention import TopicRetention
from skylarkmq.broker.processors.send.stored_properties import PropertyCompletion
from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.remoting.selector import Selector
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.message_id import UniqueIds


class ProductionConfig(NamedTuple):
    """Settings of production."""

    send: SendConfig
    max_message_size: int  # bytes
    cluster_name: str
    broker_name: str
    region_id: str
    trace_on: bool
    store_host: bytes


class Production:
    """The requests of producers. `attach` makes `backpressure`.

    `is_orderly`: whether a group consumes in order; `new_unique_key` returns a key for a message without one; `now_ms`
    returns Unix time; `refusals` counts refusals by quotas.
    """

    def __init__(
        self,
        config: ProductionConfig,
        tables: Tables,
        store: MessageStore,
        deferral: Deferral,
        put_latency: PutLatency,
        pool: Pool,
        is_orderly: Callable[[str], bool],
        new_unique_key: Callable[[], str],
        now_ms: Clock,
        refusals: Refusals,
    ) -> None:
        self._store = store
        self._pool = pool
        completion = PropertyCompletion(config.cluster_name, new_unique_key)
        retention = TopicRetention(store.stored_bytes.of, refusals)
        self.checks = SendChecks(config.send, tables.topics, tables.groups, is_orderly, now_ms, retention)
        self.messages = SendMessages(completion, config.max_message_size, deferral.defer, now_ms, deferral.defer_fast)
        self.responses = SendResponses(
            config.region_id,
            trace_on=config.trace_on,
            store_host=config.store_host,
            broker_name=config.broker_name,
        )
        self.sends = SendProcessor(self.checks, self.messages, store, self.responses, pool, put_latency)
        self.backpressure: SendBackpressure

    def __repr__(self) -> str:
        return f"<Production {self.sends!r}>"

    def register(self, dispatcher: Dispatcher) -> None:
        """Register the processor of sends, which writes at the end of a batch, and dispatches after the responses."""
        for code, handler in self.sends.handlers().items():
            dispatcher.register([code], handler, self._pool)
        for code, run_handler in self.sends.run_handlers().items():
            dispatcher.register_run([code], run_handler, self._pool)
        dispatcher.at_run_end(self.sends.end_run)
        dispatcher.at_batch_end(self.sends.finish_iteration)
        dispatcher.after_responses(self.sends.run_after_responses)

    def attach(self, dispatcher: Dispatcher, selector: Selector) -> None:
        """Send responses when the store has decided, and pause producers while the flush is too far behind."""
        self._store.flush.on_settled = selector.batch.flush_responses
        resume_reads = selector.registry.resume_paused_reads
        self.backpressure = SendBackpressure(self._store, self._pool, dispatcher.reopen, resume_reads)


def production_config(config: DaemonConfig) -> ProductionConfig:
    """Return the settings of production."""
    broker = config.broker
    return ProductionConfig(
        send_config(config),
        config.store.max_message_size,
        broker.broker_cluster_name,
        broker.broker_name,
        broker.region_id,
        broker.trace_on,
        config.store.store_host,
    )


def send_config(config: DaemonConfig) -> SendConfig:
    """Return the settings for the checks of sends."""
    broker = config.broker
    return SendConfig(
        broker_ip=config.listen.advertised_ip,
        broker_permission=broker.broker_permission,
        start_accept_ms=broker.start_accept_send_request_time_stamp,
    )


def unique_keys(host: str, now_ms: Clock) -> Callable[[], str]:
    """Return a function that returns another unique key at each call. `host`: this broker's IP address."""
    ids = UniqueIds(host, os.getpid(), random.getrandbits(32))
    return lambda: ids.next(now_ms())
