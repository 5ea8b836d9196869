"""Operators' requests that the broker forwards to clients: GET_CONSUMER_RUNNING_INFO (307), CONSUME_MESSAGE_DIRECTLY
(309), INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223; the broker sends GET_CONSUMER_STATUS_FROM_CLIENT, 221, to clients).

The broker forwards 307 and 309 to one member of the group, and returns its response unchanged. To 309 it adds the
record that the offset id names, the broker name, and the flags of topic and group. A record whose topic the caller may
not read counts as absent (*ours*): a member would read it for the caller. For 223 the broker queries all members at
once, or the named one, and collects their responses; a member that does not respond in time is left out.

Source: docs/reference/wire.md, "Calls to clients".
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from typing import Final

from skylarkmq.broker.access.message_rights import MessageRights, Rights, stored_topic
from skylarkmq.broker.access.requests.resources import Action
from skylarkmq.broker.delivery.calls.client_calls import CallFailed, CallTimeout, ClientCalls
from skylarkmq.broker.delivery.cold_read_retry import looked_up
from skylarkmq.broker.metadata.client_sessions import ClientMember, ClientSessions
from skylarkmq.broker.metadata.subscription_groups import SubscriptionGroups
from skylarkmq.broker.metadata.topics import TopicTable
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.bodies.body import BodyError
from skylarkmq.protocol.bodies.client_state import ConsumerStatus
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.client_calls import (
    ConsumeDirectlyHeader,
    ConsumerRunningInfoHeader,
    ConsumerStatusHeader,
)
from skylarkmq.protocol.message_id import decode_offset_id
from skylarkmq.protocol.versions import V3_0_7_SNAPSHOT, V3_1_8_SNAPSHOT, version_name

RELAY_TIMEOUT_S: Final = 10.0
STATUS_TIMEOUT_S: Final = 5.0
REQUESTS_PER_ITERATION: Final = 16
"""Requests that are sent to members before other connections are served: a thousand at once would take too long."""

log = logging.getLogger(__name__)


class ClientRelayProcessor:
    """Forwards requests to the consumers of one broker."""

    def __init__(
        self,
        broker_name: str,
        sessions: ClientSessions,
        topics: TopicTable,
        groups: SubscriptionGroups,
        store: MessageStore,
        calls: ClientCalls,
        rights: MessageRights,
    ) -> None:
        self._broker_name = broker_name
        self._sessions = sessions
        self._topics = topics
        self._groups = groups
        self._store = store
        self._calls = calls
        self._rights = rights

    def __repr__(self) -> str:
        return f"<ClientRelayProcessor {self._calls!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.consumer_status,
        }

    # ------------------------------------------------------------------------------------------------------- 307, 309

    def running_info(self, _source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve GET_CONSUMER_RUNNING_INFO (307)."""
        header = command.header(ConsumerRunningInfoHeader)
        relayed = RemotingCommand.request(command.code)
        relayed.ext = dict(command.ext_fields())
        return self._relay(header.consumer_group, header.client_id, relayed)

    def consume_directly(self, source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve CONSUME_MESSAGE_DIRECTLY (309)."""
        header = command.header(ConsumeDirectlyHeader)
        relayed = RemotingCommand.request(command.code)
        relayed.ext = command.ext_fields() | {"brokerName": self._broker_name} | self._sys_flags(header)
        return self._consume_directly(header, relayed, self._rights.rights_of(source, command))

    async def _consume_directly(
        self, header: ConsumeDirectlyHeader, relayed: RemotingCommand, rights: Rights
    ) -> RemotingCommand:
        relayed.body = await self._record(header.msg_id, rights)
        return await self._relay(header.consumer_group, header.client_id, relayed)

    def _sys_flags(self, header: ConsumeDirectlyHeader) -> dict[str, str]:
        topic = self._topics.find(header.topic) if header.topic else None
        group = self._groups.find(header.consumer_group)
        flags = {"topicSysFlag": topic and topic.topic_sys_flag, "groupSysFlag": group and group.group_sys_flag}
        return {name: str(flag) for name, flag in flags.items() if flag is not None}

    async def _record(self, offset_id: str | None, rights: Rights) -> bytes:
        try:
            _, _, offset = decode_offset_id(offset_id or "")
        except ValueError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        record = await looked_up(self._store, lambda: self._store.record_at(offset))
        if record is None or not rights(stored_topic(record), Action.SUB):
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"can not find message by the id, {offset_id}")
        return record

    async def _relay(self, group: str, client_id: str | None, request: RemotingCommand) -> RemotingCommand:
        """Forward a request to one member and return its response, with the code and remark that it gave."""
        member = self._member(group, client_id)
        try:
            response = await self._calls.call(member.channel, request, RELAY_TIMEOUT_S)
        except CallTimeout as error:
            remark = f"consumer <{group}> <{client_id}> Timeout: {error}"
            raise RequestError(ResponseCode.CONSUME_MSG_TIMEOUT, remark) from None
        except CallFailed as error:
            remark = f"invoke consumer <{group}> <{client_id}> Exception: {error}"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark) from None
        return RemotingCommand.response(response.code, response.remark, body=response.body)

    def _member(self, group: str, client_id: str | None) -> ClientMember:
        members = self._sessions.consumer_group(group)
        member = members and members.member(client_id or "")
        if not member:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        if member.version < V3_1_8_SNAPSHOT:
            remark = (
                f"The Consumer <{client_id}> Version <{version_name(member.version)}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT"
            )
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        return member

    # ------------------------------------------------------------------------------------------------------------ 223

    def consumer_status(self, _source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223)."""
        header = command.header(ConsumerStatusHeader)
        group = self._sessions.consumer_group(header.group)
        if group is None:
            remark = f"No Any Consumer online in the consumer group: [{header.group}]"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        members = list(group.members.values())
        if header.client_addr and header.client_addr.strip():
            members = [member for member in members if member.client_id == header.client_addr][-1:]
        refuse_older(members, V3_0_7_SNAPSHOT)
        return self._statuses(header, members)

    async def _statuses(self, header: ConsumerStatusHeader, members: list[ClientMember]) -> RemotingCommand:
        pending = []
        for number, member in enumerate(members, start=1):
            pending.append(asyncio.ensure_future(self._status(header, member)))
            if not number % REQUESTS_PER_ITERATION:
                await asyncio.sleep(0)
        response = ConsumerStatus()
        for member, body in zip(members, await asyncio.gather(*pending), strict=True):
            if body is not None:
                response.consumer_table[member.client_id] = await _decode_offsets(member, body)
        return RemotingCommand.response(body=response.encode())

    async def _status(self, header: ConsumerStatusHeader, member: ClientMember) -> bytes | None:
        """Return the response body of a member; None if it fails or does not respond."""
        request = RemotingCommand.request(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ConsumerStatusHeader(header.topic, header.group)
        )
        try:
            response = await self._calls.call(member.channel, request, STATUS_TIMEOUT_S)
        except CallFailed as error:
            log.warning("client did not return its status client=%s reason=%s", member.client_id, error)
            return None
        return bytes(response.body) if response.code == ResponseCode.SUCCESS and response.body else None


def refuse_older(members: Iterable[ClientMember], version: int) -> None:
    """Raise RequestError if one of the members has an older version than `version`."""
    for member in members:
        if member.version < version:
            remark = f"the client does not support this feature. version={version_name(member.version)}"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)


async def _decode_offsets(member: ClientMember, body: bytes) -> dict[MessageQueue, int]:
    """Return the offset of each queue that a client reported.

    Decoding takes long for clients with many queues, so each body is decoded in an event-loop iteration of its own.
    """
    await asyncio.sleep(0)
    try:
        return ConsumerStatus.decode_request(body).message_queue_table
    except BodyError as error:
        log.warning("client returned a malformed status client=%s error=%s", member.client_id, error)
        return {}
