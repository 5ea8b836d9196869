"""Metrics of the broker as a whole: checks, tables, traffic, and the runtime information as numbers."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.counters.throughput import Throughput
from skylarkmq.broker.delivery.arrivals import Arrivals
from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable
from skylarkmq.broker.metadata.limits import Limit
from skylarkmq.broker.metadata.subscription_groups import SubscriptionGroups
from skylarkmq.broker.metadata.topics import TopicTable
from skylarkmq.broker.ops.loop_lag import LoopLag
from skylarkmq.broker.ops.pages.health import Check
from skylarkmq.broker.ops.runtime_names import RUNTIME_NAMES
from skylarkmq.broker.ops.steps import Steps, Value, retry_cold_reads

_LAST_MINUTE: Final = 1  # index of the rates over the last minute


class TableCollector:
    """Metrics of topic, group and offset tables, and of the broker's permission."""

    def __init__(
        self,
        topics: TopicTable,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsetTable,
        permission: Callable[[], int],
        topic_times: Mapping[tuple[bool, bool], Histogram],
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._permission = permission
        self._topic_times = topic_times

    def __repr__(self) -> str:
        return f"<TableCollector {self._topics!r}>"

    def __call__(self) -> Steps:
        """Yield every value."""
        yield Value("rocketmq_broker_permission", (), self._permission())
        yield Value("rocketmq_topic_number", (), self._topics.statistics().topics)
        yield Value("rocketmq_consumer_group_number", (), self._groups.statistics().groups)
        offsets = self._offsets.statistics()
        yield Value("skylark_offset_commits_total", (), offsets.commits)
        yield Value("skylark_offset_resets_waiting", (), offsets.resets)
        for (is_success, is_system), took in list(self._topic_times.items()):
            labels = ("success" if is_success else "failure", "true" if is_system else "false")
            yield Value("rocketmq_topic_create_execution_time_milliseconds", labels, took)


class TrafficCollector:
    """Metrics of all messages together, and of parked pulls."""

    def __init__(self, traffic: Throughput, arrivals: Arrivals, lag: LoopLag, heartbeats: Callable[[], int]) -> None:
        self._traffic = traffic
        self._arrivals = arrivals
        self._lag = lag
        self._heartbeats = heartbeats

    def __repr__(self) -> str:
        return f"<TrafficCollector {self._traffic!r}>"

    def __call__(self) -> Steps:
        """Yield every value."""
        counters, per_second = self._traffic.statistics(), self._traffic.per_second
        yield Value("rocketmq_broker_tps", (), per_second(lambda counters: counters.puts)[_LAST_MINUTE])
        yield Value("rocketmq_broker_qps", (), per_second(lambda counters: counters.delivered)[_LAST_MINUTE])
        yield Value("skylark_pulls_total", ("true",), counters.found)
        yield Value("skylark_pulls_total", ("false",), counters.missed)
        waiting = self._arrivals.statistics()
        yield Value("skylark_parked_pulls", (), waiting.parked)
        yield Value("skylark_woken_pulls_total", (), waiting.woken)
        yield Value("skylark_expired_pulls_total", (), waiting.expired)
        yield Value("skylark_heartbeats_total", (), self._heartbeats())
        yield Value("skylark_loop_lag_seconds", (), self._lag.seconds)


class CheckCollector:
    """The checks of /readyz as metrics."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = checks

    def __repr__(self) -> str:
        return f"<CheckCollector {list(self._checks)}>"

    def __call__(self) -> Steps:
        """Yield every value."""
        for name, check in self._checks.items():
            yield Value("skylark_check", (name,), int(check() is None))


class RouteCollector:
    """Registrations that the name server in this process refused, by reason; none without a name server."""

    def __init__(self, refused: Callable[[], Mapping[str, int]]) -> None:
        self._refused = refused

    def __repr__(self) -> str:
        return f"<RouteCollector {dict(self._refused())}>"

    def __call__(self) -> Steps:
        """Yield every value."""
        for reason, count in self._refused().items():
            yield Value("skylark_registrations_refused_total", (reason,), count)


class ExposureCollector:
    """Listeners that are open to other machines, and files with secrets that other users can read."""

    def __init__(self, open_listeners: Mapping[str, bool], exposed_files: Callable[[], int]) -> None:
        self._open_listeners = open_listeners
        self._exposed_files = exposed_files

    def __repr__(self) -> str:
        return f"<ExposureCollector {dict(self._open_listeners)}>"

    def __call__(self) -> Steps:
        """Yield every value."""
        for listener, is_open in self._open_listeners.items():
            yield Value("skylark_open_without_account", (listener,), int(is_open))
        yield Value("skylark_exposed_secret_files", (), self._exposed_files())


class LimitCollector:
    """Limits on what clients can make the broker store: value, use and refusals, by setting."""

    def __init__(self, limits: Iterable[Limit]) -> None:
        self._limits = limits

    def __repr__(self) -> str:
        return f"<LimitCollector {self._limits!r}>"

    def __call__(self) -> Steps:
        """Yield every value."""
        for limit in self._limits:
            yield Value("skylark_limit", (limit.setting,), limit.most)
            if limit.used is not None:
                yield Value("skylark_limit_used", (limit.setting,), limit.used())
            yield Value("skylark_limit_refused_total", (limit.setting,), limit.refused)


class RuntimeCollector:
    """Metrics of the runtime information: `table`, the response to GET_BROKER_RUNTIME_INFO (28). `now_ms` gives Unix
    time."""

    def __init__(self, table: Callable[[], Mapping[str, str]], now_ms: Callable[[], int]) -> None:
        self._table = table
        self._now_ms = now_ms

    def __repr__(self) -> str:
        return f"<RuntimeCollector {len(RUNTIME_NAMES)} names>"

    def __call__(self) -> Steps:
        """Yield every value."""
        table = yield from retry_cold_reads(self._table)
        if table is None:
            return
        for name in RUNTIME_NAMES:
            value = name.value(table)
            if value is not None:
                yield Value(name.metric, (), value)
        earliest_ms = int(table["earliestMessageTimeStamp"])
        age_ms = max(self._now_ms() - earliest_ms, 0) if earliest_ms >= 0 else 0
        yield Value("rocketmq_storage_message_reserve_time_milliseconds", (), age_ms)
