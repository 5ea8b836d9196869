"""The resources of a request: which topics and groups it names, and what it does with them.

Names are in ext fields (`FIELDS`: RocketMQ's annotations of its headers) or need a reader of their own (`READERS`). A
request that names none of its resources uses the whole kind of its row in `requirements.py`: the cluster, or all topics
or groups.

RocketMQ permits such requests to every user. The rest is RocketMQ's, and so are the gaps that clients depend on:
requests of producers without a group, END_TRANSACTION (37) of 4.9 clients, and replies to the reply topic have no
resource. *Ours*: a reply to another topic is a send, and a retry topic always needs its group.

Source: docs/reference/behaviour.md, "Users and policies"; docs/reference/compatibility.md, "Access control of RocketMQ
5.3".
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from skylarkmq.broker.access.requests.resources import Pattern, Resource, is_retry_topic
from skylarkmq.broker.access.requirements import Action, Kind, Requirement
from skylarkmq.protocol.bodies.body import BodyError
from skylarkmq.protocol.bodies.heartbeat import CheckClientRequestBody, HeartbeatData
from skylarkmq.protocol.bodies.locks import LockRequest
from skylarkmq.protocol.bodies.stats import TopicConfigList
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupList
from skylarkmq.protocol.codes import RequestCode, ResponseCode, SystemTopic
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.pull_command import decoded_pull

UNREADABLE: Final = "parse authorization context error."


class Use(NamedTuple):
    """A resource that a request uses, and what it does: the user needs one of the actions."""

    resource: Resource
    actions: tuple[Action, ...]


class NamedField(NamedTuple):
    """An ext field with the name of a resource, or with several names between separators."""

    kind: Kind
    name: str
    is_required: bool = False
    separator: str = ""


def _group(name: str = "consumerGroup") -> NamedField:
    return NamedField(Kind.GROUP, name, is_required=True)


TOPIC: Final = NamedField(Kind.TOPIC, "topic", is_required=True)
OPTIONAL_TOPIC: Final = NamedField(Kind.TOPIC, "topic")
TOPIC_LIST: Final = NamedField(Kind.TOPIC, "topicList", separator=";")
OPTIONAL_GROUP: Final = NamedField(Kind.GROUP, "consumerGroup")

FIELDS: Final[dict[int, tuple[NamedField, ...]]] = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: (TOPIC,),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: (TOPIC,),
    RequestCode.GET_MAX_OFFSET: (TOPIC,),
    RequestCode.GET_MIN_OFFSET: (TOPIC,),
    RequestCode.GET_EARLIEST_MSG_STORETIME: (TOPIC,),
    RequestCode.GET_TOPIC_STATS_INFO: (TOPIC,),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: (_group(),),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: (_group("groupName"),),
    RequestCode.GET_CONSUME_STATS: (_group(), OPTIONAL_TOPIC, TOPIC_LIST),
    RequestCode.DELETE_TOPIC_IN_BROKER: (TOPIC,),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: (_group("group"), TOPIC),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: (TOPIC, _group("group")),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: (TOPIC,),
    RequestCode.QUERY_CONSUME_TIME_SPAN: (TOPIC, _group("group")),
    RequestCode.GET_CONSUMER_RUNNING_INFO: (_group(),),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: (_group(), OPTIONAL_TOPIC),
    RequestCode.QUERY_CONSUME_QUEUE: (OPTIONAL_TOPIC, OPTIONAL_GROUP),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: (OPTIONAL_TOPIC,),
    RequestCode.GET_TOPIC_CONFIG: (TOPIC,),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: (_group("group"),),
}
"""RocketMQ's annotated header fields, in its order."""


