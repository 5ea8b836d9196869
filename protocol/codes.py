"""The numbers of the protocol: request and response codes, languages, flag and permission bits, reserved topic names.

The names are RocketMQ's own, so they can be looked up in its documentation. Codes that no part of this project serves
or sends are left out: the broker answers an unknown code with REQUEST_CODE_NOT_SUPPORTED (3) and does not need its
name. Source: docs/reference/wire.md, "Codes".
"""

from enum import IntEnum
from typing import Final

VERSION: Final = 479
VERSION_NAME: Final = "V5_3_3"
FAQ: Final = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class RequestCode(IntEnum):
    """Codes of requests."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    UPDATE_AND_CREATE_TOPIC_LIST = 18
    GET_ALL_TOPIC_CONFIG = 21
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_CONSUMER_LIST_BY_GROUP = 38
    CHECK_TRANSACTION_STATE = 39
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ALL_DELAY_OFFSET = 45
    CHECK_CLIENT_CONFIG = 46
    UPDATE_AND_CREATE_ACL_CONFIG = 50
    DELETE_ACL_CONFIG = 51
    GET_BROKER_CLUSTER_ACL_INFO = 52
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG = 53
    GET_TIMER_CHECK_POINT = 60
    GET_TIMER_METRICS = 61
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    GET_KVLIST_BY_NAMESPACE = 219
    RESET_CONSUMER_CLIENT_OFFSET = 220
    GET_CONSUMER_STATUS_FROM_CLIENT = 221
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223
    GET_TOPICS_BY_CLUSTER = 224
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = 225
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    QUERY_CONSUME_TIME_SPAN = 303
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    CLEAN_EXPIRED_CONSUMEQUEUE = 306
    GET_CONSUMER_RUNNING_INFO = 307
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = 310
    GET_UNIT_TOPIC_LIST = 311
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313
    VIEW_BROKER_STATS_DATA = 315
    CLEAN_UNUSED_TOPIC = 316
    GET_BROKER_CONSUME_STATS = 317
    UPDATE_NAMESRV_CONFIG = 318
    GET_NAMESRV_CONFIG = 319
    SEND_BATCH_MESSAGE = 320
    QUERY_CONSUME_QUEUE = 321
    QUERY_DATA_VERSION = 322
    RESUME_CHECK_HALF_MESSAGE = 323
    SEND_REPLY_MESSAGE = 324
    SEND_REPLY_MESSAGE_V2 = 325
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_ALL_PRODUCER_INFO = 328
    DELETE_EXPIRED_COMMITLOG = 329
    GET_TOPIC_CONFIG = 351
    GET_SUBSCRIPTIONGROUP_CONFIG = 352
    LITE_PULL_MESSAGE = 361
    RECALL_MESSAGE = 370
    GET_ALL_MESSAGE_REQUEST_MODE = 402
    BROKER_HEARTBEAT = 904
    GET_BROKER_HA_STATUS = 907
    RESET_MASTER_FLUSH_OFFSET = 908
    AUTH_CREATE_USER = 3001
    AUTH_UPDATE_USER = 3002
    AUTH_DELETE_USER = 3003
    AUTH_GET_USER = 3004
    AUTH_LIST_USER = 3005
    AUTH_CREATE_ACL = 3006
    AUTH_UPDATE_ACL = 3007
    AUTH_DELETE_ACL = 3008
    AUTH_GET_ACL = 3009
    AUTH_LIST_ACL = 3010


class ResponseCode(IntEnum):
    """Codes of responses: the result of a request."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    UPDATE_AND_CREATE_ACL_CONFIG_FAILED = 209  # of 4.9; 5.x has POLLING_FULL
    DELETE_ACL_CONFIG_FAILED = 210  # of 4.9; 5.x has POLLING_TIMEOUT
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED = 211  # of 4.9; 5.x has BROKER_NOT_EXIST
    FLOW_CONTROL = 215
    ILLEGAL_OPERATION = 604
    GO_AWAY = 1500


