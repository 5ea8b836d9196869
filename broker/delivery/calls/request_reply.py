"""Replies of the request-reply pattern: sent to the requesting producer, over its own connection.

A request is an ordinary message with CORRELATION_ID, REPLY_TO_CLIENT (the client id of the requesting producer) and
TTL. Its consumer sends a reply with the same three properties. The broker forwards the reply with
PUSH_REPLY_MESSAGE_TO_CLIENT (326) to the producer with that client id; if several have it, to the one whose heartbeat
came first. PUSH_REPLY_TIME is the time at which the broker forwarded it. Without such a producer, or without its
response, the reply fails; nothing is retried. Source: docs/reference/wire.md, "Calls to clients".
"""

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from skylarkmq.broker.delivery.calls.client_calls import CallFailed, ClientCalls
from skylarkmq.broker.metadata.client_sessions import ClientSessions
from skylarkmq.broker.remoting.request_source import ClientChannel
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.client_calls import PushReplyHeader
from skylarkmq.protocol.headers.send import SendMessageHeader
from skylarkmq.protocol.message import PropertyName, encode_properties

PUSH_TIMEOUT_S: Final = 10.0

log = logging.getLogger(__name__)


class RepliesStatistics(msgspec.Struct, frozen=True):
    """Totals since the start: replies that reached their producer, and replies that did not."""

    pushed: int
    failed: int


class Replies:
    """Forwards replies. `store_host`: the broker's ip:port; `now_ms` returns Unix time."""

    def __init__(
        self, sessions: ClientSessions, calls: ClientCalls, store_host: str, now_ms: Callable[[], int]
    ) -> None:
        self._sessions = sessions
        self._calls = calls
        self._store_host = store_host
        self._now_ms = now_ms
        self._pushed = 0
        self._failed = 0

    def __repr__(self) -> str:
        return f"<Replies pushed={self._pushed} failed={self._failed}>"

    def statistics(self) -> RepliesStatistics:
        """Return the current figures."""
        return RepliesStatistics(self._pushed, self._failed)

    async def push(
        self, header: SendMessageHeader, properties: dict[str, str], body: bytes, born_host: str
    ) -> str | None:
        """Forward a reply to its producer. Returns None if the producer accepted it, otherwise the reason.

        `properties` belong to the reply; the time of forwarding is added to them. `born_host` is its sender's
        ip:port.
        """
        remark = await self._push(header, properties, body, born_host)
        if remark is None:
            self._pushed += 1
        else:
            self._failed += 1
        return remark

    async def _push(
        self, header: SendMessageHeader, properties: dict[str, str], body: bytes, born_host: str
    ) -> str | None:
        client_id = properties.get(PropertyName.REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{PropertyName.REPLY_TO_CLIENT}] is null"
        channel = self._sessions.producer(client_id)
        if channel is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now_ms = self._now_ms()
        properties[PropertyName.PUSH_REPLY_TIME] = str(now_ms)
        pushed = self._header(header, encode_properties(properties), born_host, now_ms)
        command = RemotingCommand.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed, body)
        return None if await self._is_accepted(channel, command) else f"push reply message to {client_id}fail."

    async def _is_accepted(self, channel: ClientChannel, command: RemotingCommand) -> bool:
        try:
            response = await self._calls.call(channel, command, PUSH_TIMEOUT_S)
        except CallFailed as error:
            log.debug("reply not accepted peer=%s reason=%s", channel.peer, error)
            return False
        if response.code != ResponseCode.SUCCESS:
            log.debug("reply not accepted peer=%s code=%d remark=%s", channel.peer, response.code, response.remark)
        return response.code == ResponseCode.SUCCESS

    def _header(self, header: SendMessageHeader, properties: str, born_host: str, now_ms: int) -> PushReplyHeader:
        return PushReplyHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            born_host=born_host,
            store_host=self._store_host,
            store_timestamp=now_ms,
            properties=properties,
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
        )
