"""The metrics: every name that this broker tells, as a table.

A row says what a name measures, of what kind it is, which labels tell its series apart, and which switch turns it off.
Labels that are the same in all series of a broker come from the row's scope. Names and labels of `rocketmq_` metrics
are RocketMQ 5's and those of its exporter, so that dashboards made for them work; `skylark_` are ours.

A new metric is a row here and a value from a collector (`broker/ops/collectors`); docs/metrics.md is made from this.
"""

from enum import Enum
from typing import Final, NamedTuple

from skylarkmq.broker.ops.runtime_names import RUNTIME_NAMES


class Kind(Enum):
    """What a metric's values are."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Switch(Enum):
    """RocketMQ's switches of metrics; ALWAYS has none."""

    ALWAYS = ""
    CONNECTION = "enableConnectionMetrics"
    LAG_AND_DLQ = "enableLagAndDlqMetrics"
    MESSAGE_STORE = "enableMessageStoreMetrics"
    REMOTING = "enableRemotingMetrics"
    REQUEST = "enableRequestMetrics"
    STATS = "enableStatsMetrics"
    TRANSACTION = "enableTransactionMetrics"


class Scope(Enum):
    """Labels with one value for the whole broker."""

    NODE = ("cluster", "node_type", "node_id")
    STORE = (*NODE, "storage_type", "storage_medium")
    REMOTING = (*NODE, "protocol_type")
    EXPORTER_BROKER = ("cluster", "brokerIP", "broker")
    EXPORTER = ("cluster", "broker")
    EXPORTER_RUNTIME = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")
    BARE = ()

    def __init__(self, *labels: str) -> None:
        self.labels = labels  # an empty tuple is no value to every Python: 3.11.2 makes an object of it


NATIVE: Final = frozenset((Scope.NODE, Scope.STORE, Scope.REMOTING))
"""Scopes whose series also carry the labels of `metricsLabel`."""


class Row(NamedTuple):
    """One metric. `help` is for people; `is_peak`: series that are told as one are its largest, not their sum."""

    name: str
    kind: Kind
    scope: Scope
    labels: tuple[str, ...]
    help: str
    switch: Switch = Switch.ALWAYS
    is_peak: bool = False

    @property
    def all_labels(self) -> tuple[str, ...]:
        """Names of its labels, without those that an operator adds."""
        return (*self.scope.labels, *self.labels)


def rows(switch: Switch, scope: Scope, *table: tuple[str, Kind, str, str]) -> tuple[Row, ...]:
    """Rows of (name, kind, labels, help) that share switch and scope."""
    return tuple(Row(name, kind, scope, tuple(labels.split()), text, switch) for name, kind, labels, text in table)


def peaks(switch: Switch, scope: Scope, *table: tuple[str, Kind, str, str]) -> tuple[Row, ...]:
    """The same for values that cannot be added up."""
    return tuple(row._replace(is_peak=True) for row in rows(switch, scope, *table))


COUNTER, GAUGE, HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

IN: Final = "topic message_type is_system"
OUT: Final = "topic consumer_group is_system"
LAG: Final = "consumer_group topic is_retry is_system"
DIFF: Final = "group topic countOfOnlineConsumers msgModel"

