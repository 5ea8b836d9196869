"""The column of RocketMQ 5.3: which topics and groups a request names, and what it does with them.

A row has the ext fields with the names (RocketMQ's annotations of its headers), or a function for a request whose
resources depend on its values or are in its body. `auth.request_resources` reads the column.

The gaps of RocketMQ that clients depend on stay: requests of producers without a group, and END_TRANSACTION (37) of 4.9
clients, have no resource. *Ours*: a retry topic always needs its group.

Source: docs/reference/behaviour.md, "Users and policies"; docs/reference/compatibility.md, "Access control of RocketMQ
5.3".
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from skylarkmq.broker.access.requests.resources import Action, Kind, Resource, is_retry_topic
from skylarkmq.protocol.bodies.heartbeat import CheckClientRequestBody, HeartbeatData
from skylarkmq.protocol.bodies.locks import LockRequest
from skylarkmq.protocol.bodies.stats import TopicConfigList
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupList
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.pull_command import decoded_pull

UNREADABLE: Final = "parse authorization context error."
Actions = tuple[Action, ...]
SUB: Final = (Action.SUB,)


class Use(NamedTuple):
    """A resource that a request uses, and what it does: the user needs one of the actions."""

    resource: Resource
    actions: Actions


class NamedField(NamedTuple):
    """An ext field with the name of a resource, or with several names between separators."""

    kind: Kind
    name: str
    is_required: bool = False
    separator: str = ""


Reader = Callable[[RemotingCommand, Actions], Iterator[Use]]
"""Yields the resources of a request, by the actions of its row. Raises BodyError or RequestError."""
Uses = tuple[NamedField, ...] | Reader
"""The value of the column: fields in RocketMQ's order, or a reader."""


def unreadable() -> RequestError:
    """Return the error of a request whose resources cannot be read."""
    return RequestError(ResponseCode.NO_PERMISSION, UNREADABLE)


def topic_resource(name: str | None) -> Resource:
    """Return the resource of a topic; for a retry topic it is the group."""
    return Resource.group(name) if is_retry_topic(name) else Resource.topic(name)


# --- fields -----------------------------------------------------------------------------------------------------------

TOPIC: Final = NamedField(Kind.TOPIC, "topic", is_required=True)
OPTIONAL_TOPIC: Final = NamedField(Kind.TOPIC, "topic")
TOPIC_LIST: Final = NamedField(Kind.TOPIC, "topicList", separator=";")
GROUP: Final = NamedField(Kind.GROUP, "group", is_required=True)
GROUP_NAME: Final = NamedField(Kind.GROUP, "groupName", is_required=True)
CONSUMER_GROUP: Final = NamedField(Kind.GROUP, "consumerGroup", is_required=True)
OPTIONAL_CONSUMER_GROUP: Final = NamedField(Kind.GROUP, "consumerGroup")


# --- readers ----------------------------------------------------------------------------------------------------------


def send(command: RemotingCommand, actions: Actions) -> Iterator[Use]:
    """Yield the resource of a send whose header has long names."""
    return _send_to(command, actions, "topic", "group")


def send_v2(command: RemotingCommand, actions: Actions) -> Iterator[Use]:
    """Yield the resource of a send whose header has names of one letter."""
    return _send_to(command, actions, "b", "a")


def _send_to(command: RemotingCommand, actions: Actions, topic_field: str, group_field: str) -> Iterator[Use]:
    """Yield the resource of a send. A consumer sends retries to the retry topic of its group.

    The header of a fast-path send is decoded already.
    """
    header = command.send_header
    topic = command.ext_fields().get(topic_field) if header is None else header.topic
    if not is_retry_topic(topic):
        yield Use(Resource.topic(topic), actions)
        return
    group = command.ext_fields().get(group_field)
    named = (group, topic) if group is not None and group.strip() else (topic,)
    for resource in dict.fromkeys(map(Resource.group, named)):
        yield Use(resource, SUB)


def topic_or_none(command: RemotingCommand, actions: Actions) -> Iterator[Use]:
    """Yield the topic of a request, whose field may be missing. A retry topic counts as a topic, as in RocketMQ."""
    yield Use(Resource.topic(command.ext_fields().get("topic")), actions)