def uses_of(command: RemotingCommand, requirement: Requirement, cluster: str) -> list[Use]:
    """Return the resources that a request uses. Raises RequestError if its header or body is unreadable."""
    read = READERS.get(command.code)
    if read is not None:
        try:
            uses = list(read(command))
        except BodyError:
            raise unreadable() from None
        if command.code in REPLIES:
            replies = Resource.topic(cluster + SystemTopic.REPLY_SUFFIX)
            return [use for use in uses if use.resource != replies]
        if not uses and requirement.changes:  # an empty list of topics or groups
            return [Use(_whole(requirement.kind, cluster), requirement.actions)]
        return uses
    uses = list(_named(command, FIELDS.get(command.code, ()), requirement.actions))
    return uses or [Use(_whole(requirement.kind, cluster), requirement.actions)]


def unreadable() -> RequestError:
    """Return the error of a request whose resources cannot be read."""
    return RequestError(ResponseCode.NO_PERMISSION, UNREADABLE)


def _named(
    command: RemotingCommand, named_fields: tuple[NamedField, ...], actions: tuple[Action, ...]
) -> Iterator[Use]:
    fields = command.ext_fields()
    for kind, field, is_required, separator in named_fields:
        text = fields.get(field)
        if text is None:
            if is_required:
                raise unreadable()
            continue
        for name in [part for part in text.split(separator) if part] if separator else [text]:
            yield Use(topic_resource(name) if kind is Kind.TOPIC else Resource(kind.value, name), actions)


def _whole(kind: Kind, cluster: str) -> Resource:
    if kind is Kind.CLUSTER:
        return Resource(kind.value, cluster)
    return Resource(kind.value, None, Pattern.ANY)


def topic_resource(name: str | None) -> Resource:
    """Return the resource of a topic; that of a retry topic is its group."""
    return Resource.group(name) if is_retry_topic(name) else Resource.topic(name)


# -------------------------------------------------------------------------------------------------------------- readers

PUB: Final = (Action.PUB,)
SUB: Final = (Action.SUB,)
SUB_OR_GET: Final = (Action.SUB, Action.GET)
SUB_OR_UPDATE: Final = (Action.SUB, Action.UPDATE)
CREATE: Final = (Action.CREATE,)
GET: Final = (Action.GET,)
REPLIES: Final = (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)


def _send(command: RemotingCommand) -> Iterator[Use]:
    return _send_to(command, "topic", "group")


def _send_v2(command: RemotingCommand) -> Iterator[Use]:
    return _send_to(command, "b", "a")


def _send_to(command: RemotingCommand, topic_field: str, group_field: str) -> Iterator[Use]:
    """Yield the resource of a send. A consumer sends retries to the retry topic of its group.

    The header of a fast-path send is decoded already.
    """
    header = command.send_header
    topic = command.ext_fields().get(topic_field) if header is None else header.topic
    if not is_retry_topic(topic):
        yield Use(Resource.topic(topic), PUB)
        return
    group = command.ext_fields().get(group_field)
    named = (group, topic) if group is not None and group.strip() else (topic,)
    for resource in dict.fromkeys(map(Resource.group, named)):
        yield Use(resource, SUB)


def _recall(command: RemotingCommand) -> Iterator[Use]:
    yield Use(Resource.topic(command.ext_fields().get("topic")), PUB)


def _end_transaction(command: RemotingCommand) -> Iterator[Use]:
    topic = command.ext_fields().get("topic")
    if topic is not None and topic.strip():
        yield Use(Resource.topic(topic), PUB)


def _send_back(command: RemotingCommand) -> Iterator[Use]:
    yield Use(Resource.group(command.ext_fields().get("group")), SUB)


def _pull(command: RemotingCommand) -> Iterator[Use]:
    topic: str | None
    group: str | None
    header = decoded_pull(command)
    if header is not None:
        topic, group = header.topic, header.consumer_group
    else:
        fields = command.ext_fields()
        topic, group = fields.get("topic"), fields.get("consumerGroup")
    for resource in dict.fromkeys((topic_resource(topic), Resource.group(group))):
        yield Use(resource, SUB)


def _query_message(command: RemotingCommand) -> Iterator[Use]:
    yield Use(Resource.topic(command.ext_fields().get("topic")), SUB_OR_GET)