REQUESTS: Final = rows(
    Switch.REQUEST,
    Scope.NODE,
    ("rocketmq_messages_in_total", COUNTER, IN, "Messages stored; not those of retry and dead letter topics."),
    ("rocketmq_messages_out_total", COUNTER, OUT, "Messages in answers to pulls; not those of retry topics."),
    ("rocketmq_throughput_in_total", COUNTER, IN, "Bytes of the records stored."),
    ("rocketmq_throughput_out_total", COUNTER, OUT, "Bytes of the records in answers to pulls."),
    ("rocketmq_message_size", HISTOGRAM, IN, "Bytes of each record stored."),
    (
        "rocketmq_topic_create_execution_time_milliseconds",
        HISTOGRAM,
        "invocation_status is_system",
        "Time from a request that sets a topic to its answer: saved, and told to the name servers.",
    ),
)
REMOTING: Final = rows(
    Switch.REMOTING,
    Scope.REMOTING,
    (
        "rocketmq_rpc_latency_milliseconds",
        HISTOGRAM,
        "request_code response_code is_long_polling result",
        "Time from a request's arrival to its answer.",
    ),
)
STATS: Final = rows(
    Switch.STATS,
    Scope.NODE,
    ("rocketmq_processor_watermark", GAUGE, "processor", "Requests of a kind that wait for their answers."),
    ("rocketmq_broker_permission", GAUGE, "", "2 may be written, 4 may be read, 6 both."),
    ("rocketmq_topic_number", GAUGE, "", "Topics."),
    ("rocketmq_consumer_group_number", GAUGE, "", "Consumer groups."),
)
CONNECTIONS: Final = rows(
    Switch.CONNECTION,
    Scope.REMOTING,
    ("rocketmq_producer_connections", GAUGE, "language version", "Connections of producers."),
    (
        "rocketmq_consumer_connections",
        GAUGE,
        "consumer_group language version consume_mode is_system",
        "Connections of consumers.",
    ),
)
LAGS: Final = (
    *rows(
        Switch.LAG_AND_DLQ,
        Scope.NODE,
        ("rocketmq_consumer_lag_messages", GAUGE, LAG, "Messages that the group has not committed."),
        ("rocketmq_consumer_inflight_messages", GAUGE, LAG, "Messages pulled and not committed."),
        ("rocketmq_consumer_ready_messages", GAUGE, LAG, "Messages not pulled yet."),
        (
            "rocketmq_send_to_dlq_messages_total",
            COUNTER,
            "consumer_group topic is_system",
            "Messages that the group has given up.",
        ),
    ),
    *peaks(
        Switch.LAG_AND_DLQ,
        Scope.NODE,
        ("rocketmq_consumer_lag_latency_milliseconds", GAUGE, LAG, "Age of the oldest message not committed."),
        ("rocketmq_consumer_queueing_latency_milliseconds", GAUGE, LAG, "Age of the oldest message not pulled."),
    ),
)
STORAGE: Final = rows(
    Switch.MESSAGE_STORE,
    Scope.STORE,
    ("rocketmq_storage_size_bytes", GAUGE, "", "Used bytes of the file system that holds the store."),
    ("rocketmq_storage_flush_behind_bytes", GAUGE, "", "Bytes of the log that are written and not on the disk yet."),
    ("rocketmq_storage_dispatch_behind_bytes", GAUGE, "", "Bytes of the log that consumers may not see yet."),
    ("rocketmq_storage_message_reserve_time_milliseconds", GAUGE, "", "Age of the oldest message in the log."),
    ("rocketmq_delay_message_latency_seconds", HISTOGRAM, "topic", "Delays that messages were sent with."),
    ("rocketmq_timer_enqueue_lag", GAUGE, "", "Timer messages that are not on the wheel yet."),
    ("rocketmq_timer_enqueue_latency_milliseconds", GAUGE, "", "Age of the oldest of them."),
    ("rocketmq_timer_dequeue_lag", GAUGE, "", "Timer messages whose slot is over."),
    ("rocketmq_timer_dequeue_latency_milliseconds", GAUGE, "", "For how long the first such slot is over."),
    ("rocketmq_timer_enqueue_total", COUNTER, "topic", "Messages that were put on the wheel."),
    ("rocketmq_timer_dequeue_total", COUNTER, "topic", "Messages that left the wheel."),
    ("rocketmq_timing_messages", GAUGE, "topic", "Messages on the wheel."),
    ("rocketmq_timer_message_snapshot", GAUGE, "timer_bound_s", "Messages on the wheel that come due in so many s."),
)
TRANSACTIONS: Final = rows(
    Switch.TRANSACTION,
    Scope.NODE,
    ("rocketmq_half_messages", GAUGE, "topic", "Transactions that are open."),
    ("rocketmq_commit_messages_total", COUNTER, "topic", "Transactions committed."),
    ("rocketmq_rollback_messages_total", COUNTER, "topic", "Transactions rolled back."),
    (
        "rocketmq_finish_message_latency_milliseconds",
        HISTOGRAM,
        "topic",
        "Seconds, whatever the name says, from the birth of half messages to their commit.",
    ),
)

