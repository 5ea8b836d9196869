"""Subscription groups: UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200), UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225),
DELETE_SUBSCRIPTIONGROUP (207), GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), GET_SUBSCRIPTIONGROUP_CONFIG (352).

Permissions of a group are checked with every request of its members, so a change takes effect with the next request. A
change is on disk before the response is written. A deleted group loses its statistics and locks, and its committed
offsets if the request asks for that; its retry topic and dead letter topic stay until they are deleted as topics. If a
deleted group still has members, their next request creates it again.

Source: docs/reference/wire.md, "Groups".
"""

import logging
from collections.abc import Awaitable, Mapping
from typing import Final

import msgspec

from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable
from skylarkmq.broker.metadata.subscription_groups import SubscriptionGroups
from skylarkmq.broker.processors.admin.topic import SIGNS, Wait
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupList
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.consumer import DeleteGroupHeader, GroupHeader
from skylarkmq.protocol.headers.fields import is_true
from skylarkmq.protocol.message import check_group_name

ATTRIBUTES: Final = frozenset(("priority.factor",))
"""RocketMQ's attributes of groups. They are stored, and have no effect on this broker."""

log = logging.getLogger(__name__)


class GroupProcessor:
    """Creates, changes, lists and deletes groups.

    `saved` waits until groups are on disk, `offsets_saved` until committed offsets are.
    """

    def __init__(
        self, groups: SubscriptionGroups, offsets: ConsumerOffsetTable, saved: Wait, offsets_saved: Wait
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._saved = saved
        self._offsets_saved = offsets_saved

    def __repr__(self) -> str:
        return f"<GroupProcessor {self._groups!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_all,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.list_all,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get,
        }

    def update(
        self, source: RequestSource, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None]:
        """Serve UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200)."""
        return self._update(source, [SubscriptionGroupConfig.decode_request(command.body)])

    def update_all(
        self, source: RequestSource, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None]:
        """Serve UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225): set all groups, or none if one is invalid or exceeds a
        limit."""
        return self._update(source, SubscriptionGroupList.decode_request(command.body).group_config_list)

    def _update(
        self, source: RequestSource, groups: list[SubscriptionGroupConfig]
    ) -> RemotingCommand | Awaitable[RemotingCommand | None]:
        wanted = [self._wanted(group) for group in groups]
        changed = [group.group_name for group in self._groups.update_all(wanted)]
        if not changed:
            return RemotingCommand.response()
        log.info("groups created or changed by request groups=%s peer=%s", ",".join(changed), source.peer)
        return self._respond_when_saved()

    def _wanted(self, group: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        """Return the group with its merged attributes. Raises RequestError if a name or an attribute is invalid.

        RocketMQ checks neither characters nor length here; but the group's retry topic, and so a path, is named after
        it.
        """
        check_group_name(group.group_name)
        known = self._groups.find(group.group_name)
        attributes = changed_attributes({} if known is None else known.attributes, group.attributes)
        return msgspec.structs.replace(group, attributes=attributes)

    def delete(
        self, source: RequestSource, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None]:
        """Serve DELETE_SUBSCRIPTIONGROUP (207)."""
        header = command.header(DeleteGroupHeader)
        name, with_offsets = header.group_name, is_true(header.clean_offset) or is_true(header.remove_offset)
        log.info("group deleted by request group=%s offsets=%s peer=%s", name, with_offsets, source.peer)
        if with_offsets:
            self._offsets.remove_group(name)
        is_deleted = self._groups.delete(name)
        if not (is_deleted or with_offsets):
            return RemotingCommand.response()
        return self._respond_when_saved(with_offsets=with_offsets)

    async def _respond_when_saved(self, *, with_offsets: bool = False) -> RemotingCommand:
        await self._saved()
        if with_offsets:
            await self._offsets_saved()
        return RemotingCommand.response()

    def list_all(self, _source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
        """Serve GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201)."""
        return RemotingCommand.response(body=self._groups.encode())

    def get(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve GET_SUBSCRIPTIONGROUP_CONFIG (352). A query creates the group, if groups are created automatically."""
        group = self._groups.find_or_create(command.header(GroupHeader).group)
        if group is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return RemotingCommand.response(body=group.encode())


def changed_attributes(current: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """Return `current` after `changes`. A name with + or no sign sets an attribute, one with - removes it."""
    attributes = dict(current)
    for change, value in changes.items():
        name = change[1:] if change[:1] in SIGNS else change
        if name not in ATTRIBUTES:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"unsupported key: {name}")
        if change[0] == "-":
            attributes.pop(name, None)
        else:
            attributes[name] = value
    return attributes
