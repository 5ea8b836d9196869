"""The table: what each request code needs. Every code that is served has one row, and a row is one line.

    kind, actions   RocketMQ 5.3: the caller needs one of the actions on the resource
    need            RocketMQ 4.9: permissions on topics and groups, or an administrator (`needs`); nothing if absent
    uses            RocketMQ 5.3: where the request names its topics and groups (`uses`); if absent, it names none, and
                    the resource is the cluster, or all topics or groups
    changes         the request creates, changes or deletes something that belongs to the cluster and not to one client,
                    so only administrators may send it: `_change` in place of `_row`

Requests that RocketMQ's generations lack have the need of a similar request, named beside the row.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from skylarkmq.broker.access.requests import needs, uses
from skylarkmq.broker.access.requests.needs import NOTHING, Need
from skylarkmq.broker.access.requests.resources import Action, Kind
from skylarkmq.broker.access.requests.uses import Actions, Uses
from skylarkmq.protocol.codes import RequestCode

C = RequestCode
TOPIC, GROUP, CLUSTER = Kind.TOPIC, Kind.GROUP, Kind.CLUSTER
PUB, SUB, GET, LIST = (Action.PUB,), (Action.SUB,), (Action.GET,), (Action.LIST,)
CREATE, UPDATE, DELETE = (Action.CREATE,), (Action.UPDATE,), (Action.DELETE,)
SUB_OR_GET, SUB_OR_UPDATE = (Action.SUB, Action.GET), (Action.SUB, Action.UPDATE)
ANY_USE = (Action.PUB, Action.SUB, Action.GET)


class Requirement(msgspec.Struct, frozen=True):
    """A row: what a request code needs."""

    code: int
    kind: Kind
    actions: Actions
    need: Need = NOTHING
    uses: Uses = ()
    changes: bool = False


def _row(code: RequestCode, kind: Kind, actions: Actions, need: Need = NOTHING, uses: Uses = ()) -> Requirement:
    """Return the row of a request that does not change the cluster, such as a send."""
    return Requirement(int(code), kind, actions, need, uses)


def _change(code: RequestCode, kind: Kind, actions: Actions, need: Need = NOTHING, uses: Uses = ()) -> Requirement:
    """Return the row of a request that changes the cluster."""
    return Requirement(int(code), kind, actions, need, uses, changes=True)


def _by_code(*rows: Requirement) -> Mapping[int, Requirement]:
    """Return the rows by code. Raises ValueError if a code has two."""
    by_code = {row.code: row for row in rows}
    if len(by_code) < len(rows):
        raise ValueError("a request code has two rows")
    return by_code


BROKER_REQUIREMENTS: Final = _by_code(
    # messages
    _row(C.SEND_MESSAGE, TOPIC, PUB, needs.SEND, uses.send),
    _row(C.SEND_MESSAGE_V2, TOPIC, PUB, needs.SEND_V2, uses.send_v2),
    _row(C.SEND_BATCH_MESSAGE, TOPIC, PUB, needs.STRICT_SEND_V2, uses.send_v2),
    _row(C.SEND_REPLY_MESSAGE, TOPIC, PUB, needs.STRICT_SEND, uses.send),
    _row(C.SEND_REPLY_MESSAGE_V2, TOPIC, PUB, needs.STRICT_SEND_V2, uses.send_v2),
    _row(C.RECALL_MESSAGE, TOPIC, PUB, needs.RECALL, uses.topic_or_none),  # not in 4.9: as a send
    _row(C.END_TRANSACTION, TOPIC, PUB, needs.STRICT_SEND, uses.end_transaction),
    _row(C.CONSUMER_SEND_MSG_BACK, GROUP, SUB, needs.SEND_BACK, uses.send_back),
    _row(C.PULL_MESSAGE, TOPIC, SUB, needs.PULL, uses.pull),
    _row(C.LITE_PULL_MESSAGE, TOPIC, SUB, needs.PULL, uses.pull),  # not in 4.9: as PULL_MESSAGE
    _row(C.QUERY_MESSAGE, TOPIC, SUB_OR_GET, needs.QUERY, uses.topic_or_none),
    _row(C.VIEW_MESSAGE_BY_ID, TOPIC, GET, uses=uses.view_message),
    # consumers
    _row(C.QUERY_CONSUMER_OFFSET, GROUP, SUB_OR_GET, uses=uses.committed_offset),
    _row(C.UPDATE_CONSUMER_OFFSET, GROUP, SUB_OR_UPDATE, needs.OFFSET, uses.committed_offset),
    _row(C.HEART_BEAT, GROUP, SUB, needs.HEARTBEAT, uses.heartbeat),
    _row(C.UNREGISTER_CLIENT, GROUP, SUB, needs.MEMBER, uses.unregister),
    _row(C.CHECK_CLIENT_CONFIG, GROUP, SUB, uses=uses.check_client),
    _row(C.LOCK_BATCH_MQ, GROUP, SUB, needs.LOCKS, uses.locks),
    _row(C.UNLOCK_BATCH_MQ, GROUP, SUB, needs.LOCKS, uses.locks),
    _row(C.GET_CONSUMER_LIST_BY_GROUP, GROUP, SUB_OR_GET, needs.MEMBER, uses.members),
    # topics
    _row(C.SEARCH_OFFSET_BY_TIMESTAMP, TOPIC, GET, uses=(uses.TOPIC,)),
    _row(C.GET_MAX_OFFSET, TOPIC, GET, uses=(uses.TOPIC,)),
    _row(C.GET_MIN_OFFSET, TOPIC, GET, uses=(uses.TOPIC,)),
    _row(C.GET_EARLIEST_MSG_STORETIME, TOPIC, GET, uses=(uses.TOPIC,)),
    _change(C.UPDATE_AND_CREATE_TOPIC, TOPIC, CREATE, needs.ADMIN, (uses.TOPIC,)),
    _change(C.UPDATE_AND_CREATE_TOPIC_LIST, TOPIC, CREATE, needs.ADMIN, uses.topic_configs),  # not in 4.9: as 17
    _change(C.DELETE_TOPIC_IN_BROKER, TOPIC, DELETE, needs.ADMIN, (uses.TOPIC,)),
    _row(C.GET_ALL_TOPIC_CONFIG, TOPIC, LIST),
    _row(C.GET_TOPIC_CONFIG, TOPIC, GET, uses=(uses.TOPIC,)),
    _row(C.GET_TOPIC_STATS_INFO, TOPIC, GET, uses=(uses.TOPIC,)),
    _row(C.QUERY_TOPIC_CONSUME_BY_WHO, TOPIC, GET, uses=(uses.TOPIC,)),
    _row(C.QUERY_CONSUME_QUEUE, TOPIC, GET, uses=(uses.OPTIONAL_TOPIC, uses.OPTIONAL_CONSUMER_GROUP)),
    _row(C.QUERY_CONSUME_TIME_SPAN, TOPIC, GET, uses=(uses.TOPIC, uses.GROUP)),
    _change(C.RESUME_CHECK_HALF_MESSAGE, TOPIC, UPDATE, uses=(uses.OPTIONAL_TOPIC,)),
    # groups
    _change(C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, GROUP, CREATE, needs.ADMIN, uses.group_config),
    _change(C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, GROUP, CREATE, needs.ADMIN, uses.group_configs),  # as 200
    _change(C.DELETE_SUBSCRIPTIONGROUP, GROUP, DELETE, needs.ADMIN, (uses.GROUP_NAME,)),
    _row(C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GROUP, LIST),
    _row(C.GET_SUBSCRIPTIONGROUP_CONFIG, GROUP, GET, needs.STRICT_GROUP, (uses.GROUP,)),  # it may create the group
    _row(C.GET_CONSUMER_CONNECTION_LIST, GROUP, GET, uses=(uses.CONSUMER_GROUP,)),
    _row(C.GET_CONSUME_STATS, GROUP, GET, uses=(uses.CONSUMER_GROUP, uses.OPTIONAL_TOPIC, uses.TOPIC_LIST)),
    _row(C.GET_CONSUMER_RUNNING_INFO, GROUP, GET, uses=(uses.CONSUMER_GROUP,)),
    _row(C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, GROUP, GET, uses=(uses.TOPIC, uses.GROUP)),
    _change(C.INVOKE_BROKER_TO_RESET_OFFSET, GROUP, UPDATE, uses=(uses.GROUP, uses.TOPIC)),
    _change(C.CONSUME_MESSAGE_DIRECTLY, GROUP, SUB, uses=(uses.CONSUMER_GROUP, uses.OPTIONAL_TOPIC)),
    # the broker
    _change(C.UPDATE_BROKER_CONFIG, CLUSTER, UPDATE, needs.ADMIN),
    _change(C.CLEAN_EXPIRED_CONSUMEQUEUE, CLUSTER, UPDATE),
    _change(C.CLEAN_UNUSED_TOPIC, CLUSTER, UPDATE),
    _change(C.DELETE_EXPIRED_COMMITLOG, CLUSTER, UPDATE),
    _row(C.GET_BROKER_CONFIG, CLUSTER, GET),
    _row(C.GET_BROKER_RUNTIME_INFO, CLUSTER, GET),
    _row(C.GET_BROKER_HA_STATUS, CLUSTER, GET),
    _row(C.GET_ALL_CONSUMER_OFFSET, CLUSTER, GET),
    _row(C.GET_ALL_DELAY_OFFSET, CLUSTER, GET),
    _row(C.GET_TIMER_CHECK_POINT, CLUSTER, GET),
    _row(C.GET_TIMER_METRICS, CLUSTER, GET),
    _row(C.GET_ALL_MESSAGE_REQUEST_MODE, CLUSTER, GET),
    _row(C.GET_PRODUCER_CONNECTION_LIST, CLUSTER, GET),
    _row(C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, CLUSTER, GET),
    _row(C.VIEW_BROKER_STATS_DATA, CLUSTER, GET),
    _row(C.GET_BROKER_CONSUME_STATS, CLUSTER, GET),
    _row(C.GET_ALL_PRODUCER_INFO, CLUSTER, GET),
    # accounts
    _change(C.UPDATE_AND_CREATE_ACL_CONFIG, CLUSTER, UPDATE),
    _change(C.DELETE_ACL_CONFIG, CLUSTER, UPDATE),
    _change(C.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, CLUSTER, UPDATE),
    _row(C.GET_BROKER_CLUSTER_ACL_INFO, CLUSTER, GET),
    _change(C.AUTH_CREATE_USER, CLUSTER, UPDATE),
    _change(C.AUTH_UPDATE_USER, CLUSTER, UPDATE),
    _change(C.AUTH_DELETE_USER, CLUSTER, UPDATE),
    _row(C.AUTH_GET_USER, CLUSTER, GET),
    _row(C.AUTH_LIST_USER, CLUSTER, GET),
    _change(C.AUTH_CREATE_ACL, CLUSTER, UPDATE),
    _change(C.AUTH_UPDATE_ACL, CLUSTER, UPDATE),
    _change(C.AUTH_DELETE_ACL, CLUSTER, UPDATE),
    _row(C.AUTH_GET_ACL, CLUSTER, GET),
    _row(C.AUTH_LIST_ACL, CLUSTER, GET),
)
NAMESRV_REQUIREMENTS: Final = _by_code(
    _row(C.GET_ROUTEINFO_BY_TOPIC, TOPIC, ANY_USE),
    _change(C.REGISTER_BROKER, CLUSTER, UPDATE),
    _change(C.UNREGISTER_BROKER, CLUSTER, UPDATE),
    _change(C.BROKER_HEARTBEAT, CLUSTER, UPDATE),
    _change(C.QUERY_DATA_VERSION, CLUSTER, UPDATE),
    _change(C.PUT_KV_CONFIG, CLUSTER, UPDATE),
    _change(C.DELETE_KV_CONFIG, CLUSTER, UPDATE),
    _change(C.DELETE_TOPIC_IN_NAMESRV, CLUSTER, UPDATE),
    _change(C.WIPE_WRITE_PERM_OF_BROKER, CLUSTER, UPDATE),
    _change(C.ADD_WRITE_PERM_OF_BROKER, CLUSTER, UPDATE),
    _change(C.UPDATE_NAMESRV_CONFIG, CLUSTER, UPDATE),
    _row(C.GET_KV_CONFIG, CLUSTER, GET),
    _row(C.GET_KVLIST_BY_NAMESPACE, CLUSTER, GET),
    _row(C.GET_BROKER_CLUSTER_INFO, CLUSTER, GET),
    _row(C.GET_NAMESRV_CONFIG, CLUSTER, GET),
    _row(C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TOPIC, LIST),
    _row(C.GET_TOPICS_BY_CLUSTER, TOPIC, LIST),
    _row(C.GET_SYSTEM_TOPIC_LIST_FROM_NS, TOPIC, LIST),
    _row(C.GET_UNIT_TOPIC_LIST, TOPIC, LIST),
    _row(C.GET_HAS_UNIT_SUB_TOPIC_LIST, TOPIC, LIST),
    _row(C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, TOPIC, LIST),
)

REGISTRATION: Final = frozenset(
    int(code)
    for code in (
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.QUERY_DATA_VERSION,
    )
)
"""Requests of brokers to name servers, on other machines too. Each of them keeps a registration alive or changes it."""

_ALL: Final = {**BROKER_REQUIREMENTS, **NAMESRV_REQUIREMENTS}


def requirement_of(code: int) -> Requirement:
    """Return the row of a code. Raises KeyError for a code that is not served."""
    return _ALL[code]
