"""RECALL_MESSAGE (370): cancels a timer message.

The broker stores another timer message, due at the same time, which deletes the first one when both are due
(broker/delivery/timer/slot_delivery.py). So success only means that the second one is stored. Responses carry the
region, like those of sends. The setting `recallMessageEnable` turns this on; it is off by default. Source:
docs/reference/wire.md, "Timer messages".
"""

from collections.abc import Callable
from typing import Final

import msgspec

from skylarkmq.broker.delivery.deferral import Defer
from skylarkmq.broker.delivery.internal_puts import STORED, InternalPuts
from skylarkmq.broker.metadata.topics import TopicTable
from skylarkmq.broker.processors.send.checks import refuse_internal_topic
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import NO_RESPONSE_REMARK, RemotingCommand
from skylarkmq.protocol.decimals import decimal
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.recall import RecallMessageHeader, RecallMessageResponseHeader
from skylarkmq.protocol.message import ENTRY_END, NAME_END, PropertyName, encode_properties, tags_code
from skylarkmq.protocol.recall_handle import RecallHandle
from skylarkmq.protocol.timers import DELETES

TAG: Final = "_RECALL_TAG_"
BODY: Final = b"0"
_SEPARATORS: Final = frozenset((NAME_END, ENTRY_END))
_UNAVAILABLE: Final = "recall failed, broker service not available"


class RecallConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of recalls. `start_accept_ms`: startAcceptSendRequestTimeStamp."""

    is_enabled: bool
    broker_name: str
    cluster_name: str
    region: str
    start_accept_ms: int
    max_delay_ms: int


class RecallProcessor:
    """Recalls the messages of one broker. `now_ms` gives Unix time."""

    def __init__(
        self,
        config: RecallConfig,
        topics: TopicTable,
        defer: Defer,
        puts: InternalPuts,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._topics = topics
        self._defer = defer
        self._puts = puts
        self._now_ms = now_ms

    def __repr__(self) -> str:
        return f"<RecallProcessor enabled={self._config.is_enabled}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {RequestCode.RECALL_MESSAGE: self.recall}

    def configure(self, config: RecallConfig) -> None:
        """Apply new settings to the requests that follow."""
        self._config = config

    async def recall(self, source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve RECALL_MESSAGE (370)."""
        header = command.header(RecallMessageHeader)
        ext = {PropertyName.MSG_REGION: self._config.region}
        try:
            handle = self._checked(header)
            await self._put(handle, source)
        except RequestError as refusal:
            return RemotingCommand.response(refusal.code, refusal.remark, ext)
        response = RecallMessageResponseHeader(msg_id=handle.unique_key)
        return RemotingCommand.response(remark=NO_RESPONSE_REMARK, ext=ext | response.to_ext())

    def _checked(self, header: RecallMessageHeader) -> RecallHandle:
        """Return the decoded handle. Raises RequestError if it may not be used."""
        config, now_ms = self._config, self._now_ms()
        if not config.is_enabled:
            raise RequestError(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if now_ms < config.start_accept_ms:
            raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, _UNAVAILABLE)
        refuse_internal_topic(header.topic)
        if self._topics.find(header.topic) is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist")
        try:
            handle = RecallHandle.decode(header.recall_handle)
        except ValueError:
            raise _illegal("recall handle is invalid") from None
        if handle.topic != header.topic:
            raise _illegal("recall failed, topic not match")
        if handle.broker_name != config.broker_name:
            raise _illegal(_UNAVAILABLE)
        if not _SEPARATORS.isdisjoint(handle.unique_key):
            raise _illegal("recall handle is invalid")
        deliver_ms = decimal(handle.deliver_ms)
        if deliver_ms is None or not 0 < deliver_ms - now_ms < config.max_delay_ms:
            raise _illegal("recall failed, timestamp invalid")
        return handle

    async def _put(self, handle: RecallHandle, source: RequestSource) -> None:
        """Store the deleting message. Raises RequestError if that fails."""
        now_ms = self._now_ms()
        properties = {
            PropertyName.TAGS: TAG,
            PropertyName.UNIQ_KEY: handle.unique_key,
            PropertyName.TIMER_DELIVER_MS: handle.deliver_ms,
            PropertyName.CLUSTER: self._config.cluster_name,
            DELETES: f"{handle.topic}+{handle.unique_key}",
        }
        encoded = encode_properties(properties).encode("utf-8", "replace")
        append = Append(handle.topic, 0, BODY, encoded, tags_code(TAG), 0, 0, now_ms, source.peer_host)
        try:
            refusal = self._defer(append, properties, now_ms)
        except RequestError:
            refusal = PutStatus.MESSAGE_ILLEGAL
        if refusal is not None or await self._puts.put(append) not in STORED:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "recall failed, execute error")


def _illegal(remark: str) -> RequestError:
    return RequestError(ResponseCode.ILLEGAL_OPERATION, remark)
