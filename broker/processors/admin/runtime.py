"""GET_BROKER_RUNTIME_INFO (28): figures of the broker as a table of texts.

The readers (mqadmin, the dashboard, the exporter) have no defaults: one missing key makes them discard the whole
response, one malformed value raises an exception. So the response has every key of docs/reference/wire.md, "Runtime
information", in the form given there. A key about a feature that this broker does not have is 0.

All values come from the statistics of the parts; nothing is counted for this response alone.
"""

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from skylarkmq.broker.counters.put_latency import PutLatencyStatistics, spread_text
from skylarkmq.broker.counters.throughput import Throughput
from skylarkmq.broker.delivery.cold_read_retry import serve_cold_reads
from skylarkmq.broker.remoting.admission import PoolStatistics
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.bodies.cluster import KVTable
from skylarkmq.protocol.codes import VERSION, VERSION_NAME, RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.record_fields import store_timestamp_at

NO_TIME: Final = -1
NO_TRANSIENT_POOL: Final = 2**31 - 1
UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")
QUEUE_NAMES: Final = {
    "send": "send",
    "pull": "pull",
    "litePull": "lite_pull",
    "query": "query",
    "ack": None,
}
"""RocketMQ's request queues, and the pool whose waiting requests each one reports; None: the queue does not exist."""


class RuntimeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Values that are fixed at the start."""

    store_path: Path
    boot_ms: int  # Unix time of the start
    start_accept_ms: int = 0  # startAcceptSendRequestTimeStamp


class StoreTimes(NamedTuple):
    """Durations of store operations."""

    puts: PutLatencyStatistics
    longest_get_ms: int


class RuntimeProcessor:
    """Collects the broker's figures.

    `pools` returns the statistics of all pools, `times` the statistics of the store, `now_ms` Unix time. Each of
    `others` returns figures that override the ones collected here.
    """

    def __init__(
        self,
        config: RuntimeConfig,
        store: MessageStore,
        traffic: Throughput,
        pools: Callable[[], Iterable[PoolStatistics]],
        times: Callable[[], StoreTimes],
        now_ms: Callable[[], int],
        others: Iterable[Callable[[], Mapping[str, object]]] = (),
    ) -> None:
        self._config = config
        self._others = tuple(others)
        self.boot_ms = config.boot_ms
        self._store = store
        self._traffic = traffic
        self._pools = pools
        self._times = times
        self._now_ms = now_ms

    def __repr__(self) -> str:
        return f"<RuntimeProcessor boot_ms={self._config.boot_ms}>"

    def accept_sends_from(self, start_accept_ms: int) -> None:
        """Set the startAcceptSendRequestTimeStamp that is reported."""
        self._config = msgspec.structs.replace(self._config, start_accept_ms=start_accept_ms)

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {RequestCode.GET_BROKER_RUNTIME_INFO: serve_cold_reads(self._store, self.runtime_info)}

    def runtime_info(self, _source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
        """Serve GET_BROKER_RUNTIME_INFO (28)."""
        return RemotingCommand.response(body=KVTable(self.table()).encode())

    def table(self) -> dict[str, str]:
        """Return every key with its text."""
        figures: dict[str, object] = (
            self._about_broker()
            | self._about_store()
            | self._about_disk()
            | self._about_traffic()
            | self._about_queues()
        )
        for other in self._others:
            figures.update(other())
        return {key: str(value) for key, value in figures.items()}

    def _about_broker(self) -> dict[str, object]:
        config = self._config
        return {
            "brokerActive": "true",
            "brokerVersion": VERSION,
            "brokerVersionDesc": VERSION_NAME,
            "bootTimestamp": config.boot_ms,
            "runtime": duration_text(self._now_ms() - config.boot_ms),
            "startAcceptSendRequestTimeStamp": config.start_accept_ms,
            "timerReadBehind": 0,
            "timerOffsetBehind": 0,
            "timerCongestNum": 0,
            "timerEnqueueTps": 0.0,
            "timerDequeueTps": 0.0,
        }

    def _about_store(self) -> dict[str, object]:
        store = self._store.statistics()
        log = store.log
        times = self._times()
        first = self._store.record_at(self._store.min_physical_offset)
        return {
            "commitLogMinOffset": log.min_offset,
            "commitLogMaxOffset": log.max_offset,
            "earliestMessageTimeStamp": NO_TIME if first is None else store_timestamp_at(memoryview(first), 0),
            "dispatchBehindBytes": store.dispatch_lag,
            "dispatchMaxBuffer": 0,
            "remainHowManyDataToFlush": size_text(store.flush_lag),
            "remainHowManyDataToCommit": size_text(store.commit_lag),
            "remainTransientStoreBufferNumbs": NO_TRANSIENT_POOL if store.free_buffers is None else store.free_buffers,
            "pageCacheLockTimeMills": 0,
            "putMessageTimesTotal": log.messages,
            "putMessageSizeTotal": log.written_bytes,
            "putMessageAverageSize": log.written_bytes / log.messages if log.messages else 0.0,
            "putMessageFailedTimes": log.failed_batches,
            "putMessageDistributeTime": spread_text(times.puts.spread),
            "putLatency99": f"{times.puts.within_99_ms:.2f}",
            "putLatency999": f"{times.puts.within_999_ms:.2f}",
            "putMessageEntireTimeMax": times.puts.longest_ms,
            "getMessageEntireTimeMax": times.longest_get_ms,
        }

    def _about_disk(self) -> dict[str, object]:
        path = self._config.store_path
        total, _, free = shutil.disk_usage(path)
        ratio = f"{1 - free / total if total else 0.0:.2f}"
        return {
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{path / 'commitlog'}": ratio,
            "consumeQueueDiskRatio": ratio,
            "commitLogDirCapacity": f"Total : {size_text(total)}, Free : {size_text(free)}.",
        }

    def _about_traffic(self) -> dict[str, object]:
        rates = self._traffic.per_second
        transferred = rates_text(rates(lambda counters: counters.delivered))
        days, now = self._traffic.days, self._traffic.statistics()
        return {
            "putTps": rates_text(rates(lambda counters: counters.puts)),
            "getFoundTps": rates_text(rates(lambda counters: counters.found)),
            "getMissTps": rates_text(rates(lambda counters: counters.missed)),
            "getTotalTps": rates_text(rates(lambda counters: counters.found + counters.missed)),
            "getTransferredTps": transferred,
            "getTransferedTps": transferred,  # the spelling of 4.9, which its tools read
            "msgPutTotalYesterdayMorning": days.yesterday.user_puts,
            "msgPutTotalTodayMorning": days.today.user_puts,
            "msgPutTotalTodayNow": now.user_puts,
            "msgGetTotalYesterdayMorning": days.yesterday.delivered,
            "msgGetTotalTodayMorning": days.today.delivered,
            "msgGetTotalTodayNow": now.delivered,
        }

    def _about_queues(self) -> dict[str, object]:
        pools = {pool.name: pool for pool in self._pools()}
        ends = pools.get("end_transaction")
        figures: dict[str, object] = {
            "EndTransactionQueueSize": 0 if ends is None else ends.pending,
            "EndTransactionThreadPoolQueueCapacity": 0 if ends is None else ends.capacity,
        }
        for queue, name in QUEUE_NAMES.items():
            pool = pools.get(name or "")
            figures[f"{queue}ThreadPoolQueueSize"] = 0 if pool is None else pool.pending
            figures[f"{queue}ThreadPoolQueueCapacity"] = 0 if pool is None else pool.capacity
            figures[f"{queue}ThreadPoolQueueHeadWaitTimeMills"] = 0 if pool is None else pool.head_wait_ms
        return figures


def duration_text(duration_ms: int) -> str:
    """Return a duration such as `[ 0 days, 0 hours, 0 minutes, 40 seconds ]`."""
    minutes, seconds = divmod(max(duration_ms, 0) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def size_text(size_bytes: int) -> str:
    """Return a size such as `0 B`, `2.9 KiB`, `252.0 GiB`: readers split it at the space."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    power = min((size_bytes.bit_length() - 1) // 10, len(UNITS))
    return f"{size_bytes / 1024**power:.1f} {UNITS[power - 1]}"


def rates_text(rates: Iterable[float]) -> str:
    """Return the rates, separated by spaces."""
    return " ".join(str(rate) for rate in rates)
