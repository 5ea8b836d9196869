"""The table: what each request code needs, and whether it changes the cluster. Every code that is served has a row.

`kind` and `actions` are those of RocketMQ 5.3: the caller needs one of the actions on the resource. The access control
(`auth`, `plain_acl`) reads the names of topics and groups from the request. `changes`: the request creates, changes or
deletes something that belongs to the cluster and not to one client, so only administrators may send it.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

import msgspec

from skylarkmq.protocol.codes import RequestCode


class Kind(Enum):
    """The kinds of resources, with RocketMQ's names."""

    CLUSTER = "Cluster"
    TOPIC = "Topic"
    GROUP = "Group"


class Action(Enum):
    """What a caller wants to do with a resource, with RocketMQ's names."""

    ALL = "All"
    ANY = "Any"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Requirement(msgspec.Struct, frozen=True):
    """What a request code needs: one of `actions` on a resource of `kind`."""

    code: int
    kind: Kind
    actions: tuple[Action, ...]
    changes: bool = False


def _rows(
    kind: Kind, actions: tuple[Action, ...], codes: Iterable[RequestCode], *, changes: bool = False
) -> Iterator[tuple[int, Requirement]]:
    for code in codes:
        yield int(code), Requirement(int(code), kind, actions, changes)


BROKER_REQUIREMENTS: Final[dict[int, Requirement]] = dict(
    (
        *_rows(
            Kind.TOPIC,
            (Action.PUB,),
            codes=(
                RequestCode.SEND_MESSAGE,
                RequestCode.SEND_MESSAGE_V2,
                RequestCode.SEND_BATCH_MESSAGE,
                RequestCode.SEND_REPLY_MESSAGE,
                RequestCode.SEND_REPLY_MESSAGE_V2,
                RequestCode.RECALL_MESSAGE,
                RequestCode.END_TRANSACTION,
            ),
        ),
        *_rows(Kind.GROUP, (Action.SUB,), codes=(RequestCode.CONSUMER_SEND_MSG_BACK,)),
        *_rows(
            Kind.TOPIC,
            (Action.SUB,),
            codes=(
                RequestCode.PULL_MESSAGE,
                RequestCode.LITE_PULL_MESSAGE,
            ),
        ),
        *_rows(Kind.TOPIC, (Action.SUB, Action.GET), codes=(RequestCode.QUERY_MESSAGE,)),
        *_rows(Kind.TOPIC, (Action.GET,), codes=(RequestCode.VIEW_MESSAGE_BY_ID,)),
        *_rows(Kind.GROUP, (Action.SUB, Action.GET), codes=(RequestCode.QUERY_CONSUMER_OFFSET,)),
        *_rows(Kind.GROUP, (Action.SUB, Action.UPDATE), codes=(RequestCode.UPDATE_CONSUMER_OFFSET,)),
        *_rows(
            Kind.GROUP,
            (Action.SUB,),
            codes=(
                RequestCode.HEART_BEAT,
                RequestCode.UNREGISTER_CLIENT,
                RequestCode.CHECK_CLIENT_CONFIG,
                RequestCode.LOCK_BATCH_MQ,
                RequestCode.UNLOCK_BATCH_MQ,
            ),
        ),
        *_rows(Kind.GROUP, (Action.SUB, Action.GET), codes=(RequestCode.GET_CONSUMER_LIST_BY_GROUP,)),
        *_rows(
            Kind.TOPIC,
            (Action.GET,),
            codes=(
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                RequestCode.GET_MAX_OFFSET,
                RequestCode.GET_MIN_OFFSET,
                RequestCode.GET_EARLIEST_MSG_STORETIME,
            ),
        ),
        *_rows(
            Kind.TOPIC,
            (Action.CREATE,),
            changes=True,
            codes=(
                RequestCode.UPDATE_AND_CREATE_TOPIC,
                RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            ),
        ),
        *_rows(Kind.TOPIC, (Action.DELETE,), changes=True, codes=(RequestCode.DELETE_TOPIC_IN_BROKER,)),
        *_rows(
            Kind.GROUP,
            (Action.CREATE,),
            changes=True,
            codes=(
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            ),
        ),
        *_rows(Kind.GROUP, (Action.DELETE,), changes=True, codes=(RequestCode.DELETE_SUBSCRIPTIONGROUP,)),
        *_rows(Kind.TOPIC, (Action.LIST,), codes=(RequestCode.GET_ALL_TOPIC_CONFIG,)),
        *_rows(Kind.GROUP, (Action.LIST,), codes=(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,)),
        *_rows(
            Kind.TOPIC,
            (Action.GET,),
            codes=(
                RequestCode.GET_TOPIC_CONFIG,
                RequestCode.GET_TOPIC_STATS_INFO,
                RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
                RequestCode.QUERY_CONSUME_QUEUE,
                RequestCode.QUERY_CONSUME_TIME_SPAN,
            ),
        ),
        *_rows(
            Kind.GROUP,
            (Action.GET,),
            codes=(
                RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
                RequestCode.GET_CONSUMER_CONNECTION_LIST,
                RequestCode.GET_CONSUME_STATS,
                RequestCode.GET_CONSUMER_RUNNING_INFO,
                RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            ),
        ),
        *_rows(Kind.GROUP, (Action.UPDATE,), changes=True, codes=(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,)),
        *_rows(Kind.GROUP, (Action.SUB,), changes=True, codes=(RequestCode.CONSUME_MESSAGE_DIRECTLY,)),
        *_rows(Kind.TOPIC, (Action.UPDATE,), changes=True, codes=(RequestCode.RESUME_CHECK_HALF_MESSAGE,)),
        *_rows(
            Kind.CLUSTER,
            (Action.UPDATE,),
            changes=True,
            codes=(
                RequestCode.UPDATE_BROKER_CONFIG,
                RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
                RequestCode.CLEAN_UNUSED_TOPIC,
                RequestCode.DELETE_EXPIRED_COMMITLOG,
                RequestCode.AUTH_CREATE_USER,
                RequestCode.AUTH_UPDATE_USER,
                RequestCode.AUTH_DELETE_USER,
                RequestCode.AUTH_CREATE_ACL,
                RequestCode.AUTH_UPDATE_ACL,
                RequestCode.AUTH_DELETE_ACL,
            ),
        ),
        *_rows(
            Kind.CLUSTER,
            (Action.UPDATE,),
            changes=True,
            codes=(
                RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
                RequestCode.DELETE_ACL_CONFIG,
                RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
            ),
        ),
        *_rows(Kind.CLUSTER, (Action.GET,), codes=(RequestCode.GET_BROKER_CLUSTER_ACL_INFO,)),
        *_rows(
            Kind.CLUSTER,
            (Action.GET,),
            codes=(
                RequestCode.GET_BROKER_CONFIG,
                RequestCode.GET_BROKER_RUNTIME_INFO,
                RequestCode.GET_BROKER_HA_STATUS,
                RequestCode.GET_ALL_CONSUMER_OFFSET,
                RequestCode.GET_ALL_DELAY_OFFSET,
                RequestCode.GET_TIMER_CHECK_POINT,
                RequestCode.GET_TIMER_METRICS,
                RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
                RequestCode.GET_PRODUCER_CONNECTION_LIST,
                RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
                RequestCode.VIEW_BROKER_STATS_DATA,
                RequestCode.GET_BROKER_CONSUME_STATS,
                RequestCode.GET_ALL_PRODUCER_INFO,
                RequestCode.AUTH_GET_USER,
                RequestCode.AUTH_LIST_USER,
                RequestCode.AUTH_GET_ACL,
                RequestCode.AUTH_LIST_ACL,
            ),
        ),
    )
)
NAMESRV_REQUIREMENTS: Final[dict[int, Requirement]] = dict(
    (
        *_rows(Kind.TOPIC, (Action.PUB, Action.SUB, Action.GET), codes=(RequestCode.GET_ROUTEINFO_BY_TOPIC,)),
        *_rows(
            Kind.CLUSTER,
            (Action.UPDATE,),
            changes=True,
            codes=(
                RequestCode.REGISTER_BROKER,
                RequestCode.UNREGISTER_BROKER,
                RequestCode.BROKER_HEARTBEAT,
                RequestCode.QUERY_DATA_VERSION,
                RequestCode.PUT_KV_CONFIG,
                RequestCode.DELETE_KV_CONFIG,
                RequestCode.DELETE_TOPIC_IN_NAMESRV,
                RequestCode.WIPE_WRITE_PERM_OF_BROKER,
                RequestCode.ADD_WRITE_PERM_OF_BROKER,
                RequestCode.UPDATE_NAMESRV_CONFIG,
            ),
        ),
        *_rows(
            Kind.CLUSTER,
            (Action.GET,),
            codes=(
                RequestCode.GET_KV_CONFIG,
                RequestCode.GET_KVLIST_BY_NAMESPACE,
                RequestCode.GET_BROKER_CLUSTER_INFO,
                RequestCode.GET_NAMESRV_CONFIG,
            ),
        ),
        *_rows(
            Kind.TOPIC,
            (Action.LIST,),
            codes=(
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
                RequestCode.GET_TOPICS_BY_CLUSTER,
                RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
                RequestCode.GET_UNIT_TOPIC_LIST,
                RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
                RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
            ),
        ),
    )
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

_ALL: Final = BROKER_REQUIREMENTS | NAMESRV_REQUIREMENTS


def requirement_of(code: int) -> Requirement:
    """Return the row of a code. Raises KeyError for a code that is not served."""
    return _ALL[code]
