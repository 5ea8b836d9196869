"""The catalogue of metrics: a table of every metric that this broker exports.

A row has a metric's name, its help text, its kind, the labels that distinguish its series, and the setting that turns
it off. Labels that are the same in all series of a broker come from the row's scope. Names and labels of `rocketmq_`
metrics have the names of RocketMQ 5 and its exporter, so that their dashboards work; `skylark_` metrics are ours.

A new metric needs a row here and a value from a collector (`broker/ops/collectors`). docs/reference/metrics.md is
generated from this table.
"""

from enum import Enum
from typing import Final, NamedTuple

from skylarkmq.broker.ops.runtime_names import RUNTIME_NAMES


class Kind(Enum):
    """Type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Switch(Enum):
    """RocketMQ's settings that turn metrics on and off. ALWAYS: there is no such setting."""

    ALWAYS = ""
    CONNECTION = "enableConnectionMetrics"
    LAG_AND_DLQ = "enableLagAndDlqMetrics"
    MESSAGE_STORE = "enableMessageStoreMetrics"
    REMOTING = "enableRemotingMetrics"
    REQUEST = "enableRequestMetrics"
    STATS = "enableStatsMetrics"
    TRANSACTION = "enableTransactionMetrics"


class Scope(Enum):
    """Labels that have the same value in all series of a broker."""

    NODE = ("cluster", "node_type", "node_id")
    STORE = (*NODE, "storage_type", "storage_medium")
    REMOTING = (*NODE, "protocol_type")
    EXPORTER_BROKER = ("cluster", "brokerIP", "broker")
    EXPORTER = ("cluster", "broker")
    EXPORTER_RUNTIME = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")
    BARE = ()

    def __init__(self, *labels: str) -> None:
        self.labels = labels  # needed for an empty tuple: Python 3.11.2 makes an object of it instead of a value


NATIVE: Final = frozenset((Scope.NODE, Scope.STORE, Scope.REMOTING))
"""Scopes whose series also get the labels of `metricsLabel`."""


class Row(NamedTuple):
    """One metric. `help` is the help text. `is_peak`: series beyond the limit are merged to their maximum, not their
    sum."""

    name: str
    kind: Kind
    scope: Scope
    labels: tuple[str, ...]
    help: str
    switch: Switch = Switch.ALWAYS
    is_peak: bool = False

    @property
    def all_labels(self) -> tuple[str, ...]:
        """Return the names of its labels, without the labels of `metricsLabel`."""
        return (*self.scope.labels, *self.labels)


def rows(switch: Switch, scope: Scope, *table: tuple[str, Kind, str, str]) -> tuple[Row, ...]:
    """Return rows from (name, kind, labels, help) that share switch and scope."""
    return tuple(Row(name, kind, scope, tuple(labels.split()), text, switch) for name, kind, labels, text in table)


def peaks(switch: Switch, scope: Scope, *table: tuple[str, Kind, str, str]) -> tuple[Row, ...]:
    """Return such rows for values whose sum has no meaning."""
    return tuple(row._replace(is_peak=True) for row in rows(switch, scope, *table))


COUNTER, GAUGE, HISTOGRAM = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

IN: Final = "topic message_type is_system"
OUT: Final = "topic consumer_group is_system"
LAG: Final = "consumer_group topic is_retry is_system"
DIFF: Final = "group topic countOfOnlineConsumers msgModel"

