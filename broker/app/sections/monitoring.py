"""The figures of a broker."""

from skylarkmq.broker.app.sections.addresses import address_text
from skylarkmq.broker.config.sections import DaemonConfig
from skylarkmq.broker.counters.throughput import Counters
from skylarkmq.broker.ops.metrics.broker import Identity
from skylarkmq.broker.processors.admin.counters import system_puts
from skylarkmq.broker.processors.pull.processor import PullProcessor
from skylarkmq.broker.store.message_store import MessageStore


def identity_of(config: DaemonConfig, boot_ms: int) -> Identity:
    """Return the broker's identity for the labels of its metrics."""
    return Identity(
        cluster=config.broker.broker_cluster_name,
        name=config.broker.broker_name,
        address=address_text(config.listen.advertised_host, config.listen.port),
        boot_ms=boot_ms,
    )


def counters_of(store: MessageStore, pulls: PullProcessor) -> Counters:
    """Return the totals that throughput is computed from."""
    pulled = pulls.statistics()
    return Counters(store.statistics().log.messages, pulled.found, pulled.missed, pulled.messages, system_puts(store))
