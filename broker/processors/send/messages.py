"""From a send request to its append, or to the appends of a batch.

The messages of a batch are stored at consecutive queue offsets, each with the batch's queue, times and flags and its
own properties. Sources: docs/reference/wire.md, "Send", "Batch body".
"""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from skylarkmq.broker.delivery.deferral import Defer, FastDefer, no_fast_deferral
from skylarkmq.broker.processors.send.fast_batches import FastPathBatches
from skylarkmq.broker.processors.send.stored_properties import (
    COMMON_PROPERTIES,
    END,
    END_BYTES,
    SPACE,
    PropertyCompletion,
    Shared,
    keys_of,
    tags_code_of,
)
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.protocol import compiled
from skylarkmq.protocol.bodies.enums import TopicFilterType
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import RETRY_PREFIX, ResponseCode, SysFlag
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.send import SendMessageHeader
from skylarkmq.protocol.message import (
    MAX_TOPIC_LENGTH,
    BatchRecord,
    PropertyName,
    decode_batch,
    decode_properties,
    encode_properties,
    tags_code,
)

Batch: TypeAlias = list[Append]

Waiting: TypeAlias = tuple[RequestSource, RemotingCommand, Append, str, int, Batch | None]
"""A send between its put and its response: source, command, its last append, unique key, the queue id for the
response, and all appends if it is a batch."""

FastPathSend: TypeAlias = tuple[RemotingCommand, Append, bytes]
"""A request, its append, and its unique key, which consists of letters and digits."""


NO_DELAY: Final = "-1"

_MULTI_TAG: Final = TopicFilterType.MULTI_TAG
_CACHED_BATCH_PROPERTIES: Final = 64  # most batches have the properties of an earlier one