REQUESTS: Final = rows(
    Switch.REQUEST,
    Scope.NODE,
    ("rocketmq_messages_in_total", COUNTER, IN, "Messages stored, except in retry and dead letter topics."),
    ("rocketmq_messages_out_total", COUNTER, OUT, "Messages in pull responses, except those from retry topics."),
    ("rocketmq_throughput_in_total", COUNTER, IN, "Bytes of the records stored."),
    ("rocketmq_throughput_out_total", COUNTER, OUT, "Bytes of the records in pull responses."),
    ("rocketmq_message_size", HISTOGRAM, IN, "Size of each stored record in bytes."),
    (
        "rocketmq_topic_create_execution_time_milliseconds",
        HISTOGRAM,
        "invocation_status is_system",
        "Duration of requests that set a topic: until it is saved and registered with the name servers.",
    ),
)
REMOTING: Final = rows(
    Switch.REMOTING,
    Scope.REMOTING,
    (
        "rocketmq_rpc_latency_milliseconds",
        HISTOGRAM,
        "request_code response_code is_long_polling result",
        "Time from the arrival of a request to its response.",
    ),
)
STATS: Final = rows(
    Switch.STATS,
    Scope.NODE,
    ("rocketmq_processor_watermark", GAUGE, "processor", "Requests that wait for their response, by processor."),
    ("rocketmq_broker_permission", GAUGE, "", "Permission of the broker: 2 write, 4 read, 6 both."),
    ("rocketmq_topic_number", GAUGE, "", "Number of topics."),
    ("rocketmq_consumer_group_number", GAUGE, "", "Number of consumer groups."),
)
CONNECTIONS: Final = rows(
    Switch.CONNECTION,
    Scope.REMOTING,
    ("rocketmq_producer_connections", GAUGE, "language version", "Number of producer connections."),
    (
        "rocketmq_consumer_connections",
        GAUGE,
        "consumer_group language version consume_mode is_system",
        "Number of consumer connections.",
    ),
)
LAGS: Final = (
    *rows(
        Switch.LAG_AND_DLQ,
        Scope.NODE,
        ("rocketmq_consumer_lag_messages", GAUGE, LAG, "Messages that the group has not acknowledged yet."),
        ("rocketmq_consumer_inflight_messages", GAUGE, LAG, "Messages pulled and not acknowledged yet."),
        ("rocketmq_consumer_ready_messages", GAUGE, LAG, "Messages not pulled yet."),
        (
            "rocketmq_send_to_dlq_messages_total",
            COUNTER,
            "consumer_group topic is_system",
            "Dead letters of the group.",
        ),
    ),
    *peaks(
        Switch.LAG_AND_DLQ,
        Scope.NODE,
        ("rocketmq_consumer_lag_latency_milliseconds", GAUGE, LAG, "Age of the oldest unacknowledged message."),
        (
            "rocketmq_consumer_queueing_latency_milliseconds",
            GAUGE,
            LAG,
            "Age of the oldest message that is not pulled yet.",
        ),
    ),
)
STORAGE: Final = rows(
    Switch.MESSAGE_STORE,
    Scope.STORE,
    ("rocketmq_storage_size_bytes", GAUGE, "", "Used space of the file system that holds the store."),
    ("rocketmq_storage_flush_behind_bytes", GAUGE, "", "Bytes of the log that are written but not flushed."),
    ("rocketmq_storage_dispatch_behind_bytes", GAUGE, "", "Bytes of the log that are not visible to consumers yet."),
    ("rocketmq_storage_message_reserve_time_milliseconds", GAUGE, "", "Age of the oldest message in the log."),
    ("rocketmq_delay_message_latency_seconds", HISTOGRAM, "topic", "Requested delays of messages."),
    ("rocketmq_timer_enqueue_lag", GAUGE, "", "Timer messages that are not on the timer wheel yet."),
    (
        "rocketmq_timer_enqueue_latency_milliseconds",
        GAUGE,
        "",
        "Age of the oldest timer message that is not on the wheel yet.",
    ),
    ("rocketmq_timer_dequeue_lag", GAUGE, "", "Timer messages that are due."),
    (
        "rocketmq_timer_dequeue_latency_milliseconds",
        GAUGE,
        "",
        "How long the oldest timer message has been due.",
    ),
    ("rocketmq_timer_enqueue_total", COUNTER, "topic", "Messages put on the timer wheel."),
    ("rocketmq_timer_dequeue_total", COUNTER, "topic", "Messages taken off the timer wheel."),
    ("rocketmq_timing_messages", GAUGE, "topic", "Messages on the timer wheel."),
    ("rocketmq_timer_message_snapshot", GAUGE, "timer_bound_s", "Messages on the wheel due within the bound in s."),
)
TRANSACTIONS: Final = rows(
    Switch.TRANSACTION,
    Scope.NODE,
    ("rocketmq_half_messages", GAUGE, "topic", "Open transactions."),
    ("rocketmq_commit_messages_total", COUNTER, "topic", "Committed transactions."),
    ("rocketmq_rollback_messages_total", COUNTER, "topic", "Rolled back transactions."),
    (
        "rocketmq_finish_message_latency_milliseconds",
        HISTOGRAM,
        "topic",
        "Seconds (despite the name) from the born time of a half message to its commit.",
    ),
)

