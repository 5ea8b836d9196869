"""The table: which permissions a request needs, on which topics and groups.

    BASIC           checked by RocketMQ 4.9, or by the same rule as a request of 4.9 that it stands for
    STRICT          requests of clients that 4.9 leaves unchecked: checked with `aclStrict` like their sibling
    ADMIN           need an account of an administrator

A row names ext fields. A field that a request lacks needs nothing, as in 4.9: the request fails for that reason later.
Two requests have their groups in the body: HEART_BEAT (34), and with `aclStrict` LOCK_BATCH_MQ (41) and
UNLOCK_BATCH_MQ (42).

A send to a retry topic needs SUB on the group in the field of the producer group, as in 4.9, where SEND_MESSAGE (10)
reads a field that no client sends, and so is not checked. With `aclStrict` the field is that of SEND_MESSAGE (10), and
such a send also needs SUB on the group of the retry topic.

With `aclStrict` all other requests that change the cluster (`Requirement.changes`) need an administrator, too.

Source: docs/reference/behaviour.md, "Access control of RocketMQ 4.9".
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from skylarkmq.broker.access.plain_acl.accounts import Permission, group_resource, is_group
from skylarkmq.protocol.bodies.heartbeat import HeartbeatData
from skylarkmq.protocol.bodies.locks import LockRequest
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.pull_command import decoded_pull

Needs = dict[str, Permission]
"""The needed permission by topic, or by retry topic for a group."""
Body = bytes | bytearray | memoryview


Rule = Callable[[str | None, str | None, bool], Needs]
"""Returns what a request needs on its topic and on its group, in RocketMQ's order. The flag is `aclStrict`."""


class Row(NamedTuple):
    """The ext fields of a request's topic and group, and the rule for their values."""

    topic: str | None
    group: str | None
    rule: Rule

    def names(self, command: RemotingCommand) -> tuple[str | None, str | None]:
        """Return the topic and the group of a request. Pulls that were decoded with their frame have them in their
        headers."""
        pulled = decoded_pull(command)
        if pulled is not None:
            return pulled.topic, pulled.consumer_group
        fields = command.ext_fields()
        return (
            None if self.topic is None else fields.get(self.topic),
            None if self.group is None else fields.get(self.group),
        )


def to_send(topic: str | None, group: str | None, is_strict: bool) -> Needs:
    """Return what a send needs."""
    if topic is None:
        return {}
    if not is_group(topic):
        return {topic: Permission.PUB}
    needs = to_use_group(None, group, is_strict)
    return needs | {topic: Permission.SUB} if is_strict else needs


def to_read(topic: str | None, group: str | None, is_strict: bool) -> Needs:
    """Return what a consumer needs to read."""
    needs = {} if topic is None else {topic: Permission.SUB}
    return needs | to_use_group(None, group, is_strict)


def to_use_group(topic: str | None, group: str | None, _is_strict: bool) -> Needs:
    """Return what a member of a group needs."""
    needs = {} if group is None else {group_resource(group): Permission.SUB}
    return needs if topic is None else needs | {topic: Permission.SUB}


BASIC: Final[Mapping[int, Row]] = {
    RequestCode.SEND_MESSAGE: Row("topic", "group", to_send),
    RequestCode.SEND_MESSAGE_V2: Row("b", "a", to_send),
    RequestCode.CONSUMER_SEND_MSG_BACK: Row(None, "group", to_use_group),
    RequestCode.PULL_MESSAGE: Row("topic", "consumerGroup", to_read),
    RequestCode.LITE_PULL_MESSAGE: Row("topic", "consumerGroup", to_read),  # not in 4.9: as PULL_MESSAGE
    RequestCode.QUERY_MESSAGE: Row("topic", None, to_read),
    RequestCode.UNREGISTER_CLIENT: Row(None, "consumerGroup", to_use_group),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: Row(None, "consumerGroup", to_use_group),
    RequestCode.UPDATE_CONSUMER_OFFSET: Row("topic", "consumerGroup", to_use_group),
    RequestCode.RECALL_MESSAGE: Row("topic", "producerGroup", to_send),  # not in 4.9: as a send
}

STRICT: Final[Mapping[int, Row]] = {
    RequestCode.SEND_MESSAGE: Row("topic", "producerGroup", to_send),
    RequestCode.SEND_BATCH_MESSAGE: Row("b", "a", to_send),
    RequestCode.SEND_REPLY_MESSAGE: Row("topic", "producerGroup", to_send),
    RequestCode.SEND_REPLY_MESSAGE_V2: Row("b", "a", to_send),
    RequestCode.END_TRANSACTION: Row("topic", "producerGroup", to_send),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: Row(None, "group", to_use_group),  # it may create the group
}

ADMIN: Final = frozenset((
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,  # not in 4.9: as UPDATE_AND_CREATE_TOPIC
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,  # as UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
))  # fmt: skip


def rows(*, is_strict: bool) -> Mapping[int, Row]:
    """Return the rows by request code."""
    return {**BASIC, **STRICT} if is_strict else BASIC


def readers(*, is_strict: bool) -> Mapping[int, Callable[[Body], Needs]]:
    """Return the functions that read from a body what a request needs, by request code."""
    in_basic: dict[int, Callable[[Body], Needs]] = {RequestCode.HEART_BEAT: _needs_of_heartbeat}
    in_strict = {RequestCode.LOCK_BATCH_MQ: _needs_of_locks, RequestCode.UNLOCK_BATCH_MQ: _needs_of_locks}
    return in_basic | in_strict if is_strict else in_basic


def _needs_of_heartbeat(body: Body) -> Needs:
    needs: Needs = {}
    for consumer in HeartbeatData.decode_request(body).consumer_data_set:
        needs[group_resource(consumer.group_name)] = Permission.SUB
        for subscription in consumer.subscription_data_set:
            needs[subscription.topic] = Permission.SUB
    return needs


def _needs_of_locks(body: Body) -> Needs:
    request = LockRequest.decode_request(body)
    needs = {queue.topic: Permission.SUB for queue in request.mq_set}
    return needs | {group_resource(request.consumer_group): Permission.SUB}
