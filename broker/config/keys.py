"""The tables: every supported key of broker.conf and namesrv.conf, with the field it sets and its permitted values.

Names and defaults are RocketMQ's where it has the key; keys that exist only here are marked "ours". Keys of RocketMQ
that are accepted and ignored are in `protocol/unsupported_keys.py`. A new setting is a field of its struct and a
row here.
"""

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Final

from skylarkmq.broker.access.security_config import parse_mapping
from skylarkmq.broker.config.parsing import (
    FLAG,
    Catalogue,
    Kind,
    Only,
    Secret,
    Setting,
    choice,
    optional,
    pattern,
    secret,
    several,
    whole,
    word,
)
from skylarkmq.broker.ha.classic.frames import MAX_TRANSFER_BYTES
from skylarkmq.broker.ha.config import MIN_SECRET_BYTES, BrokerRole
from skylarkmq.broker.ha.peers import NODE, parse_peers
from skylarkmq.broker.remoting.config import ClientAuth, TlsMode
from skylarkmq.broker.store.files.config import SMALLEST_TIMER_LOG_FILE, FlushDiskType, parse_delay_levels
from skylarkmq.protocol.unsupported_keys import INACTIVE_IN_BROKER, INACTIVE_IN_NAMESRV

QUEUE_UNIT_BYTES: Final = 20
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
_ADDRESS: Final = re.compile(r"\S+:[0-9]{1,5}")