EXPORTER: Final = (
    *rows(
        Switch.ALWAYS,
        Scope.EXPORTER_BROKER,
        ("rocketmq_broker_tps", GAUGE, "", "Messages stored per second in the last minute."),
        ("rocketmq_broker_qps", GAUGE, "", "Messages delivered per second in the last minute."),
    ),
    *rows(
        Switch.ALWAYS,
        Scope.EXPORTER,
        ("rocketmq_producer_tps", GAUGE, "topic", "Messages stored per second in the last minute."),
        ("rocketmq_producer_message_size", GAUGE, "topic", "Bytes stored per second in the last minute."),
        ("rocketmq_producer_offset", GAUGE, "topic", "Sum of the topic's max queue offsets."),
        ("rocketmq_topic_retry_offset", GAUGE, "topic", "Sum of the max queue offsets of a retry topic."),
        ("rocketmq_topic_dlq_offset", GAUGE, "group", "Sum of the max queue offsets of a dead letter topic."),
        ("rocketmq_consumer_tps", GAUGE, "topic group", "Messages delivered per second in the last minute."),
        (
            "rocketmq_consumer_message_size",
            GAUGE,
            "topic group",
            "Bytes delivered per second in the last minute.",
        ),
        ("rocketmq_consumer_offset", GAUGE, "topic group", "Sum of the group's committed offsets."),
        ("rocketmq_send_back_nums", GAUGE, "topic group", "Messages sent back for retry in the last minute."),
        ("rocketmq_producer_count", GAUGE, "group", "Number of producers in the group."),
    ),
    *peaks(
        Switch.ALWAYS,
        Scope.EXPORTER,
        (
            "rocketmq_group_get_latency_by_storetime",
            GAUGE,
            "topic group",
            "Age in ms of the oldest unacknowledged message, 0 without such messages. Not for broadcasting groups.",
        ),
    ),
    *rows(
        Switch.ALWAYS,
        Scope.BARE,
        ("rocketmq_group_diff", GAUGE, DIFF, "Messages that the group has not acknowledged yet."),
        ("rocketmq_group_retrydiff", GAUGE, DIFF, "Unacknowledged messages in the group's retry topic."),
        ("rocketmq_group_dlqdiff", GAUGE, DIFF, "Unacknowledged messages in the group's dead letter topic."),
        ("rocketmq_group_count", GAUGE, "caddr localaddr group", "Number of group members; the addresses are empty."),
    ),
    *rows(
        Switch.ALWAYS,
        Scope.EXPORTER_RUNTIME,
        *((name.metric, GAUGE, "", f"Value of `{name.key}` in the runtime information.") for name in RUNTIME_NAMES),
    ),
)