def end_transaction(command: RemotingCommand, actions: Actions) -> Iterator[Use]:
    """Yield the topic of END_TRANSACTION (37), if the request names one."""
    topic = command.ext_fields().get("topic")
    if topic is not None and topic.strip():
        yield Use(Resource.topic(topic), actions)


def send_back(command: RemotingCommand, actions: Actions) -> Iterator[Use]:
    """Yield the group of CONSUMER_SEND_MSG_BACK (36)."""
    yield Use(Resource.group(command.ext_fields().get("group")), actions)


def pull(command: RemotingCommand, actions: Actions) -> Iterator[Use]:
    """Yield the topic and the group of a pull."""
    topic: str | None
    group: str | None
    header = decoded_pull(command)
    if header is not None:
        topic, group = header.topic, header.consumer_group
    else:
        fields = command.ext_fields()
        topic, group = fields.get("topic"), fields.get("consumerGroup")
    for resource in dict.fromkeys((topic_resource(topic), Resource.group(group))):
        yield Use(resource, actions)


def view_message(command: RemotingCommand, actions: Actions) -> Iterator[Use]:
    """Yield the topic, if the request names one; the processor checks the topic of the stored message."""
    topic = command.ext_fields().get("topic")
    if topic is not None:
        yield Use(topic_resource(topic), actions)


def committed_offset(command: RemotingCommand, actions: Actions) -> Iterator[Use]:
    """Yield the topic and the group of a committed offset."""
    fields = command.ext_fields()
    topic, group = fields.get("topic"), fields.get("consumerGroup")
    if topic is None or group is None:
        raise unreadable()
    for resource in dict.fromkeys((topic_resource(topic), Resource.group(group))):
        yield Use(resource, actions)


def heartbeat(command: RemotingCommand, actions: Actions) -> Iterator[Use]:
    """Yield the groups of the consumers in a heartbeat, and their topics."""
    for consumer in HeartbeatData.decode_request(command.body).consumer_data_set:
        topics = (subscription.topic for subscription in consumer.subscription_data_set)
        yield from _member(consumer.group_name, topics, actions)


def unregister(command: RemotingCommand, actions: Actions) -> Iterator[Use]:
    """Yield the consumer group that a client leaves, if there is one."""
    group = command.ext_fields().get("consumerGroup")
    if group is not None and group.strip():
        yield Use(Resource.group(group), actions)


def members(command: RemotingCommand, actions: Actions) -> Iterator[Use]:
    """Yield the group of GET_CONSUMER_LIST_BY_GROUP (38)."""
    group = command.ext_fields().get("consumerGroup")
    if group is None:
        raise unreadable()
    yield Use(Resource.group(group), actions)


def locks(command: RemotingCommand, actions: Actions) -> Iterator[Use]:
    """Yield the group of an orderly consumer, and the topics of the queues that it locks or unlocks."""
    request = LockRequest.decode_request(command.body)
    yield from _member(request.consumer_group, (queue.topic for queue in request.mq_set), actions)


def _member(group: str, topics: Iterable[str], actions: Actions) -> Iterator[Use]:
    """Yield a group and the topics that its member reads or locks."""
    for resource in dict.fromkeys((Resource.group(group), *map(topic_resource, topics))):
        yield Use(resource, actions)


def check_client(command: RemotingCommand, actions: Actions) -> Iterator[Use]:
    """Yield the group of CHECK_CLIENT_CONFIG (46)."""
    yield Use(Resource.group(CheckClientRequestBody.decode_request(command.body).group), actions)


def topic_configs(command: RemotingCommand, actions: Actions) -> Iterator[Use]:
    """Yield the topics in the body of UPDATE_AND_CREATE_TOPIC_LIST (18)."""
    for config in TopicConfigList.decode_request(command.body).topic_config_list:
        yield Use(topic_resource(config.topic_name), actions)


def group_config(command: RemotingCommand, actions: Actions) -> Iterator[Use]:
    """Yield the group in the body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200)."""
    yield Use(Resource.group(SubscriptionGroupConfig.decode_request(command.body).group_name), actions)


def group_configs(command: RemotingCommand, actions: Actions) -> Iterator[Use]:
    """Yield the groups in the body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225)."""
    for config in SubscriptionGroupList.decode_request(command.body).group_config_list:
        yield Use(Resource.group(config.group_name), actions)