def _queue_segment_bytes(text: str) -> int:
    return -(-int(BYTES.parse(text)) // QUEUE_UNIT_BYTES) * QUEUE_UNIT_BYTES


def _path(text: str) -> Path:
    if not text:
        raise ValueError(text)
    return Path(text)


def _delay_levels(text: str) -> str:
    parse_delay_levels(text)
    return text


def _address(text: str) -> str:
    if not _ADDRESS.fullmatch(text) or not 0 < int(text.rpartition(":")[2]) < 65_536:
        raise ValueError(text)
    return text


def _cluster_secret(text: str) -> Secret:
    if 0 < len(text.encode()) < MIN_SECRET_BYTES:
        raise ValueError("too short")
    return Secret(text)


def percent(least: int, most: int) -> Kind:
    """Return a percentage that is limited to a range, as RocketMQ does for any value."""
    kind = whole(0, 100)
    return Kind(
        f"a percentage, kept between {least} and {most}", lambda text: min(max(int(kind.parse(text)), least), most)
    )


COUNT: Final = whole(1, INT_MAX)
COUNT_OR_OFF: Final = whole(0, INT_MAX, "0 turns it off")
BYTES: Final = whole(1, LONG_MAX, "bytes")
TIMER_SEGMENT: Final = whole(SMALLEST_TIMER_LOG_FILE, 1 << 40, "bytes")
BYTES_OR_OFF: Final = whole(0, LONG_MAX, "bytes, 0 turns it off")
MS: Final = whole(1, INT_MAX, "ms")
S: Final = whole(1, INT_MAX, "s")
PORT: Final = whole(1, 65_535)
PORT_OR_OFF: Final = whole(0, 65_535, "0 turns it off")
NAME: Final = pattern("a name without spaces", r"\S{1,255}")
KEY: Final = pattern("a key", r"\S+")
HOST: Final = pattern("an IP address or a host name", r"[A-Za-z0-9._:-]+")
ADDRESS: Final = Kind("HOST:PORT", _address)
ADDRESSES: Final = several(ADDRESS, ";")
PATH: Final = Kind("a path", _path)
BROKER_ID: Final = whole(0, LONG_MAX, "0 for a master")
ROLE: Final = word({role.value: role for role in BrokerRole})
PERMISSION: Final = word({"2": 2, "4": 4, "6": 6, "0": 0})
LEAST_PAGES: Final = whole(0, INT_MAX, "pages of 4096 bytes")
QUEUE_SEGMENT: Final = Kind("a number of bytes, rounded up to a multiple of 20", _queue_segment_bytes)
LABELS: Final = pattern("name:value,name:value", r"(?:[A-Za-z_]\w*:[^,:]+(?:,[A-Za-z_]\w*:[^,:]+)*)?")
DELAY_LEVELS: Final = Kind("delays with a unit, such as 1s 5s 10s 1m 2h 1d", _delay_levels)
HOURS: Final = several(whole(0, 23, "an hour of the day"), ";")
FLUSH_TYPE: Final = word({kind.value: kind for kind in FlushDiskType})
FILE: Final = optional(PATH)
SECRET: Final = secret(optional(Kind("a text", Secret)))
CLUSTER_SECRET: Final = secret(optional(Kind(f"a text of at least {MIN_SECRET_BYTES} bytes", _cluster_secret)))
PEERS: Final = Kind("NODE=HOST:PORT, each node once; several are separated by ','", parse_peers)
SUBJECTS: Final = Kind("SUBJECT=ACCOUNT, each subject once; several are separated by ';'", parse_mapping)
NETWORKS: Final = several(Kind("a network such as 10.0.0.0/8", ip_network), ";")
TLS_MODE: Final = word({mode.value: mode for mode in TlsMode})
CLIENT_AUTH: Final = word({need.value: need for need in ClientAuth})
CODES: Final = pattern("request codes, separated by ','", r"(?:[\w.]+(?:\s*,\s*[\w.]+)*)?")
FRAME_LIMIT: Final = whole(1_024, 0xFFFFFF + 1, "bytes")


def section(name: str, *rows: tuple[str, str, Kind]) -> tuple[Setting, ...]:
    """Return rows of (key, field, kind) that belong to one struct."""
    return tuple(Setting(key, name, field, kind) for key, field, kind in rows)


BROKER: Final = section(
    "broker",
    ("brokerClusterName", "broker_cluster_name", NAME),
    ("brokerName", "broker_name", NAME),
    ("brokerId", "broker_id", BROKER_ID),
    ("namesrvAddr", "namesrv_addresses", ADDRESSES),
    ("brokerPermission", "broker_permission", PERMISSION),
    ("defaultTopicQueueNums", "default_topic_queue_nums", whole(1, 65_536)),
    ("autoCreateTopicEnable", "auto_create_topic_enable", FLAG),
    ("autoCreateSubscriptionGroup", "auto_create_subscription_group", FLAG),
    ("regionId", "region_id", NAME),
    ("traceOn", "trace_on", FLAG),
    ("startAcceptSendRequestTimeStamp", "start_accept_send_request_time_stamp", whole(0, LONG_MAX, "Unix ms")),
    ("longPollingEnable", "long_polling_enable", FLAG),
    ("shortPollingTimeMills", "short_polling_time_mills", MS),
    ("litePullMessageEnable", "lite_pull_message_enable", FLAG),
    ("enablePropertyFilter", "enable_property_filter", FLAG),
    ("filterSupportRetry", "filter_support_retry", FLAG),
    ("slaveReadEnable", "slave_read_enable", FLAG),
    ("realTimeNotifyConsumerChange", "real_time_notify_consumer_change", FLAG),
    ("storeReplyMessageEnable", "store_reply_message_enable", FLAG),
    ("useServerSideResetOffset", "use_server_side_reset_offset", FLAG),
    ("rebalanceLockMaxLiveTime", "rebalance_lock_max_live_time", MS),  # a JVM property in RocketMQ, with another name
    ("notifyConsumerIdsChangedEnable", "notify_consumer_ids_changed_enable", FLAG),
    ("registerNameServerPeriod", "register_name_server_period", MS),
    ("flushConsumerOffsetInterval", "flush_consumer_offset_interval", MS),
    ("recallMessageEnable", "recall_message_enable", FLAG),
    ("flushDelayOffsetInterval", "flush_delay_offset_interval", MS),
    ("rejectTransactionMessage", "reject_transaction_message", FLAG),
    ("transactionTimeOut", "transaction_time_out", MS),
    ("transactionCheckMax", "transaction_check_max", COUNT),
    ("transactionCheckInterval", "transaction_check_interval", MS),
    ("traceTopicEnable", "trace_topic_enable", FLAG),
    ("msgTraceTopicName", "msg_trace_topic_name", NAME),
    ("configBlackList", "config_black_list", several(KEY, ";")),
)

LISTEN: Final = section(
    "listen",
    ("listenPort", "port", PORT),
    ("bindAddress", "bind_host", optional(HOST)),
    ("brokerIP1", "advertised_host", optional(HOST)),
)

REPLICATION: Final = section(
    "replication",
    ("brokerRole", "broker_role", ROLE),
    ("brokerIP2", "advertised_host", optional(HOST)),
    ("haListenPort", "ha_listen_port", whole(0, 65_535, "0: listenPort + 1")),
    ("haAllowedNetworks", "ha_allowed_networks", NETWORKS),  # ours
    ("haMaxConnections", "ha_max_connections", COUNT),  # ours
    ("haMasterAddress", "ha_master_address", optional(ADDRESS)),
    ("haSendHeartbeatInterval", "ha_send_heartbeat_interval", MS),
    ("haHousekeepingInterval", "ha_housekeeping_interval", MS),
    ("haTransferBatchSize", "ha_transfer_batch_size", whole(1, MAX_TRANSFER_BYTES, "bytes")),
    ("haSlaveFallbehindMax", "ha_slave_fallbehind_max", BYTES),  # 4.9
    ("haMaxGapNotInSync", "ha_max_gap_not_in_sync", BYTES),  # 5.3
    ("slaveTimeout", "slave_timeout", MS),
    ("inSyncReplicas", "in_sync_replicas", COUNT),
    ("minInSyncReplicas", "min_in_sync_replicas", COUNT),
    ("totalReplicas", "total_replicas", COUNT),
    ("haFlowControlEnable", "ha_flow_control_enable", FLAG),
    ("maxHaTransferByteInSecond", "max_ha_transfer_byte_in_second", BYTES),
    ("haPeers", "ha_peers", PEERS),  # ours, as those below
    ("haNodeId", "ha_node_id", pattern("the name of a node in haPeers", NODE.pattern)),
    ("haClusterSecret", "ha_cluster_secret", CLUSTER_SECRET),
    ("haCatchUpBytesPerSecond", "ha_catch_up_bytes_per_second", BYTES_OR_OFF),
)

REMOTING: Final = section(
    "remoting",
    ("com.rocketmq.remoting.frameMaxLength", "max_frame_bytes", FRAME_LIMIT),  # a JVM property in RocketMQ
    ("maxConnections", "max_connections", COUNT),  # ours; RocketMQ has no limit
    ("serverChannelMaxIdleTimeSeconds", "max_idle_s", S),
    ("channelWriteBufferMaxBytes", "peer_backlog_bytes", BYTES),  # ours
    ("serverWriteBufferMaxBytes", "total_backlog_bytes", BYTES),  # ours
    ("serverUnfinishedFramesMaxBytes", "unfinished_frames_bytes", BYTES),  # ours
    ("serverUnfinishedFramesHostPercent", "unfinished_frames_host_percent", whole(1, 100, "percent")),  # ours
    ("serverUnfinishedFrameMinRate", "unfinished_frame_min_rate", BYTES),  # ours; per second
    ("serverUnfinishedFrameSlowSeconds", "unfinished_frame_slow_s", S),  # ours
)

TRANSFER: Final = section(
    "remoting",
    ("transferMsgByHeap", "transfer_by_copying", FLAG),
    ("busyPollMicros", "busy_poll_us", whole(0, 1_000)),  # ours
    ("keepCpusAwake", "keep_cpus_awake", FLAG),  # ours
)

# JVM properties in RocketMQ. `tls.config.file` names a file with more of them, which is read after the configuration
# file and before the environment.
TLS: Final = section(
    "tls",
    ("tls.server.mode", "mode", TLS_MODE),
    ("tls.config.file", "config_file", PATH),
    ("tls.test.mode.enable", "test_mode", FLAG),
    ("tls.server.certPath", "cert_path", FILE),
    ("tls.server.keyPath", "key_path", FILE),
    ("tls.server.keyPassword", "key_password", SECRET),
    ("tls.server.need.client.auth", "need_client_auth", CLIENT_AUTH),
    ("tls.server.authClient", "auth_client", FLAG),
    ("tls.server.trustCertPath", "trust_cert_path", FILE),
)

OUTBOUND_TLS: Final = section(
    "outbound_tls",
    ("tls.enable", "enable", FLAG),
    ("useTLS", "use_tls", FLAG),
    ("tls.client.certPath", "cert_path", FILE),
    ("tls.client.keyPath", "key_path", FILE),
    ("tls.client.keyPassword", "key_password", SECRET),
    ("tls.client.authServer", "auth_server", FLAG),
    ("tls.client.trustCertPath", "trust_cert_path", FILE),
)

SECURITY: Final = section(  # ours
    "security",
    ("namesrvAuth", "namesrv_auth", FLAG),
    ("accountsFile", "accounts_file", FILE),
    ("tlsAuthMapping", "tls_auth_mapping", SUBJECTS),
    ("adminAllowedNetworks", "admin_allowed_networks", NETWORKS),
    ("strictSecretFiles", "strict_secret_files", FLAG),
)

ACCESS: Final = section(
    "access",
    ("authenticationEnabled", "authentication_enabled", FLAG),
    ("authorizationEnabled", "authorization_enabled", FLAG),
    ("authenticationWhitelist", "authentication_whitelist", CODES),
    ("authorizationWhitelist", "authorization_whitelist", CODES),
    ("initAuthenticationUser", "init_authentication_user", SECRET),
    ("migrateAuthFromV1Enabled", "migrate_auth_from_v1_enabled", FLAG),
    ("innerClientAuthenticationCredentials", "inner_client_authentication_credentials", SECRET),
)

POOLS: Final = section(
    "pools",
    ("sendThreadPoolQueueCapacity", "send", COUNT),
    ("pullThreadPoolQueueCapacity", "pull", COUNT),
    ("litePullThreadPoolQueueCapacity", "lite_pull", COUNT),
    ("queryThreadPoolQueueCapacity", "query", COUNT),
    ("clientManagerThreadPoolQueueCapacity", "client_manage", COUNT),
    ("heartbeatThreadPoolQueueCapacity", "heartbeat", COUNT),
    ("consumerManagerThreadPoolQueueCapacity", "consumer_manage", COUNT),
    ("endTransactionPoolQueueCapacity", "end_transaction", COUNT),
    ("adminBrokerThreadPoolQueueCapacity", "admin", COUNT),
    ("replyThreadPoolQueueCapacity", "reply", COUNT),
)

WAITS: Final = section(
    "waits",
    ("waitTimeMillsInSendQueue", "send", MS),
    ("waitTimeMillsInPullQueue", "pull", MS),
    ("waitTimeMillsInLitePullQueue", "lite_pull", MS),
    ("waitTimeMillsInHeartbeatQueue", "heartbeat", MS),
    ("waitTimeMillsInTransactionQueue", "end_transaction", MS),
    ("waitTimeMillsInAdminBrokerQueue", "admin", MS),
)

FAST_FAILURE: Final = section(
    "fast_failure",
    ("brokerFastFailureEnable", "broker_fast_failure_enable", FLAG),
    ("osPageCacheBusyTimeOutMills", "os_page_cache_busy_time_out_mills", MS),
    ("threadPoolQueueMaxBytes", "thread_pool_queue_max_bytes", BYTES),  # ours
)

STORE: Final = section(
    "store",
    ("storePathRootDir", "store_path_root_dir", PATH),
    ("storePathCommitLog", "commit_log_path", PATH),  # must be the default: storePathRootDir/commitlog
    ("mappedFileSizeCommitLog", "mapped_file_size_commit_log", whole(4_096, 1 << 40, "bytes")),
    ("mappedFileSizeConsumeQueue", "mapped_file_size_consume_queue", QUEUE_SEGMENT),
    ("maxMessageSize", "max_message_size", whole(1, INT_MAX, "bytes")),
    ("flushDiskType", "flush_disk_type", FLUSH_TYPE),
    ("flushIntervalCommitLog", "flush_interval_commit_log", MS),
    ("flushCommitLogLeastPages", "flush_commit_log_least_pages", LEAST_PAGES),
    ("flushCommitLogThoroughInterval", "flush_commit_log_thorough_interval", MS),
    ("flushCommitLogTimed", "flush_commit_log_timed", FLAG),
    ("wakeFlushWhenPutMessage", "wake_flush_when_put_message", FLAG),
    ("flushLagLimit", "flush_lag_limit", BYTES),  # ours
    ("flushIntervalConsumeQueue", "flush_interval_consume_queue", MS),
    ("flushConsumeQueueLeastPages", "flush_consume_queue_least_pages", LEAST_PAGES),
    ("flushConsumeQueueThoroughInterval", "flush_consume_queue_thorough_interval", MS),
    ("syncFlushTimeout", "sync_flush_timeout", MS),
    ("warmMapedFileEnable", "warm_maped_file_enable", FLAG),
    ("flushLeastPagesWhenWarmMapedFile", "flush_least_pages_when_warm_maped_file", COUNT),
    ("transientStorePoolEnable", "transient_store_pool_enable", FLAG),
    ("transientStorePoolSize", "transient_store_pool_size", COUNT),
    ("fastFailIfNoBufferInStorePool", "fast_fail_if_no_buffer_in_store_pool", FLAG),
    ("commitIntervalCommitLog", "commit_interval_commit_log", MS),
    ("commitCommitLogLeastPages", "commit_commit_log_least_pages", LEAST_PAGES),
    ("commitCommitLogThoroughInterval", "commit_commit_log_thorough_interval", MS),
    ("wakeCommitWhenPutMessage", "wake_commit_when_put_message", FLAG),
    ("enabledAppendPropCRC", "enabled_append_prop_crc", FLAG),
    ("forceVerifyPropCRC", "force_verify_prop_crc", FLAG),
    ("maxTransferBytesOnMessageInMemory", "max_transfer_bytes_on_message_in_memory", BYTES),
    ("maxTransferCountOnMessageInMemory", "max_transfer_count_on_message_in_memory", COUNT),
    ("maxTransferBytesOnMessageInDisk", "max_transfer_bytes_on_message_in_disk", BYTES),
    ("maxTransferCountOnMessageInDisk", "max_transfer_count_on_message_in_disk", COUNT),
    ("accessMessageInMemoryMaxRatio", "access_message_in_memory_max_ratio", whole(0, 100, "percent")),
    ("maxFilterMessageSize", "max_filter_message_size", whole(QUEUE_UNIT_BYTES, INT_MAX, "bytes")),
    ("diskFallRecorded", "disk_fall_recorded", FLAG),
    ("travelCqFileNumWhenGetMessage", "travel_cq_file_num_when_get_message", COUNT),
    ("coldReadThreads", "cold_read_threads", whole(1, 64)),  # ours
    ("messageIndexEnable", "message_index_enable", FLAG),
    ("messageIndexSafe", "message_index_safe", FLAG),
    ("maxHashSlotNum", "max_hash_slot_num", COUNT),
    ("maxIndexNum", "max_index_num", whole(2, INT_MAX)),
    ("maxMsgsNumBatch", "max_msgs_num_batch", COUNT),
    ("defaultQueryMaxNum", "default_query_max_num", COUNT),
    ("messageDelayLevel", "message_delay_level", DELAY_LEVELS),
    ("timerWheelEnable", "timer_wheel_enable", FLAG),
    ("timerPrecisionMs", "timer_precision_ms", whole(100, 60_000, "ms")),
    ("timerMaxDelaySec", "timer_max_delay_sec", S),
    ("timerRollWindowSlot", "timer_roll_window_slot", COUNT),
    ("timerFlushIntervalMs", "timer_flush_interval_ms", MS),
    ("timerCongestNumEachSlot", "timer_congest_num_each_slot", COUNT),
    ("mappedFileSizeTimerLog", "mapped_file_size_timer_log", TIMER_SEGMENT),
    ("checkCRCOnRecover", "check_crc_on_recover", FLAG),
    ("openQueueFiles", "open_queue_files", COUNT),  # ours
    ("queueUnitsInMemory", "queue_units_in_memory", whole(0, INT_MAX, "units")),  # ours
    ("fileReservedTime", "file_reserved_time", whole(0, INT_MAX, "hours")),
    ("deleteWhen", "delete_when", HOURS),
    ("diskMaxUsedSpaceRatio", "disk_max_used_space_ratio", percent(10, 95)),
    ("diskSpaceCleanForciblyRatio", "disk_space_clean_forcibly_ratio", percent(30, 85)),
    ("diskSpaceWarningLevelRatio", "disk_space_warning_level_ratio", percent(35, 90)),
    ("cleanFileForciblyEnable", "clean_file_forcibly_enable", FLAG),
    ("cleanResourceInterval", "clean_resource_interval", MS),
    ("deleteFileBatchMax", "delete_file_batch_max", COUNT),
    ("deleteCommitLogFilesInterval", "delete_commit_log_files_interval", whole(0, INT_MAX, "ms")),
    ("deleteConsumeQueueFilesInterval", "delete_consume_queue_files_interval", whole(0, INT_MAX, "ms")),
    ("destroyMapedFileIntervalForcibly", "destroy_maped_file_interval_forcibly", MS),
    ("redeleteHangedFileInterval", "redelete_hanged_file_interval", MS),
    ("archiveHold", "archive_hold", FLAG),  # ours
    ("archiveHoldMaxBytes", "archive_hold_max_bytes", whole(0, LONG_MAX, "bytes")),  # ours; 0: no limit
    ("archiveHoldMaxHours", "archive_hold_max_hours", whole(0, INT_MAX, "hours")),  # ours
    ("backupMaxRate", "backup_max_rate", BYTES_OR_OFF),  # ours; per second
    ("forceGap", "force_gap", FLAG),  # ours; --force-gap
)

OPS: Final = section(
    "ops",
    ("metricsPromExporterPort", "port", PORT_OR_OFF),
    ("metricsPromExporterHost", "host", optional(HOST)),
)

PAGE: Final = section(
    "ops",
    ("metricsAuth", "metrics_auth", optional(FLAG)),  # ours
    ("metricsTls", "metrics_tls", FLAG),  # ours
    ("metricsExporterType", "metrics_exporter_type", choice("PROM", "DISABLE", "OTLP_GRPC", "LOG")),
    ("metricsLabel", "metrics_label", LABELS),
    ("metricsOtelCardinalityLimit", "metrics_otel_cardinality_limit", COUNT),
)
CONSOLE: Final = section(  # ours
    "console",
    ("consolePort", "port", PORT_OR_OFF),
    ("consoleHost", "host", HOST),
    ("consoleTls", "tls", FLAG),
)
METRICS: Final = section(
    "ops",
    ("enableConnectionMetrics", "enable_connection_metrics", FLAG),
    ("enableLagAndDlqMetrics", "enable_lag_and_dlq_metrics", FLAG),
    ("enableMessageStoreMetrics", "enable_message_store_metrics", FLAG),
    ("enableRemotingMetrics", "enable_remoting_metrics", FLAG),
    ("enableRequestMetrics", "enable_request_metrics", FLAG),
    ("enableStatsMetrics", "enable_stats_metrics", FLAG),
    ("enableTransactionMetrics", "enable_transaction_metrics", FLAG),
)

NAMESRV: Final = section(
    "namesrv",
    ("kvConfigPath", "kv_config_path", PATH),
    ("scanNotActiveBrokerInterval", "scan_not_active_broker_interval", MS),
    ("orderMessageEnable", "order_message_enable", FLAG),
    ("returnOrderTopicConfigToBroker", "return_order_topic_config_to_broker", FLAG),
    ("needWaitForService", "need_wait_for_service", FLAG),
    ("waitSecondsForService", "wait_seconds_for_service", S),
    ("deleteTopicWithBrokerRegistration", "delete_topic_with_broker_registration", FLAG),
    ("enableAllTopicList", "enable_all_topic_list", FLAG),
    ("enableTopicList", "enable_topic_list", FLAG),
    ("maxRouteBrokers", "max_route_brokers", COUNT),  # ours
    ("maxRouteAddresses", "max_route_addresses", COUNT),  # ours
    ("maxRouteTopics", "max_route_topics", COUNT),  # ours
    ("maxRouteQueues", "max_route_queues", COUNT),  # ours
    ("maxKVConfigBytes", "max_kv_config_bytes", BYTES),  # ours
)

PLAIN_ACL: Final = section(
    "access",
    ("aclEnable", "acl_enable", FLAG),
    ("aclStrict", "acl_strict", FLAG),  # ours
    ("aclConfigDir", "acl_config_dir", PATH),  # ours; ROCKETMQ_HOME/conf in RocketMQ
)

LIMITS: Final = section(  # ours
    "limits",
    ("maxTopics", "max_topics", COUNT),
    ("maxQueuesPerTopic", "max_queues_per_topic", COUNT),
    ("maxQueues", "max_queues", COUNT),
    ("maxSubscriptionGroups", "max_subscription_groups", COUNT),
    ("maxGroupsPerClient", "max_groups_per_client", COUNT),
    ("maxSubscriptionsPerGroup", "max_subscriptions_per_group", COUNT),
    ("maxLocksPerGroup", "max_locks_per_group", COUNT),
    ("maxConsumerOffsets", "max_consumer_offsets", COUNT),
    ("maxClientIdLength", "max_client_id_length", COUNT),
    ("maxExpressionLength", "max_expression_length", COUNT),
)

CLIENT_QUOTAS: Final = section(  # ours
    "quotas",
    ("quotaClientRequestsPerSecond", "quota_client_requests_per_second", COUNT_OR_OFF),
    ("quotaClientBytesInPerSecond", "quota_client_bytes_in_per_second", BYTES_OR_OFF),
    ("quotaClientBytesOutPerSecond", "quota_client_bytes_out_per_second", BYTES_OR_OFF),
    ("quotaClientConnections", "quota_client_connections", COUNT_OR_OFF),
    ("quotaBurstMills", "quota_burst_mills", whole(1, 60_000, "ms")),
    ("quotaMaxWaitMills", "quota_max_wait_mills", whole(0, 60_000, "ms")),
)
QUOTAS: Final = section(  # ours
    "quotas",
    ("quotaClientParkedPulls", "quota_client_parked_pulls", COUNT_OR_OFF),
    ("quotaAccountRequestsPerSecond", "quota_account_requests_per_second", COUNT_OR_OFF),
    ("quotaAccountBytesInPerSecond", "quota_account_bytes_in_per_second", BYTES_OR_OFF),
    ("quotaAccountBytesOutPerSecond", "quota_account_bytes_out_per_second", BYTES_OR_OFF),
    ("quotaAccountConnections", "quota_account_connections", COUNT_OR_OFF),
    ("quotaAccountTopics", "quota_account_topics", COUNT_OR_OFF),
    ("quotaAccountGroups", "quota_account_groups", COUNT_OR_OFF),
    ("quotaTopicRequestsPerSecond", "quota_topic_requests_per_second", COUNT_OR_OFF),
    ("quotaTopicBytesInPerSecond", "quota_topic_bytes_in_per_second", BYTES_OR_OFF),
    ("quotaTopicBytesOutPerSecond", "quota_topic_bytes_out_per_second", BYTES_OR_OFF),
)

AUDIT: Final = section(  # ours
    "audit",
    ("auditLog", "audit_log", FILE),
    ("auditLogMaxBytes", "audit_log_max_bytes", whole(4_096, LONG_MAX, "bytes")),
    ("auditLogFiles", "audit_log_files", whole(1, 1_000)),
    ("auditSampleOneIn", "audit_sample_one_in", whole(0, INT_MAX)),
)

NAMESRV_IN_BROKER: Final = section("namesrv", ("embeddedNamesrvPort", "listen_port", PORT))  # ours
NAMESRV_ALONE: Final = section(
    "namesrv",
    ("listenPort", "listen_port", PORT),
    ("bindAddress", "bind_address", HOST),
    ("configBlackList", "config_black_list", several(KEY, ";")),
)

NO_ELECTIONS: Final = "RocketMQ's elections of masters (controller mode, DLedger) are not part of this version"

ONLY_VALUES: Final = {
    "haStore": Only("none", "a store of decisions is not part of this version"),
    "enableControllerMode": Only("false", NO_ELECTIONS),
    "enableDLegerCommitLog": Only("false", NO_ELECTIONS),
    "duplicationEnable": Only("false", "replication between masters is not part of this version"),
    "readOnlyCommitLogStorePaths": Only("", "a log in more than one directory is not part of this version"),
    "storeType": Only("default", "RocksDB queues are not part of this version"),
}

SHOWN_TOO: Final = {"filterServerNums": "0"}
"""Settings that RocketMQ's tools read from a broker, and that do not exist here."""

BROKER_KEYS: Final = Catalogue(
    settings=(
        *(BROKER + LISTEN + REPLICATION + NAMESRV_IN_BROKER + NAMESRV + SECURITY + ACCESS),
        *(REMOTING + TRANSFER + TLS + OUTBOUND_TLS + POOLS + WAITS + FAST_FAILURE),
        *(STORE + OPS + PAGE + CONSOLE + METRICS + LIMITS),
        *PLAIN_ACL,
        *(CLIENT_QUOTAS + QUOTAS + AUDIT),
    ),
    only=ONLY_VALUES,
    inactive=INACTIVE_IN_BROKER,
)
NAMESRV_KEYS: Final = Catalogue(
    settings=NAMESRV_ALONE + NAMESRV + SECURITY + CLIENT_QUOTAS + AUDIT + REMOTING + TLS + OPS + PAGE,
    only={},
    inactive=INACTIVE_IN_NAMESRV,
)
EMBEDDED_NAMESRV_KEYS: Final = Catalogue(
    settings=NAMESRV_IN_BROKER + NAMESRV,
    only={},
    inactive=INACTIVE_IN_NAMESRV,
)
"""The keys of the name server inside a broker: those that requests 318 and 319 can change and read."""