OURS: Final = rows(
    Switch.ALWAYS,
    Scope.NODE,
    ("skylark_check", GAUGE, "check", "1 if a check of /readyz passes, else 0."),
    (
        "skylark_registrations_refused_total",
        COUNTER,
        "reason",
        "Registrations refused: from another `host`, above a limit (`size`), or `first` and incomplete.",
    ),
    (
        "skylark_open_without_account",
        GAUGE,
        "listener",
        "1 if other machines can use `broker`, `name_server` or `replicas` without proof of an account, else 0.",
    ),
    ("skylark_exposed_secret_files", GAUGE, "", "Files with secrets that other users of the machine can read."),
    ("skylark_limit", GAUGE, "setting", "Limit on what clients can make the broker store."),
    (
        "skylark_limit_used",
        GAUGE,
        "setting",
        "Current use of the limit; for locks, the use of the group with the most locks.",
    ),
    ("skylark_limit_refused_total", COUNTER, "setting", "Requests refused because of the limit."),
    ("skylark_quota_refused_total", COUNTER, "scope kind", "Requests and connections refused because of a quota."),
    ("skylark_quota_delayed_total", COUNTER, "scope kind", "Requests that had to wait because of a quota."),
    ("skylark_quota_keys", GAUGE, "scope", "Clients, accounts and topics whose use of quotas per second is stored."),
    (
        "skylark_quota_keys_evicted_total",
        COUNTER,
        "scope",
        "Clients, accounts and topics removed before their quotas were unused again, because there were too many.",
    ),
    ("skylark_audit_entries_total", COUNTER, "", "Entries written to the audit log."),
    ("skylark_audit_lost_total", COUNTER, "", "Entries lost, because the audit log could not be written in time."),
    ("skylark_audit_failures_total", COUNTER, "", "Failed writes of the audit log."),
    ("skylark_audit_waiting", GAUGE, "", "Entries that are not written yet."),
    ("skylark_connections", GAUGE, "", "Open connections."),
    ("skylark_connections_held", GAUGE, "", "Connections whose next request waits for a quota."),
    (
        "skylark_connections_paused",
        GAUGE,
        "",
        "Connections whose reads are paused, because the peer does not read responses.",
    ),
    ("skylark_connections_accepted_total", COUNTER, "", "Connections accepted."),
    ("skylark_connections_refused_total", COUNTER, "", "Connections refused, because there were too many."),
    ("skylark_connections_idle_closed_total", COUNTER, "", "Connections closed by the idle timeout."),
    (
        "skylark_connections_unread_closed_total",
        COUNTER,
        "",
        "Connections closed, because the peer did not read responses for too long.",
    ),
    (
        "skylark_connections_in_line",
        GAUGE,
        "",
        "Connections queued for reading, because they exceeded their read quota.",
    ),
    ("skylark_unfinished_bytes", GAUGE, "", "Memory used by incomplete frames."),
    ("skylark_unfinished_limit_bytes", GAUGE, "", "Limit of the memory for incomplete frames."),
    (
        "skylark_unfinished_waiting",
        GAUGE,
        "",
        "Connections whose reads are paused, because the memory for incomplete frames is used up.",
    ),
    (
        "skylark_unfinished_closed_total",
        COUNTER,
        "",
        "Connections closed, because they held memory for incomplete frames for too long.",
    ),
    ("skylark_protocol_errors_total", COUNTER, "", "Connections closed, because they sent invalid data."),
    ("skylark_tls_handshakes_total", COUNTER, "outcome", "TLS handshakes, `established` or `failed`."),
    (
        "skylark_tls_refused_total",
        COUNTER,
        "",
        "Connections closed, because tls.server.mode does not allow them.",
    ),
    ("skylark_tls_reloads_total", COUNTER, "outcome", "Certificate reloads, `loaded` or `failed`."),
    ("skylark_received_bytes_total", COUNTER, "", "Bytes read from connections."),
    ("skylark_sent_bytes_total", COUNTER, "", "Bytes written to connections."),
    ("skylark_backlog_bytes", GAUGE, "", "Bytes of responses that peers have not read yet."),
    ("skylark_transfer_bytes_total", COUNTER, "way", "Bytes written to connections, by transfer method."),
    ("skylark_transfer_calls_total", COUNTER, "way", "Writes to connections, by transfer method."),
    ("skylark_transfer_cut_total", COUNTER, "", "Responses cut off, because a file failed or was deleted."),
    ("skylark_pool_held", GAUGE, "pool", "Requests that wait for their response."),
    ("skylark_pool_capacity", GAUGE, "pool", "Limit of the requests that wait."),
    ("skylark_pool_held_bytes", GAUGE, "pool", "Bytes of the requests that wait."),
    ("skylark_pool_limit_bytes", GAUGE, "pool", "Limit of the bytes that wait."),
    ("skylark_pool_head_wait_seconds", GAUGE, "pool", "How long the oldest unserved request has waited."),
    ("skylark_pool_refused_total", COUNTER, "pool reason", "Requests refused with SYSTEM_BUSY."),
    ("skylark_parked_pulls", GAUGE, "", "Pulls parked until messages arrive (long polling)."),
    ("skylark_woken_pulls_total", COUNTER, "", "Parked pulls resumed by a message."),
    ("skylark_expired_pulls_total", COUNTER, "", "Parked pulls resumed by their deadline."),
    ("skylark_pulls_total", COUNTER, "found", "Pulls served, with messages and without."),
    ("skylark_offset_commits_total", COUNTER, "", "Offset commits received."),
    ("skylark_offset_resets_waiting", GAUGE, "", "Queues in which a group was reset and has not pulled since."),
    ("skylark_heartbeats_total", COUNTER, "", "Heartbeats received."),
    ("skylark_client_calls_waiting", GAUGE, "", "Requests to clients that wait for their response."),
    ("skylark_client_calls_total", COUNTER, "outcome", "Requests to clients; `refused` ones were not sent."),
    ("skylark_replies_total", COUNTER, "outcome", "Replies, by whether they reached the requester."),
    ("skylark_acl_accounts", GAUGE, "", "Accounts of aclEnable."),
    ("skylark_acl_broken_files", GAUGE, "", "Files of accounts with an error, whose previous rules stay in effect."),
    ("skylark_acl_reloads_total", COUNTER, "", "Reloads of changed files of accounts."),
    ("skylark_acl_refused_total", COUNTER, "step", "Requests refused by aclEnable, by the step that refused them."),
    ("skylark_auth_users", GAUGE, "", "Users of authenticationEnabled."),
    ("skylark_auth_subjects", GAUGE, "", "Users with policies."),
    ("skylark_auth_refused_total", COUNTER, "step", "Requests refused by authentication or authorization."),
    ("skylark_store_writable", GAUGE, "", "1 if the store accepts messages, else 0."),
    ("skylark_store_damaged_segments", GAUGE, "", "Segments of the log that are truncated or cannot be read."),
    (
        "skylark_store_skipped_records",
        GAUGE,
        "",
        "Records that the last recovery found without adding them to a queue.",
    ),
    ("skylark_store_failed_batches_total", COUNTER, "", "Batches whose write failed; their sends were refused."),
    ("skylark_store_syncs_total", COUNTER, "", "Syncs (fdatasync) of the log."),
    ("skylark_store_waiting_for_flush", GAUGE, "", "Batches that wait for a sync or a buffer write."),
    ("skylark_store_commit_behind_bytes", GAUGE, "", "Bytes of the log that are in write buffers only."),
    ("skylark_store_queues", GAUGE, "", "Number of consume queues."),
    ("skylark_store_segments_deleted_total", COUNTER, "", "Log segments deleted by retention."),
    (
        "skylark_archive_mark_bytes",
        GAUGE,
        "",
        "Byte of the log below which an archive has the messages (`archiveHold`).",
    ),
    (
        "skylark_archive_mark_age_seconds",
        GAUGE,
        "",
        "Time since the archive job last completed; without a mark, since the first segment was due.",
    ),
    ("skylark_archive_held_bytes", GAUGE, "", "Bytes of the log that are due, and not archived."),
    ("skylark_archive_hold_overridden", GAUGE, "reason", "1 if due segments are deleted before they are archived."),
    ("skylark_archive_missed_segments_total", COUNTER, "", "Segments deleted before they were archived."),
    ("skylark_store_disk_used_ratio", GAUGE, "directory", "Used share of the file system of a directory."),
    ("skylark_store_cold_reads_total", COUNTER, "outcome", "Ranges not in memory: found cold, fetched, waited for."),
    ("skylark_store_records_checked_total", COUNTER, "", "Records from before the start whose checksum was verified."),
    ("skylark_store_records_damaged_total", COUNTER, "", "Damaged records, which were not delivered."),
    ("skylark_store_index_keys_total", COUNTER, "", "Keys added to the index."),
    (
        "skylark_replication_role",
        GAUGE,
        "role",
        "1 for the role of this node, `leader` or `follower`, and 0 for the other one; absent without replication.",
    ),
    ("skylark_replication_epoch", GAUGE, "", "Epoch of the leader; 0 in classic replication."),
    (
        "skylark_replication_blocked",
        GAUGE,
        "",
        "1 if too few copies are in sync for sends, or a slave copies nothing until its restart, else 0.",
    ),
    (
        "skylark_replication_refused_total",
        COUNTER,
        "reason",
        "Connections and frames refused on the port of replication.",
    ),
    ("skylark_replication_leader_connected", GAUGE, "", "1 if this follower is connected to its leader, else 0."),
    ("skylark_replication_in_sync", GAUGE, "", "Stores that count as copies, including this leader's."),
    ("skylark_replication_min_in_sync", GAUGE, "", "Stores that must have a message before its send is acknowledged."),
    ("skylark_replication_uncommitted_bytes", GAUGE, "", "Bytes of the log that too few copies have."),
    (
        "skylark_replication_commit_seconds",
        HISTOGRAM,
        "",
        "Time from the write of a batch until enough copies have it, if sends wait for copies.",
    ),
    ("skylark_replication_copy_in_sync", GAUGE, "copy", "1 if the copy counts as in sync, else 0."),
    ("skylark_replication_copy_connected", GAUGE, "copy", "1 if the copy is connected, else 0."),
    ("skylark_replication_copy_lag_bytes", GAUGE, "copy", "Bytes of the log that the copy has not acknowledged."),
    (
        "skylark_replication_copy_lag_seconds",
        GAUGE,
        "copy",
        "How long the copy has lacked bytes of the log; 0 if it has all.",
    ),
    ("skylark_delay_waiting", GAUGE, "level", "Messages that wait in the queue of a delay level."),
    ("skylark_delay_delivered_total", COUNTER, "level", "Delayed messages delivered."),
    ("skylark_delay_dropped_total", COUNTER, "level", "Delayed messages dropped as invalid."),
    (
        "skylark_delay_lateness_seconds",
        HISTOGRAM,
        "",
        "Delay beyond the due time until delayed messages were delivered.",
    ),
    (
        "skylark_timer_slot_lateness_seconds",
        HISTOGRAM,
        "",
        "Delay beyond the due time until timer messages were stored.",
    ),
    (
        "skylark_timer_ended_total",
        COUNTER,
        "outcome",
        "Timer messages by outcome: delivered, deleted, rolled, dropped.",
    ),
    ("skylark_timer_writable", GAUGE, "", "0 if timer messages are refused because of a file error, else 1."),
    ("skylark_timer_refused_writes_total", COUNTER, "", "Failed writes of timer files."),
    (
        "skylark_transaction_checks_total",
        COUNTER,
        "outcome",
        "Checks of half messages: a producer was `asked`, or `nobody` was connected.",
    ),
    ("skylark_transaction_discarded_total", COUNTER, "", "Half messages discarded after the last check."),
    ("skylark_transaction_dropped_total", COUNTER, "entry", "Invalid records of the half and op topics."),
    ("skylark_memory_anonymous_bytes", GAUGE, "", "Anonymous memory of the process, without mapped files."),
    ("skylark_loop_lag_seconds", HISTOGRAM, "", "Lateness of timers in the event loop."),
    ("skylark_scrape_samples", GAUGE, "", "Samples of the previous scrape."),
    ("skylark_scrape_seconds", GAUGE, "", "Duration of the previous scrape."),
    ("skylark_scrape_hold_seconds", GAUGE, "", "Longest time that the previous scrape blocked the event loop."),
    ("skylark_scrape_failures_total", COUNTER, "", "Failed collectors, whose metrics were left out."),
    ("skylark_scrape_folded_total", COUNTER, "metric", "Series merged into one, because the metric has too many."),
)

PROCESS: Final = rows(
    Switch.ALWAYS,
    Scope.BARE,
    ("process_cpu_seconds_total", COUNTER, "", "CPU time, user and system."),
    ("process_start_time_seconds", GAUGE, "", "Start time of the process, Unix time."),
    ("process_virtual_memory_bytes", GAUGE, "", "Virtual memory, including mapped files."),
    ("process_resident_memory_bytes", GAUGE, "", "Resident memory, including resident pages of mapped files."),
    ("process_open_fds", GAUGE, "", "Open file descriptors."),
    ("process_max_fds", GAUGE, "", "Limit of open file descriptors."),
)

CATALOGUE: Final[dict[str, Row]] = {
    row.name: row
    for row in (
        *REQUESTS, *REMOTING, *STATS, *CONNECTIONS, *LAGS, *STORAGE, *TRANSACTIONS,
        *EXPORTER, *OURS, *PROCESS,
    )
}  # fmt: skip

LIBRARY: Final = {
    "python_gc_*": "garbage collections by generation",
    "python_info": "version of the interpreter",
}
"""Metrics of prometheus_client itself."""