def _view_message(command: RemotingCommand) -> Iterator[Use]:
    """Yield the topic, if the request names one; the processor checks the topic of the stored message."""
    topic = command.ext_fields().get("topic")
    if topic is not None:
        yield Use(topic_resource(topic), GET)


def _query_offset(command: RemotingCommand) -> Iterator[Use]:
    return _offset(command, SUB_OR_GET)


def _update_offset(command: RemotingCommand) -> Iterator[Use]:
    return _offset(command, SUB_OR_UPDATE)


def _offset(command: RemotingCommand, actions: tuple[Action, ...]) -> Iterator[Use]:
    fields = command.ext_fields()
    topic, group = fields.get("topic"), fields.get("consumerGroup")
    if topic is None or group is None:
        raise unreadable()
    for resource in dict.fromkeys((topic_resource(topic), Resource.group(group))):
        yield Use(resource, actions)


def _heartbeat(command: RemotingCommand) -> Iterator[Use]:
    for consumer in HeartbeatData.decode_request(command.body).consumer_data_set:
        topics = (subscription.topic for subscription in consumer.subscription_data_set)
        yield from _member(consumer.group_name, topics)


def _unregister(command: RemotingCommand) -> Iterator[Use]:
    group = command.ext_fields().get("consumerGroup")
    if group is not None and group.strip():
        yield Use(Resource.group(group), SUB)


def _members(command: RemotingCommand) -> Iterator[Use]:
    group = command.ext_fields().get("consumerGroup")
    if group is None:
        raise unreadable()
    yield Use(Resource.group(group), SUB_OR_GET)


def _locks(command: RemotingCommand) -> Iterator[Use]:
    request = LockRequest.decode_request(command.body)
    yield from _member(request.consumer_group, (queue.topic for queue in request.mq_set))


def _member(group: str, topics: Iterable[str]) -> Iterator[Use]:
    """Yield a group and the topics that its member reads or locks."""
    for resource in dict.fromkeys((Resource.group(group), *map(topic_resource, topics))):
        yield Use(resource, SUB)


def _check_client(command: RemotingCommand) -> Iterator[Use]:
    yield Use(Resource.group(CheckClientRequestBody.decode_request(command.body).group), SUB)


def _create_topics(command: RemotingCommand) -> Iterator[Use]:
    for topic in TopicConfigList.decode_request(command.body).topic_config_list:
        yield Use(topic_resource(topic.topic_name), CREATE)


def _create_group(command: RemotingCommand) -> Iterator[Use]:
    yield Use(Resource.group(SubscriptionGroupConfig.decode_request(command.body).group_name), CREATE)


def _create_groups(command: RemotingCommand) -> Iterator[Use]:
    for group in SubscriptionGroupList.decode_request(command.body).group_config_list:
        yield Use(Resource.group(group.group_name), CREATE)


READERS: Final[dict[int, Callable[[RemotingCommand], Iterator[Use]]]] = {
    RequestCode.SEND_MESSAGE: _send,
    RequestCode.SEND_MESSAGE_V2: _send_v2,
    RequestCode.SEND_BATCH_MESSAGE: _send_v2,
    RequestCode.SEND_REPLY_MESSAGE: _send,
    RequestCode.SEND_REPLY_MESSAGE_V2: _send_v2,
    RequestCode.RECALL_MESSAGE: _recall,
    RequestCode.END_TRANSACTION: _end_transaction,
    RequestCode.CONSUMER_SEND_MSG_BACK: _send_back,
    RequestCode.PULL_MESSAGE: _pull,
    RequestCode.LITE_PULL_MESSAGE: _pull,
    RequestCode.QUERY_MESSAGE: _query_message,
    RequestCode.VIEW_MESSAGE_BY_ID: _view_message,
    RequestCode.QUERY_CONSUMER_OFFSET: _query_offset,
    RequestCode.UPDATE_CONSUMER_OFFSET: _update_offset,
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: _unregister,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _members,
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.CHECK_CLIENT_CONFIG: _check_client,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _create_topics,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _create_group,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _create_groups,
}
"""Requests whose resources depend on their values, or are in their bodies."""
