"""The column of RocketMQ 4.9: which permissions a request needs, on which topics and groups.

    basic   checked by RocketMQ 4.9, or by the same rule as a request of 4.9 that this one stands for
    strict  checked with `aclStrict`: also requests of clients that 4.9 leaves unchecked, by the rule of their sibling
    admin   whether the request needs the account of an administrator

`FromFields` names ext fields. A field that a request lacks needs nothing, as in 4.9: the request fails for that reason
later. Three requests have their groups in the body: HEART_BEAT (34), and with `aclStrict` LOCK_BATCH_MQ (41) and
UNLOCK_BATCH_MQ (42).

A send to a retry topic needs SUB on the group in the field of the producer group, as in 4.9, where SEND_MESSAGE (10)
reads a field that no client sends, and so is not checked. With `aclStrict` the field is that of SEND_MESSAGE (10), and
such a send also needs SUB on the group of the retry topic.

With `aclStrict` all other requests that change the cluster (`Requirement.changes`) need an administrator, too.

Source: docs/reference/behaviour.md, "Access control of RocketMQ 4.9".
"""

from collections.abc import Callable
from enum import IntFlag
from typing import Final, NamedTuple

from skylarkmq.protocol.bodies.heartbeat import HeartbeatData
from skylarkmq.protocol.bodies.locks import LockRequest
from skylarkmq.protocol.codes import RETRY_PREFIX
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.pull_command import decoded_pull


class Permission(IntFlag):
    """Permissions on a topic or a group."""

    DENY = 1
    PUB = 4
    SUB = 8


Needs = dict[str, Permission]
"""The needed permission by topic, or by retry topic for a group."""
Rule = Callable[[str | None, str | None, bool], Needs]
"""Returns what a request needs on its topic and on its group, in RocketMQ's order. The flag is `aclStrict`."""
FromBody = Callable[[bytes | bytearray | memoryview], Needs]
"""Returns what a request needs by its body. Raises BodyError."""


class FromFields(NamedTuple):
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


class Need(NamedTuple):
    """What a request needs, without and with `aclStrict`; None is nothing."""

    basic: FromFields | FromBody | None = None
    strict: FromFields | FromBody | None = None
    admin: bool = False


def is_group(resource: str) -> bool:
    """Return whether a resource is the group of a retry topic."""
    return resource.startswith(RETRY_PREFIX)


def group_resource(group: str) -> str:
    """Return the name under which the permission of a group is stored."""
    return RETRY_PREFIX + group


# --- rules ------------------------------------------------------------------------------------------------------------


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


def of_heartbeat(body: bytes | bytearray | memoryview) -> Needs:
    """Return what the consumers of a heartbeat need: SUB on each group and on its topics."""
    needs: Needs = {}
    for consumer in HeartbeatData.decode_request(body).consumer_data_set:
        needs[group_resource(consumer.group_name)] = Permission.SUB
        for subscription in consumer.subscription_data_set:
            needs[subscription.topic] = Permission.SUB
    return needs


def of_locks(body: bytes | bytearray | memoryview) -> Needs:
    """Return what an orderly consumer needs to lock queues: SUB on their topics and on its group."""
    request = LockRequest.decode_request(body)
    needs = {queue.topic: Permission.SUB for queue in request.mq_set}
    return needs | {group_resource(request.consumer_group): Permission.SUB}


# --- values of the column ---------------------------------------------------------------------------------------------


def _always(check: FromFields | FromBody) -> Need:
    return Need(check, check)


def _strictly(check: FromFields | FromBody) -> Need:
    return Need(None, check)


NOTHING: Final = Need()
ADMIN: Final = Need(admin=True)
SEND: Final = Need(FromFields("topic", "group", to_send), FromFields("topic", "producerGroup", to_send))
SEND_V2: Final = _always(FromFields("b", "a", to_send))
STRICT_SEND: Final = _strictly(FromFields("topic", "producerGroup", to_send))
STRICT_SEND_V2: Final = _strictly(FromFields("b", "a", to_send))
RECALL: Final = _always(FromFields("topic", "producerGroup", to_send))
SEND_BACK: Final = _always(FromFields(None, "group", to_use_group))
PULL: Final = _always(FromFields("topic", "consumerGroup", to_read))
QUERY: Final = _always(FromFields("topic", None, to_read))
OFFSET: Final = _always(FromFields("topic", "consumerGroup", to_use_group))
MEMBER: Final = _always(FromFields(None, "consumerGroup", to_use_group))
STRICT_GROUP: Final = _strictly(FromFields(None, "group", to_use_group))
HEARTBEAT: Final = _always(of_heartbeat)
LOCKS: Final = _strictly(of_locks)
