"""Sending: SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320).

A send is checked, completed and put into the store's open batch at once; it is answered when the store has decided its
status: after the write at the end of this read, or under SYNC_FLUSH when the flush has passed it. So nothing is awaited
and no answer exists before the message does. The order of the checks, their codes and remarks are RocketMQ's
(docs/formats.md, "Send"); answers of a refused check carry region and trace switch, as those of accepted sends do.
"""

import logging
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import msgspec

from broker.metadata.subscription_groups import SubscriptionGroups
from broker.metadata.topics import NOT_SENDABLE, UNIT, UNIT_SUB, TopicTable
from broker.processors.send_answer import SendAnswers
from broker.processors.stored_properties import PropertyCompletion, StoredProperties
from broker.remoting.dispatch import Pool, Processor
from broker.remoting.selector import Connection
from broker.store.append import Append, PutStatus
from broker.store.message_store import MessageStore
from protocol.bodies.enums import TopicFilterType
from protocol.bodies.topic import TopicConfig
from protocol.codes import (
    DLQ_PREFIX,
    FAQ,
    RETRY_PREFIX,
    Flag,
    Permission,
    RequestCode,
    ResponseCode,
    SysFlag,
)
from protocol.command import RemotingCommand
from protocol.errors import RequestError
from protocol.headers.fields import is_true
from protocol.headers.send import SendMessageHeader, SendMessageResponseHeader, SendMessageV2Header
from protocol.message import (
    MAX_TOPIC_LENGTH,
    PropertyName,
    check_topic_name,
    decode_batch,
    decode_properties,
    tags_code,
)

MAX_RECONSUME_TIMES_VERSION: Final = 121
"""Requests of this version and later may say how often their group retries."""

_TIME_FORMAT: Final = "%Y-%m-%d %H:%M:%S"

log = logging.getLogger(__name__)


Waiting: TypeAlias = tuple[Connection, RemotingCommand, list[Append], str]
"""A send between its put and its answer: who asked, what, where it went, and its unique key."""


class SendConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What sending depends on."""

    broker_ip: str  # as it stands in remarks
    broker_permission: int = Permission.READ_WRITE
    max_message_size: int = 4 << 20  # bytes; stated in the remark of 13
    start_accept_ms: int = 0  # startAcceptSendRequestTimeStamp


class SendProcessor:
    """Checks and stores messages, and answers when the store has decided."""

    def __init__(
        self,
        config: SendConfig,
        store: MessageStore,
        metadata: tuple[TopicTable, SubscriptionGroups],
        codecs: tuple[PropertyCompletion, SendAnswers],
        pool: Pool,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._now_ms = now_ms
        self._store = store
        self._topics, self._groups = metadata
        self._completion, self._answers = codecs
        self._pool = pool
        self._turn: list[Waiting] = []

    def __repr__(self) -> str:
        return f"<SendProcessor turn={len(self._turn)} {self._pool!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """What this processor serves."""
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send_v2,
            RequestCode.SEND_BATCH_MESSAGE: self.send_v2,
        }

    def send(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Request 10."""
        return self._send(connection, command, command.header(SendMessageHeader))

    def send_v2(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Requests 310 and 320: what is a batch is said by the header's flag alone."""
        return self._send(connection, command, command.header(SendMessageV2Header))

    def _send(
        self, connection: Connection, command: RemotingCommand, header: SendMessageHeader
    ) -> RemotingCommand | None:
        try:
            topic = self._topic_for(connection, command, header)
            if header.batch is not None and is_true(header.batch):
                appends, unique_key = self._batch(connection, command, header, topic)
                self._store.put_batch(appends)
            else:
                append, unique_key = self._single(connection, command, header, topic)
                self._store.put(append)
                appends = [append]
        except RequestError as refusal:
            return RemotingCommand.response(refusal.code, refusal.remark, self._answers.ext)
        self._turn.append((connection, command, appends, unique_key))
        return None

    # ---------------------------------------------------------------------------------------------------------- checks

    def _topic_for(self, connection: Connection, command: RemotingCommand, header: SendMessageHeader) -> TopicConfig:
        """The topic to store into, after every check that does not look at the message."""
        config = self._config
        if config.start_accept_ms and self._now_ms() < config.start_accept_ms:
            since = time.strftime(_TIME_FORMAT, time.localtime(config.start_accept_ms / 1000))
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {since}")
        name = header.topic
        topic = self._topics.find(name)
        if topic is None or len(name) > MAX_TOPIC_LENGTH or name in NOT_SENDABLE:
            topic = self._unusual_topic(connection, header)
        if topic.order and not config.broker_permission & Permission.WRITE:
            remark = f"the broker[{config.broker_ip}] sending message is forbidden"
            raise RequestError(ResponseCode.NO_PERMISSION, remark)
        if header.queue_id >= topic.write_queue_nums and header.queue_id >= topic.read_queue_nums:
            remark = f"request queueId[{header.queue_id}] is illegal, {topic} Producer: {connection.peer}"
            raise RequestError(ResponseCode.INVALID_PARAMETER, remark)
        if name.startswith(RETRY_PREFIX):
            topic = self._retry_topic(command, header, topic)
        return topic

    def _unusual_topic(self, connection: Connection, header: SendMessageHeader) -> TopicConfig:
        """Topics with names that may not be sent to, and those that do not exist yet."""
        name = header.topic
        check_topic_name(name)
        if name in NOT_SENDABLE:
            raise RequestError(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
        if name.startswith(RETRY_PREFIX):
            return self._topics.create_for_group(name, sys_flag=UNIT_SUB if is_true(header.unit_mode) else 0)
        topic = self._topics.create_from_template(
            name,
            header.default_topic,
            header.default_topic_queue_nums,
            sys_flag=UNIT if is_true(header.unit_mode) else 0,
        )
        if topic is None:
            log.info("send to unknown topic topic=%s template=%s peer=%s", name, header.default_topic, connection.peer)
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!{FAQ}")
        return topic

    def _retry_topic(self, command: RemotingCommand, header: SendMessageHeader, topic: TopicConfig) -> TopicConfig:
        """Messages that a client sends back by itself: to the dead letters once they were tried often enough."""
        if header.batch is not None and is_true(header.batch):
            return topic
        name = header.topic.removeprefix(RETRY_PREFIX)
        group = self._groups.find_or_create(name)
        if group is None:
            remark = f"subscription group not exist, {name} {FAQ}"
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        limit = group.retry_max_times
        if header.max_reconsume_times is not None and command.version >= MAX_RECONSUME_TIMES_VERSION:
            limit = header.max_reconsume_times
        if (header.reconsume_times or 0) > limit:
            return self._topics.create_for_group(DLQ_PREFIX + name)
        return topic

    # -------------------------------------------------------------------------------------------------------- messages

    def _single(
        self, connection: Connection, command: RemotingCommand, header: SendMessageHeader, topic: TopicConfig
    ) -> tuple[Append, str]:
        properties = self._completion.complete(header.properties)
        queue_id = self._queue_id(header, topic)
        append = self._append(connection, header, topic, queue_id, header.flag, command.body, properties)
        return append, properties.unique_key

    def _batch(
        self, connection: Connection, command: RemotingCommand, header: SendMessageHeader, topic: TopicConfig
    ) -> tuple[list[Append], str]:
        if len(header.topic.encode()) > MAX_TOPIC_LENGTH:
            remark = f"message topic length too long {len(header.topic.encode())}"
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, remark)
        if header.topic.startswith(RETRY_PREFIX):
            remark = f"batch request does not support retry group {header.topic}"
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, remark)
        limit = self._config.max_message_size
        if len(command.body) > limit:
            remark = f"batch body of {len(command.body)} bytes exceeds maxMessageSize {limit}"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        if header.sys_flag & SysFlag.TRANSACTION_MASK or not command.body:
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, self._illegal_remark())
        batch_level = decode_properties(header.properties)
        queue_id = self._queue_id(header, topic)
        appends = [
            self._append(
                connection,
                header,
                topic,
                queue_id,
                record.flag,
                record.body,
                self._completion.complete_record(record, batch_level),
            )
            for record in decode_batch(command.body)
        ]
        return appends, batch_level.get(PropertyName.UNIQ_KEY, "")

    def _append(
        self,
        connection: Connection,
        header: SendMessageHeader,
        topic: TopicConfig,
        queue_id: int,
        flag: int,
        body: memoryview | bytes,
        properties: StoredProperties,
    ) -> Append:
        sys_flag = header.sys_flag
        if topic.topic_filter_type is TopicFilterType.MULTI_TAG:
            sys_flag |= SysFlag.MULTI_TAGS
        return Append(
            topic.topic_name,
            queue_id,
            body,
            properties.encoded,
            tags_code(properties.tags),
            flag,
            sys_flag,
            header.born_timestamp,
            connection.peer_host,
            header.reconsume_times or 0,
            0,
            properties.wait_flush,
        )

    def _queue_id(self, header: SendMessageHeader, topic: TopicConfig) -> int:
        """The queue that the producer asked for, or any writable one."""
        if header.queue_id >= 0 and topic.topic_name == header.topic:
            return header.queue_id
        return random.randrange(max(topic.write_queue_nums, 1))

    # --------------------------------------------------------------------------------------------------------- answers

    def finish_turn(self) -> None:
        """Write what this read brought, and answer what is decided by that."""
        if not self._turn:
            return
        turn, self._turn = self._turn, []
        self._store.commit()
        pending = [waiting for waiting in turn if waiting[2][-1].status is PutStatus.PENDING]
        if not pending:
            self._answer_all(turn)
            return
        self._answer_all([waiting for waiting in turn if waiting[2][-1].status is not PutStatus.PENDING])
        self._pool.held += len(pending)
        self._store.when_settled(partial(self._answer_flushed, pending))

    def _answer_flushed(self, waiting: list[Waiting]) -> None:
        self._pool.held -= len(waiting)
        self._answer_all(waiting)

    def _answer_all(self, waiting: list[Waiting]) -> None:
        for connection, command, appends, unique_key in waiting:
            self._answer(connection, command, appends, unique_key)

    def _answer(self, connection: Connection, command: RemotingCommand, appends: list[Append], unique_key: str) -> None:
        if command.flag & Flag.ONEWAY:
            return
        first = appends[0]
        if len(appends) == 1 and first.status is PutStatus.PUT_OK:
            frame = self._answers.stored(command, first.physical_offset, first.queue_id, first.queue_offset, unique_key)
            if frame is not None:
                connection.write(frame)
                return
        code, remark = _RESULTS[appends[-1].status]
        if code not in _STORED_CODES:
            remark = self._refusal_remark(code, remark)
            connection.answer(command, RemotingCommand.response(code, remark, self._answers.ext))
            return
        header = SendMessageResponseHeader(
            msg_id=",".join(self._answers.message_id(append.physical_offset) for append in appends),
            queue_id=first.queue_id,
            queue_offset=first.queue_offset,
            transaction_id=unique_key or None,
        )
        connection.write(self._answers.stored_general(command, code, remark, header))

    def _refusal_remark(self, code: ResponseCode, remark: str | None) -> str | None:
        if code is ResponseCode.MESSAGE_ILLEGAL:
            return self._illegal_remark()
        if code is ResponseCode.SERVICE_NOT_AVAILABLE:
            return _UNAVAILABLE.format(ratio=self._store.disk_used_ratio())
        return remark

    def _illegal_remark(self) -> str:
        return (
            "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
            f"{self._config.max_message_size}B, msg properties length limit 32KB."
        )


