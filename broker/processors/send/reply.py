"""Replies: SEND_REPLY_MESSAGE (324), SEND_REPLY_MESSAGE_V2 (325).

    checks of a send -> push to the requester (PUSH_REPLY_MESSAGE_TO_CLIENT, 326) -> store, if storeReplyMessageEnable
    -> response

The response reports whether the requester has received the reply. The reply is stored either way, as an ordinary
message. A failed put changes only the message id of the response, which is then "0".

Source: docs/reference/wire.md, "Calls to clients", "Send".
"""

import logging
from collections.abc import Awaitable
from typing import Final

from msgspec.structs import replace

from skylarkmq.broker.delivery.calls.request_reply import Replies
from skylarkmq.broker.delivery.internal_puts import STORED, InternalPuts
from skylarkmq.broker.processors.send.checks import SendChecks
from skylarkmq.broker.processors.send.messages import SendMessages, any_queue
from skylarkmq.broker.processors.send.response import SendResponses
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.send import SendMessageHeader, SendMessageResponseHeader, SendMessageV2Header
from skylarkmq.protocol.message import decode_properties, encode_properties

NOT_STORED: Final = "0"

log = logging.getLogger(__name__)


class ReplyProcessor:
    """Pushes replies to requesters, and stores them."""

    def __init__(
        self,
        checks: SendChecks,
        messages: SendMessages,
        puts: InternalPuts,
        responses: SendResponses,
        replies: Replies,
        *,
        are_stored: bool,
    ) -> None:
        self._topic_for = checks.topic_for
        self._messages = messages
        self._puts = puts
        self._responses = responses
        self._replies = replies
        self._stores_replies = are_stored

    def __repr__(self) -> str:
        return f"<ReplyProcessor {self._replies!r}>"

    def configure(self, *, are_stored: bool) -> None:
        """Set whether replies are stored."""
        self._stores_replies = are_stored

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {RequestCode.SEND_REPLY_MESSAGE: self.reply, RequestCode.SEND_REPLY_MESSAGE_V2: self.reply_v2}

    def reply(self, source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand] | RemotingCommand:
        """Serve SEND_REPLY_MESSAGE (324)."""
        return self._reply(source, command, command.header(SendMessageHeader))

    def reply_v2(self, source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand] | RemotingCommand:
        """Serve SEND_REPLY_MESSAGE_V2 (325)."""
        return self._reply(source, command, command.header(SendMessageV2Header))

    def _reply(
        self, source: RequestSource, command: RemotingCommand, header: SendMessageHeader
    ) -> Awaitable[RemotingCommand] | RemotingCommand:
        try:
            topic = self._topic_for(source, command, header)
        except RequestError as refusal:
            return RemotingCommand.response(refusal.code, refusal.remark, self._responses.ext)
        return self._push_and_store(source, command, header, topic)

    async def _push_and_store(
        self, source: RequestSource, command: RemotingCommand, header: SendMessageHeader, topic: TopicConfig
    ) -> RemotingCommand:
        properties = decode_properties(header.properties)
        remark = await self._replies.push(header, properties, command.body, source.peer)
        queue_id = header.queue_id if header.queue_id >= 0 else any_queue(topic)
        response = SendMessageResponseHeader(NOT_STORED, queue_id, 0)
        if self._stores_replies:
            stored = replace(header, properties=encode_properties(properties), queue_id=queue_id)
            response = await self._store(source, command, stored, topic) or response
        code = ResponseCode.SUCCESS if remark is None else ResponseCode.SYSTEM_ERROR
        return RemotingCommand.response(code, remark, self._responses.ext | response.to_ext())

    async def _store(
        self, source: RequestSource, command: RemotingCommand, header: SendMessageHeader, topic: TopicConfig
    ) -> SendMessageResponseHeader | None:
        """Store the reply, and return where; None if the store refused it."""
        try:
            append, _, queue_id = self._messages.single(source, command, header, topic)
        except RequestError as refusal:
            log.debug("reply not stored peer=%s reason=%s", source.peer, refusal.remark)
            return None
        status = await self._puts.put(append)
        if status not in STORED:
            log.debug("reply not stored peer=%s status=%s", source.peer, status.name)
            return None
        return SendMessageResponseHeader(self._responses.message_ids([append]), queue_id, append.queue_offset)