class LanguageCode(IntEnum):
    """Implementation language of a peer. Binary headers carry its ordinal, JSON headers its name."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


class Flag:
    """Bits of the `flag` field of a frame."""

    RESPONSE: Final = 1
    ONEWAY: Final = 2


class SysFlag:
    """Bits of the `sysFlag` field of a message. The store sets the IPv6 bits according to the addresses it writes."""

    COMPRESSED: Final = 0x1
    MULTI_TAGS: Final = 0x2
    TRANSACTION_PREPARED: Final = 0x4
    TRANSACTION_COMMIT: Final = 0x8
    TRANSACTION_ROLLBACK: Final = 0xC
    TRANSACTION_MASK: Final = 0xC
    BORN_HOST_V6: Final = 0x10
    STORE_HOST_V6: Final = 0x20
    COMPRESSION_TYPE_MASK: Final = 0x700
    COMPRESSION_LZ4: Final = 0x100
    COMPRESSION_ZSTD: Final = 0x200
    COMPRESSION_ZLIB: Final = 0x300


class PullSysFlag:
    """Bits of the `sysFlag` field of a pull request."""

    COMMIT_OFFSET: Final = 0x1
    SUSPEND: Final = 0x2
    SUBSCRIPTION: Final = 0x4
    CLASS_FILTER: Final = 0x8
    LITE_PULL: Final = 0x10


class Permission:
    """Bits of the `perm` field of a topic or broker. A topic with INHERIT can serve as the template of new topics."""

    INHERIT: Final = 1
    WRITE: Final = 2
    READ: Final = 4
    PRIORITY: Final = 8
    READ_WRITE: Final = READ | WRITE


class SystemTopic:
    """Names that RocketMQ reserves."""

    AUTO_CREATE: Final = "TBW102"
    SELF_TEST: Final = "SELF_TEST_TOPIC"
    BENCHMARK: Final = "BenchmarkTest"
    OFFSET_MOVED: Final = "OFFSET_MOVED_EVENT"
    SCHEDULE: Final = "SCHEDULE_TOPIC_XXXX"
    TRANSACTION_HALF: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
    TRANSACTION_OP: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
    TRANSACTION_CHECK_MAX: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
    TRACE: Final = "RMQ_SYS_TRACE_TOPIC"
    CHECKPOINT: Final = "CHECKPOINT_TOPIC"
    TIMER: Final = "rmq_sys_wheel_timer"
    REPLY_SUFFIX: Final = "_REPLY_TOPIC"
    SYSTEM_PREFIX: Final = "rmq_sys_"
    TRACE_DATA_PREFIX: Final = "rmq_sys_TRACE_DATA_"


RESERVED_TOPICS: Final = frozenset((
    SystemTopic.AUTO_CREATE,
    SystemTopic.SCHEDULE,
    SystemTopic.BENCHMARK,
    SystemTopic.TRANSACTION_HALF,
    SystemTopic.TRANSACTION_OP,
    SystemTopic.TRANSACTION_CHECK_MAX,
    SystemTopic.TRACE,
    SystemTopic.SELF_TEST,
    SystemTopic.OFFSET_MOVED,
    SystemTopic.CHECKPOINT,
))  # fmt: skip


def is_reserved_topic(name: str) -> bool:
    """Return whether RocketMQ reserves this topic name on every broker."""
    return name in RESERVED_TOPICS or name.startswith(SystemTopic.SYSTEM_PREFIX)


INTERNAL_TOPICS: Final = frozenset((
    SystemTopic.SCHEDULE,
    SystemTopic.TRANSACTION_HALF,
    SystemTopic.TRANSACTION_OP,
    SystemTopic.TRANSACTION_CHECK_MAX,
    SystemTopic.SELF_TEST,
    SystemTopic.OFFSET_MOVED,
    SystemTopic.TIMER,
))  # fmt: skip


def is_internal_topic(name: str) -> bool:
    """Return whether only the broker itself may write to the topic: INTERNAL_TOPICS and every topic with SYSTEM_PREFIX,
    except the trace data topics (TRACE_DATA_PREFIX)."""
    if name in INTERNAL_TOPICS:
        return True
    return name.startswith(SystemTopic.SYSTEM_PREFIX) and not name.startswith(SystemTopic.TRACE_DATA_PREFIX)


RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
TRANSACTIONS_GROUP: Final = SYSTEM_GROUP_PREFIX + "TRANS"
"""The broker's own group. Its committed offsets are where the search for open half messages begins after a start."""
SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