class SendMessages:
    """Makes appends. `max_message_size` in bytes limits a body, and a whole batch; `now_ms` gives Unix time."""

    def __init__(
        self,
        completion: PropertyCompletion,
        max_message_size: int,
        defer: Defer,
        now_ms: Callable[[], int],
        defer_fast: FastDefer = no_fast_deferral,
    ) -> None:
        self._defer = defer
        self._now_ms = now_ms
        self._defer_fast = defer_fast
        self._deferred_properties = completion.deferred
        self._complete = completion.complete
        self._cluster_entry = completion.cluster_entry
        compiled_decode = compiled.load("decode")
        self.fast_path_sends: Callable[[Sequence[RemotingCommand], int, Mapping[str, int], bytes], list[FastPathSend]]
        """`(commands, at, queues, born_host)`: returns the fast-path sends in `commands` from `at` on, up to the first
        that does not qualify. `queues`: the number of queues of each topic."""
        self.fast_path_sends = self._python_sends
        if compiled_decode is not None:
            sends = compiled_decode.Sends(PutStatus.PENDING, completion.cluster_entry, self._python_sends)
            self.fast_path_sends = sends.fast_path_appends
        self._complete_record = completion.complete_record
        self._batch_properties = lru_cache(_CACHED_BATCH_PROPERTIES)(lambda text: _batch_properties(text, completion))
        compiled_batch = compiled.load("batch")
        self._fast_path_appends: Callable[..., list[Append] | None]
        self._fast_path_appends = (
            FastPathBatches(completion.cluster_entry)
            if compiled_batch is None
            else compiled_batch.Batches(PutStatus.PENDING, completion.cluster_entry)
        ).appends
        self.set_max_message_size(max_message_size)

    def set_max_message_size(self, max_message_size: int) -> None:
        """Set the limit of bodies and batches in bytes."""
        self._max_message_size = max_message_size
        self.illegal = (
            "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
            f"{max_message_size}B, msg properties length limit 32KB."
        )

    def __repr__(self) -> str:
        return f"<SendMessages up to {self._max_message_size} bytes>"

    def _python_sends(
        self, commands: Sequence[RemotingCommand], at: int, queues: Mapping[str, int], born_host: bytes
    ) -> list[FastPathSend]:
        usual = self._cluster_entry
        sends: list[FastPathSend] = []
        topic, queue_count = "", 0
        last_tags, code = None, 0
        for command in commands[at:] if at else commands:
            sent = command.send_header
            if sent is None:
                break
            if sent.topic != topic:
                topic = sent.topic
                queue_count = queues.get(topic, 0)
            queue_id = sent.queue_id
            if not 0 <= queue_id < queue_count or (sent.batch and sent.batch != "false"):
                break
            own = sent.properties.encode("utf-8", "replace")
            if own and own[-1] != END:
                own += END_BYTES
            found = COMMON_PROPERTIES(own)
            if found is None:
                break
            keys, unique_key, _, tags = found.groups()
            if unique_key is None:
                break
            if tags != last_tags:
                last_tags, code = tags, tags_code_of(tags)
            append = Append(
                topic,
                queue_id,
                command.body,
                own + usual,
                code,
                sent.flag,
                sent.sys_flag,
                sent.born_timestamp,
                born_host,
                sent.reconsume_times or 0,
            )
            append.keys = keys_of(unique_key, keys) if keys is None or SPACE in keys else [unique_key, keys]
            sends.append((command, append, unique_key))
        return sends

    def single(
        self, source: RequestSource, command: RemotingCommand, header: SendMessageHeader, topic: TopicConfig
    ) -> tuple[Append, str, int]:
        """Return the append of a message, its unique key, and its queue id. A refused append has its status set."""
        is_dead_letter = topic.topic_name != header.topic
        if not is_dead_letter and (deferred := self._deferred(source, command, header, topic)) is not None:
            return deferred
        properties = self._complete(without_delay(header.properties) if is_dead_letter else header.properties)
        sys_flag = header.sys_flag
        if topic.topic_filter_type is _MULTI_TAG:
            sys_flag |= SysFlag.MULTI_TAGS
        append = Append(
            topic.topic_name,
            header.queue_id if header.queue_id >= 0 and not is_dead_letter else any_queue(topic),
            command.body,
            properties.encoded,
            tags_code(properties.tags),
            header.flag,
            sys_flag,
            header.born_timestamp,
            source.peer_host,
            header.reconsume_times or 0,
            0,
            properties.wait_flush,
        )
        queue_id = append.queue_id
        if properties.deferred is not None and not is_dead_letter:
            refusal = self._defer(append, properties.deferred, self._now_ms())
            if refusal is not None:
                append.status = refusal
        return append, properties.unique_key, queue_id

    def _deferred(
        self, source: RequestSource, command: RemotingCommand, header: SendMessageHeader, topic: TopicConfig
    ) -> tuple[Append, str, int] | None:
        """Return the same for a message whose properties are common but for one that defers it; None for any other
        message."""
        deferred = self._deferred_properties(header.properties) if topic.topic_filter_type is not _MULTI_TAG else None
        if deferred is None:
            return None
        encoded, code, keys, request = deferred
        append = Append(
            topic.topic_name,
            header.queue_id if header.queue_id >= 0 else any_queue(topic),
            command.body,
            encoded,
            code,
            header.flag,
            header.sys_flag,
            header.born_timestamp,
            source.peer_host,
            header.reconsume_times or 0,
        )
        append.keys = keys
        queue_id = append.queue_id
        if not self._defer_fast(append, request, self._now_ms()):
            return None
        return append, keys[0].decode(), queue_id

    def batch(
        self, source: RequestSource, command: RemotingCommand, header: SendMessageHeader, topic: TopicConfig
    ) -> tuple[list[Append], str]:
        """Return the appends of a batch, and the batch's own unique key or "". Raises RequestError if it is invalid."""
        self._check_batch(command, header)
        own, shared = self._batch_properties(header.properties)
        common = _common(source, header, topic)
        appends = None
        if shared is not None:
            appends = self._fast_path_appends(command.body, shared, *common)
        if appends is None:
            appends = [self._batch_append(record, own, *common) for record in decode_batch(command.body)]
        return appends, own.get(PropertyName.UNIQ_KEY, "")

    def _batch_append(
        self, record: BatchRecord, own: dict[str, str], topic: str, queue_id: int, sys_flag: int, *born: Any
    ) -> Append:
        properties = self._complete_record(record, own)
        if properties.deferred is not None:
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, self.illegal)
        born_timestamp, born_host, reconsume_times = born
        return Append(
            topic,
            queue_id,
            record.body,
            properties.encoded,
            tags_code(properties.tags),
            record.flag,
            sys_flag,
            born_timestamp,
            born_host,
            reconsume_times,
            0,
            properties.wait_flush,
        )

    def _check_batch(self, command: RemotingCommand, header: SendMessageHeader) -> None:
        size = len(command.body)
        if len(header.topic) > MAX_TOPIC_LENGTH:
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(header.topic)}")
        if header.topic.startswith(RETRY_PREFIX):
            remark = f"batch request does not support retry group {header.topic}"
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, remark)
        if size > self._max_message_size:
            remark = f"batch body of {size} bytes exceeds maxMessageSize {self._max_message_size}"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        if not size or header.sys_flag & SysFlag.TRANSACTION_MASK:
            raise RequestError(ResponseCode.MESSAGE_ILLEGAL, self.illegal)


def _common(
    source: RequestSource, header: SendMessageHeader, topic: TopicConfig
) -> tuple[str, int, int, int, bytes, int]:
    """Return what the messages of a batch share: topic, queue id, sysFlag, born timestamp and host, reconsume times."""
    queue_id = header.queue_id if header.queue_id >= 0 else any_queue(topic)
    sys_flag = header.sys_flag
    if topic.topic_filter_type is _MULTI_TAG:
        sys_flag |= SysFlag.MULTI_TAGS
    born = header.born_timestamp, source.peer_host
    return topic.topic_name, queue_id, sys_flag, *born, header.reconsume_times or 0


def _batch_properties(text: str, completion: PropertyCompletion) -> tuple[dict[str, str], Shared | None]:
    """Return a batch's own properties, and the entries that they add to its messages."""
    own = decode_properties(text)
    return own, completion.shared(own)


def without_delay(properties: str) -> str:
    """Return the properties of a dead letter, without the delay of a retry."""
    return encode_properties(decode_properties(properties) | {PropertyName.DELAY: NO_DELAY})


def any_queue(topic: TopicConfig) -> int:
    """Return a random queue id, for a message whose producer did not choose one."""
    return random.randrange(max(topic.write_queue_nums, 1))