EXPORTER: Final = (
    *rows(
        Switch.ALWAYS,
        Scope.EXPORTER_BROKER,
        ("rocketmq_broker_tps", GAUGE, "", "Messages stored per second, last minute."),
        ("rocketmq_broker_qps", GAUGE, "", "Messages delivered per second, last minute."),
    ),
    *rows(
        Switch.ALWAYS,
        Scope.EXPORTER,
        ("rocketmq_producer_tps", GAUGE, "topic", "Messages stored per second, last minute, as scrapes saw it."),
        ("rocketmq_producer_message_size", GAUGE, "topic", "Bytes stored per second, last minute."),
        ("rocketmq_producer_offset", GAUGE, "topic", "Sum of the topic's queue ends."),
        ("rocketmq_topic_retry_offset", GAUGE, "topic", "Sum of the queue ends of a retry topic."),
        ("rocketmq_topic_dlq_offset", GAUGE, "group", "Sum of the queue ends of the group's dead letters."),
        ("rocketmq_consumer_tps", GAUGE, "topic group", "Messages delivered per second, last minute."),
        (
            "rocketmq_consumer_message_size",
            GAUGE,
            "topic group",
            "Bytes delivered per second, last minute.",
        ),
        ("rocketmq_consumer_offset", GAUGE, "topic group", "Sum of the group's committed offsets."),
        ("rocketmq_send_back_nums", GAUGE, "topic group", "Retries in the last minute."),
        ("rocketmq_producer_count", GAUGE, "group", "Producers of the group."),
    ),
    *peaks(
        Switch.ALWAYS,
        Scope.EXPORTER,
        (
            "rocketmq_group_get_latency_by_storetime",
            GAUGE,
            "topic group",
            "Age in ms of the oldest message not committed, 0 when there is none; not of broadcasting groups.",
        ),
    ),
    *rows(
        Switch.ALWAYS,
        Scope.BARE,
        ("rocketmq_group_diff", GAUGE, DIFF, "Messages that the group has not committed."),
        ("rocketmq_group_retrydiff", GAUGE, DIFF, "The same of its retry topic."),
        ("rocketmq_group_dlqdiff", GAUGE, DIFF, "The same of its dead letters."),
        ("rocketmq_group_count", GAUGE, "caddr localaddr group", "Members of the group; the addresses are left out."),
    ),
    *rows(
        Switch.ALWAYS,
        Scope.EXPORTER_RUNTIME,
        *((name.metric, GAUGE, "", f"`{name.key}` of the runtime information.") for name in RUNTIME_NAMES),
    ),
)

