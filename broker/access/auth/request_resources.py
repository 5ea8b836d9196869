"""The resources of a request, by the column `uses` of its row.

A request that names none of its resources uses the whole kind of its row: the cluster, or all topics or groups.
RocketMQ permits such requests to every user. Replies to the reply topic have no resource, as in RocketMQ; *ours*: a
reply to another topic is a send.

Source: docs/reference/behaviour.md, "Users and policies"; docs/reference/compatibility.md, "Access control of RocketMQ
5.3".
"""

from collections.abc import Iterator, Mapping
from typing import Final

from skylarkmq.broker.access.requests.resources import Kind, Pattern, Resource
from skylarkmq.broker.access.requests.table import Requirement
from skylarkmq.broker.access.requests.uses import NamedField, Use, topic_resource, unreadable
from skylarkmq.protocol.bodies.body import BodyError
from skylarkmq.protocol.codes import RequestCode, SystemTopic
from skylarkmq.protocol.command import RemotingCommand

REPLIES: Final = (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)


def uses_of(command: RemotingCommand, requirement: Requirement, cluster: str) -> list[Use]:
    """Return the resources that a request uses. Raises RequestError if its header or body is unreadable."""
    read = requirement.uses
    if isinstance(read, tuple):
        fields = command.ext_fields() if read else {}
        uses = [Use(resource, requirement.actions) for field in read for resource in _named(fields, field)]
        return uses or [_whole(requirement, cluster)]
    try:
        uses = list(read(command, requirement.actions))
    except BodyError:
        raise unreadable() from None
    if requirement.code in REPLIES:
        replies = Resource.topic(cluster + SystemTopic.REPLY_SUFFIX)
        return [use for use in uses if use.resource != replies]
    if not uses and requirement.changes:  # an empty list of topics or groups
        return [_whole(requirement, cluster)]
    return uses


def _named(fields: Mapping[str, str], field: NamedField) -> Iterator[Resource]:
    """Yield the resources that an ext field names."""
    text = fields.get(field.name)
    if text is None:
        if field.is_required:
            raise unreadable()
        return
    for name in [part for part in text.split(field.separator) if part] if field.separator else [text]:
        yield topic_resource(name) if field.kind is Kind.TOPIC else Resource(field.kind.value, name)


def _whole(requirement: Requirement, cluster: str) -> Use:
    """Return the use of a whole kind of resources."""
    kind = requirement.kind
    whole = Resource(kind.value, cluster) if kind is Kind.CLUSTER else Resource(kind.value, None, Pattern.ANY)
    return Use(whole, requirement.actions)
