"""Queries of queues and single messages.

Queues: SEARCH_OFFSET_BY_TIMESTAMP (29), GET_MAX_OFFSET (30), GET_MIN_OFFSET (31), GET_EARLIEST_MSG_STORETIME (32).
Messages: QUERY_MESSAGE (12), VIEW_MESSAGE_BY_ID (33).

The queue queries always succeed: for a queue that does not exist, offsets are 0 and times are -1. Source:
docs/reference/wire.md, "Queues", "Queries".
"""

from collections.abc import Awaitable
from typing import Final

from skylarkmq.broker.access.message_rights import MessageRights, stored_topic
from skylarkmq.broker.access.requests.resources import Action
from skylarkmq.broker.delivery.cold_read_retry import serve_cold_reads
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.read.offset_by_time import Boundary
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.fields import is_true
from skylarkmq.protocol.headers.queue import (
    OffsetResponseHeader,
    QueryMessageHeader,
    QueryMessageResponseHeader,
    QueueHeader,
    SearchOffsetHeader,
    TimestampResponseHeader,
    ViewMessageHeader,
)

NO_TIME: Final = -1
UPPER: Final = Boundary.UPPER.value
NOT_FOUND: Final = "can not find message, maybe time range not correct"


class QueryProcessor:
    """Serves queries from the store. A query by unique key returns at most `unique_key_num` messages."""

    def __init__(self, store: MessageStore, unique_key_num: int, rights: MessageRights) -> None:
        self._store = store
        self._rights = rights
        self._unique_key_num = unique_key_num

    def limit_unique_keys(self, unique_key_num: int) -> None:
        """Set the maximum number of messages that a query by unique key returns."""
        self._unique_key_num = unique_key_num

    def __repr__(self) -> str:
        return f"<QueryProcessor {self._store!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: serve_cold_reads(self._store, self.offset_by_time),
            RequestCode.GET_MAX_OFFSET: self.max_offset,
            RequestCode.GET_MIN_OFFSET: serve_cold_reads(self._store, self.min_offset),
            RequestCode.GET_EARLIEST_MSG_STORETIME: serve_cold_reads(self._store, self.earliest_time),
            RequestCode.QUERY_MESSAGE: self.query_message,
            RequestCode.VIEW_MESSAGE_BY_ID: serve_cold_reads(self._store, self.view_message),
        }

    def offset_by_time(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve SEARCH_OFFSET_BY_TIMESTAMP (29)."""
        header = command.header(SearchOffsetHeader)
        boundary = Boundary.UPPER if (header.boundary_type or "").lower() == UPPER else Boundary.LOWER
        offset = self._store.offset_by_time(header.topic, header.queue_id, header.timestamp, boundary)
        return RemotingCommand.response(ext=OffsetResponseHeader(offset=offset))

    def max_offset(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve GET_MAX_OFFSET (30)."""
        header = command.header(QueueHeader)
        offset = self._store.max_offset(header.topic, header.queue_id) or 0
        return RemotingCommand.response(ext=OffsetResponseHeader(offset=offset))

    def min_offset(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve GET_MIN_OFFSET (31)."""
        header = command.header(QueueHeader)
        offset = self._store.min_offset(header.topic, header.queue_id) or 0
        return RemotingCommand.response(remark="", ext=OffsetResponseHeader(offset=offset))

    def earliest_time(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve GET_EARLIEST_MSG_STORETIME (32)."""
        header = command.header(QueueHeader)
        time = self._store.earliest_store_time(header.topic, header.queue_id)
        return RemotingCommand.response(ext=TimestampResponseHeader(timestamp=NO_TIME if time is None else time))

    def query_message(self, _source: RequestSource, command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Serve QUERY_MESSAGE (12)."""
        return self._query(command.header(QueryMessageHeader))

    async def _query(self, header: QueryMessageHeader) -> RemotingCommand:
        most = self._unique_key_num if is_true(header.is_unique_key) else header.max_num
        found = await self._store.query_by_key(
            header.topic, header.key, most, header.begin_timestamp, header.end_timestamp
        )
        ext = QueryMessageResponseHeader(found.last_update_timestamp, found.last_update_offset)
        if not found.records:
            return RemotingCommand.response(ResponseCode.QUERY_NOT_FOUND, NOT_FOUND, ext)
        return RemotingCommand.response(ext=ext, body=b"".join(found.records))

    def view_message(self, source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve VIEW_MESSAGE_BY_ID (33). A message whose topic the caller may not read counts as absent."""
        offset = command.header(ViewMessageHeader).offset
        record = self._store.record_at(offset)
        if record is None or not self._rights.rights_of(source, command)(stored_topic(record), Action.GET):
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return RemotingCommand.response(body=record)