OURS: Final = rows(
    Switch.ALWAYS,
    Scope.NODE,
    ("skylark_check", GAUGE, "check", "1 while a check of /readyz is fine."),
    (
        "skylark_registrations_refused_total",
        COUNTER,
        "reason",
        "Registrations that its own name server refused: `host` held by another one, `size` of the routes, `first`.",
    ),
    ("skylark_limit", GAUGE, "setting", "What the setting allows callers to make the broker keep."),
    ("skylark_limit_used", GAUGE, "setting", "How much of that there is; of locks, those of the group with most."),
    ("skylark_limit_refused_total", COUNTER, "setting", "Requests refused because of the limit."),
    ("skylark_connections", GAUGE, "", "Open connections."),
    ("skylark_connections_paused", GAUGE, "", "Connections not read from, because their peers do not read."),
    ("skylark_connections_accepted_total", COUNTER, "", "Connections accepted."),
    ("skylark_connections_refused_total", COUNTER, "", "Connections refused, because there were too many."),
    ("skylark_connections_idle_closed_total", COUNTER, "", "Connections closed, because they were silent."),
    (
        "skylark_connections_unread_closed_total",
        COUNTER,
        "",
        "Connections closed, because their peers did not read for too long.",
    ),
    ("skylark_connections_in_line", GAUGE, "", "Connections that have more to say than their share of a round."),
    ("skylark_unfinished_bytes", GAUGE, "", "Memory for frames of which a part is still to come."),
    ("skylark_unfinished_limit_bytes", GAUGE, "", "As much may be used for that."),
    ("skylark_unfinished_waiting", GAUGE, "", "Connections not read from, because that is used up."),
    ("skylark_unfinished_closed_total", COUNTER, "", "Connections closed, because they kept others from it."),
    ("skylark_protocol_errors_total", COUNTER, "", "Connections closed, because of what they sent."),
    ("skylark_tls_handshakes_total", COUNTER, "outcome", "TLS handshakes, `established` or `failed`."),
    (
        "skylark_tls_refused_total",
        COUNTER,
        "",
        "Connections closed, because of tls.server.mode.",
    ),
    ("skylark_tls_reloads_total", COUNTER, "outcome", "New certificates, `loaded` or `failed`."),
    ("skylark_received_bytes_total", COUNTER, "", "Bytes read from connections."),
    ("skylark_sent_bytes_total", COUNTER, "", "Bytes written to connections."),
    ("skylark_backlog_bytes", GAUGE, "", "Bytes that peers have not taken yet."),
    ("skylark_transfer_bytes_total", COUNTER, "way", "Bytes written, by the way they took."),
    ("skylark_transfer_calls_total", COUNTER, "way", "Writes, by the way they took."),
    ("skylark_transfer_cut_total", COUNTER, "", "Answers cut off, because a file failed or was taken away."),
    ("skylark_pool_held", GAUGE, "pool", "Requests that wait for their answers."),
    ("skylark_pool_capacity", GAUGE, "pool", "As many may wait."),
    ("skylark_pool_held_bytes", GAUGE, "pool", "Bytes of the requests that wait."),
    ("skylark_pool_limit_bytes", GAUGE, "pool", "As many bytes may wait."),
    ("skylark_pool_head_wait_seconds", GAUGE, "pool", "For how long the first of them has waited to be looked at."),
    ("skylark_pool_refused_total", COUNTER, "pool reason", "Requests answered SYSTEM_BUSY."),
    ("skylark_parked_pulls", GAUGE, "", "Pulls that wait for messages."),
    ("skylark_woken_pulls_total", COUNTER, "", "Waiting pulls that a message ended."),
    ("skylark_expired_pulls_total", COUNTER, "", "Waiting pulls that their deadline ended."),
    ("skylark_pulls_total", COUNTER, "found", "Pulls answered, with messages and without."),
    ("skylark_offset_commits_total", COUNTER, "", "Committed offsets received."),
    ("skylark_offset_resets_waiting", GAUGE, "", "Queues in which a group was reset and has not pulled since."),
    ("skylark_heartbeats_total", COUNTER, "", "Heartbeats received."),
    ("skylark_client_calls_waiting", GAUGE, "", "Questions to clients that wait for their answers."),
    ("skylark_client_calls_total", COUNTER, "outcome", "Questions to clients; those that were refused were not sent."),
    ("skylark_replies_total", COUNTER, "outcome", "Replies, by whether they reached who had asked."),
    ("skylark_store_writable", GAUGE, "", "0 while messages are refused."),
    ("skylark_store_damaged_segments", GAUGE, "", "Segments of the log that are truncated or cannot be read."),
    ("skylark_store_skipped_records", GAUGE, "", "Records that the last recovery found and gave no place in a queue."),
    ("skylark_store_failed_batches_total", COUNTER, "", "Turns whose write failed; their senders were told."),
    ("skylark_store_syncs_total", COUNTER, "", "Syncs of the log."),
    ("skylark_store_waiting_for_flush", GAUGE, "", "Turns that wait for a sync or a buffer's write."),
    ("skylark_store_commit_behind_bytes", GAUGE, "", "Bytes of the log that stand in buffers only."),
    ("skylark_store_queues", GAUGE, "", "Consume queues."),
    ("skylark_store_segments_deleted_total", COUNTER, "", "Segments of the log given up by retention."),
    ("skylark_store_disk_used_ratio", GAUGE, "directory", "How full the file system of a directory is."),
    ("skylark_store_cold_reads_total", COUNTER, "outcome", "Ranges not in memory: found cold, fetched, waited for."),
    ("skylark_store_records_checked_total", COUNTER, "", "Records from before the start that were checked."),
    ("skylark_store_records_damaged_total", COUNTER, "", "Records that were damaged, and not delivered."),
    ("skylark_store_index_keys_total", COUNTER, "", "Keys put into the index."),
    ("skylark_delay_waiting", GAUGE, "level", "Messages that wait in the queue of a delay level."),
    ("skylark_delay_delivered_total", COUNTER, "level", "Delayed messages that were delivered."),
    ("skylark_delay_dropped_total", COUNTER, "level", "Delayed messages that were not, and never will be."),
    ("skylark_delay_lateness_seconds", HISTOGRAM, "", "How late delayed messages came to their topics."),
    ("skylark_timer_slot_lateness_seconds", HISTOGRAM, "", "From when their slot was over until messages were stored."),
    ("skylark_timer_ended_total", COUNTER, "outcome", "Timer messages delivered, deleted, rolled, dropped."),
    ("skylark_timer_writable", GAUGE, "", "0 while timer messages are refused, because of their files."),
    ("skylark_timer_refused_writes_total", COUNTER, "", "Writes of timer files that the disk did not take."),
    (
        "skylark_transaction_checks_total",
        COUNTER,
        "outcome",
        "Half messages about which one was `asked`, or `nobody`.",
    ),
    ("skylark_transaction_discarded_total", COUNTER, "", "Half messages that nobody is asked about any more."),
    ("skylark_transaction_dropped_total", COUNTER, "entry", "Records of the half and op topics that are invalid."),
    ("skylark_memory_anonymous_bytes", GAUGE, "", "Memory of the process's own, without the mapped store."),
    ("skylark_loop_lag_seconds", HISTOGRAM, "", "How late the event loop came to what was due."),
    ("skylark_scrape_samples", GAUGE, "", "Samples of the scrape before this one."),
    ("skylark_scrape_seconds", GAUGE, "", "How long it took."),
    ("skylark_scrape_hold_seconds", GAUGE, "", "The longest time for which it held the event loop."),
    ("skylark_scrape_failures_total", COUNTER, "", "Collectors that failed; their metrics were left out."),
    ("skylark_scrape_folded_total", COUNTER, "metric", "Series told as one, because their metric has too many."),
)

PROCESS: Final = rows(
    Switch.ALWAYS,
    Scope.BARE,
    ("process_cpu_seconds_total", COUNTER, "", "CPU time, user and system."),
    ("process_start_time_seconds", GAUGE, "", "Unix time of the start."),
    ("process_virtual_memory_bytes", GAUGE, "", "Address space, the mapped store included."),
    ("process_resident_memory_bytes", GAUGE, "", "Memory, with what is in it of the mapped store."),
    ("process_open_fds", GAUGE, "", "Descriptors."),
    ("process_max_fds", GAUGE, "", "As many are allowed."),
)

CATALOGUE: Final[dict[str, Row]] = {
    row.name: row
    for row in (
        *(*REQUESTS, *REMOTING, *STATS, *CONNECTIONS, *LAGS, *STORAGE, *TRANSACTIONS),
        *(*EXPORTER, *OURS, *PROCESS),
    )
}

LIBRARY: Final = {
    "python_gc_*": "garbage collections by generation",
    "python_info": "version of the interpreter",
}
"""Metrics that prometheus_client brings along."""
