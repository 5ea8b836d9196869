"""Groups by hand: UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200), the same with many (225), DELETE_SUBSCRIPTIONGROUP (207);
what there is: GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), GET_SUBSCRIPTIONGROUP_CONFIG (352).

What a group may do is looked at with every request of its members, so a change holds from the next one on. It is on
disk before it is answered. A deleted group loses its figures and locks, and its committed offsets if that is asked
for; its retry topic and dead letters stay until somebody deletes these topics. If it still has members, it comes
about again with their next request.

Source: docs/formats.md, "Groups".
"""

import logging
from collections.abc import Awaitable, Mapping
from typing import Final

import msgspec

from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable
from skylarkmq.broker.metadata.subscription_groups import SubscriptionGroups
from skylarkmq.broker.processors.admin.topic import SIGNS, Settled
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupList
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.consumer import DeleteGroupHeader, GroupHeader
from skylarkmq.protocol.headers.fields import is_true
from skylarkmq.protocol.message import check_group_name

ATTRIBUTES: Final = frozenset(("priority.factor",))
"""Those that RocketMQ has; they are kept, and nothing here goes by them."""

log = logging.getLogger(__name__)


class GroupProcessor:
    """Makes, changes, lists and deletes groups. `saved` waits for the disk, `offsets_saved` for that of offsets."""

    def __init__(
        self, groups: SubscriptionGroups, offsets: ConsumerOffsetTable, saved: Settled, offsets_saved: Settled
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._saved = saved
        self._offsets_saved = offsets_saved

    def __repr__(self) -> str:
        return f"<GroupProcessor {self._groups!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """What this processor serves."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_all,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.list_all,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.show,
        }

    def update(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None]:
        """Request 200."""
        return self._update(connection, [SubscriptionGroupConfig.decode_request(command.body)])

    def update_all(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None]:
        """Request 225: all of them, or none if one cannot be."""
        return self._update(connection, SubscriptionGroupList.decode_request(command.body).group_config_list)

    def _update(
        self, connection: Connection, groups: list[SubscriptionGroupConfig]
    ) -> RemotingCommand | Awaitable[RemotingCommand | None]:
        wanted = [self._wanted(group) for group in groups]
        changed = [group.group_name for group in wanted if self._groups.update(group)]
        if not changed:
            return RemotingCommand.response()
        log.info("groups set by request groups=%s peer=%s", ",".join(changed), connection.peer)
        return self._answer_when_saved()

    def _wanted(self, group: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        """The group as it is to be. RequestError if its name is invalid, or an attribute unknown.

        RocketMQ checks neither characters nor length here; the group's retry topic, and so a path, is named after it.
        """
        check_group_name(group.group_name)
        known = self._groups.find(group.group_name)
        attributes = changed_attributes({} if known is None else known.attributes, group.attributes)
        return msgspec.structs.replace(group, attributes=attributes)

    def delete(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None]:
        """Request 207."""
        header = command.header(DeleteGroupHeader)
        name, with_offsets = header.group_name, is_true(header.clean_offset) or is_true(header.remove_offset)
        log.info("group deleted by request group=%s offsets=%s peer=%s", name, with_offsets, connection.peer)
        if with_offsets:
            self._offsets.remove_group(name)
        is_deleted = self._groups.delete(name)
        if not (is_deleted or with_offsets):
            return RemotingCommand.response()
        return self._answer_when_saved(with_offsets=with_offsets)

    async def _answer_when_saved(self, *, with_offsets: bool = False) -> RemotingCommand:
        await self._saved()
        if with_offsets:
            await self._offsets_saved()
        return RemotingCommand.response()

    def list_all(self, _connection: Connection, _command: RemotingCommand) -> RemotingCommand:
        """Request 201."""
        return RemotingCommand.response(body=self._groups.encode())

    def show(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Request 352; a group comes about by being asked for."""
        group = self._groups.find_or_create(command.header(GroupHeader).group)
        if group is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return RemotingCommand.response(body=group.encode())


def changed_attributes(current: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """`current` after changes whose names begin with + (or nothing) to set and - to remove an attribute."""
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