_UNAVAILABLE: Final = (
    "service not available now. It may be caused by one of the following reasons: the broker's disk is full "
    "[CL: {ratio:5.2f} CQ: {ratio:5.2f} INDEX: {ratio:5.2f}], messages are put to the slave, message store has been "
    "shut down, etc."
)

_RESULTS: Final[dict[PutStatus, tuple[ResponseCode, str | None]]] = {
    PutStatus.PUT_OK: (ResponseCode.SUCCESS, None),
    PutStatus.FLUSH_DISK_TIMEOUT: (ResponseCode.FLUSH_DISK_TIMEOUT, None),
    PutStatus.SERVICE_NOT_AVAILABLE: (ResponseCode.SERVICE_NOT_AVAILABLE, None),
    PutStatus.CREATE_MAPPED_FILE_FAILED: (
        ResponseCode.SYSTEM_ERROR,
        "create mapped file failed, server is busy or broken.",
    ),
    PutStatus.MESSAGE_ILLEGAL: (ResponseCode.MESSAGE_ILLEGAL, None),
    PutStatus.PROPERTIES_SIZE_EXCEEDED: (ResponseCode.MESSAGE_ILLEGAL, None),
    PutStatus.UNKNOWN_ERROR: (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"),
}
_STORED_CODES: Final = {ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT}
