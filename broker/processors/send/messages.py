"""From a send request to what is put into the store: one append, or those of a batch.

A batch is stored message by message at consecutive offsets, each with the batch's queue, times and flags and its own
properties. Sources: docs/formats.md, "Send", "Batch body".
"""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, repeat
from operator import ge
from typing import Any, Final, NamedTuple, TypeAlias, cast

from skylarkmq.broker.delivery.deferral import Defer, FastDefer, no_fast_deferral
from skylarkmq.broker.processors.send.fast_batches import PlainBatches
from skylarkmq.broker.processors.send.stored_properties import (
    END,
    END_BYTES,
    PLAIN,
    SPACE,
    PropertyCompletion,
    Shared,
    keys_of,
    tags_code_of,
)
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.log.append_columns import AppendColumns
from skylarkmq.broker.store.log.batch_columns import BatchColumns
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
from skylarkmq.protocol.send_columns import SendColumns
from skylarkmq.protocol.send_layout import Sent

Batch: TypeAlias = list[Append] | BatchColumns

Waiting: TypeAlias = tuple[Connection, RemotingCommand, Append, str, int, Batch | None]
"""A send between its put and its answer: who asked, what, where the last of it went, its unique key, the queue that the
answer names, a batch's all."""

PlainSend: TypeAlias = tuple[RemotingCommand, Append, bytes]
"""A JSON request, what was made of it, and its unique key, of letters and digits."""


class PlainColumns(NamedTuple):
    """Sends that are columns, and what was made of them."""

    command: SendColumns
    appends: AppendColumns

    def apart(self) -> list[PlainSend]:
        """Each by itself, as far as its answer needs it."""
        sent: Sent = self.command.columns
        return [
            (RemotingCommand(code=self.command.code, opaque=int(opaque)), self.appends.append(at), unique_key)
            for at, (opaque, unique_key) in enumerate(zip(sent.opaques, sent.unique_keys, strict=True))
        ]


NO_DELAY: Final = "-1"

_MULTI_TAG: Final = TopicFilterType.MULTI_TAG
_KNOWN_LEVELS: Final = 64  # properties of batches are mostly the same few


class SendMessages:
    """Makes appends. `max_message_size` in bytes bounds a body, and a whole batch; `now_ms` gives Unix time."""

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
        self._wishing = completion.wishing
        self._complete = completion.complete
        self._cluster_entry = completion.cluster_entry
        leaf = compiled.load("decode")
        self.plain: Callable[[Sequence[RemotingCommand], int, Mapping[str, int], bytes], list[PlainSend]]
        """`(commands, at, queues, born host)`: the appends of the plain sends that stand at `at` and behind it, into
        the topics and queues that they name. `queues`: how many a topic has."""
        self.plain = (
            self._plain if leaf is None else leaf.Sends(PutStatus.PENDING, completion.cluster_entry, self._plain).plain
        )
        self._complete_record = completion.complete_record
        self._level = lru_cache(_KNOWN_LEVELS)(lambda text: _level(text, completion))
        batch_leaf = compiled.load("batch")
        self._plain_batch: Callable[..., list[Append] | None]
        self._plain_batch = (
            PlainBatches(completion.cluster_entry)
            if batch_leaf is None
            else batch_leaf.Batches(PutStatus.PENDING, completion.cluster_entry)
        ).appends
        self._columns_of_batch = PlainBatches(completion.cluster_entry).columns if batch_leaf is None else None
        self.limit(max_message_size)

    def limit(self, max_message_size: int) -> None:
        """Bound bodies by so many bytes from now on."""
        self._max_message_size = max_message_size
        self.illegal = (
            "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
            f"{max_message_size}B, msg properties length limit 32KB."
        )

    def __repr__(self) -> str:
        return f"<SendMessages up to {self._max_message_size} bytes>"

    def _plain(
        self, commands: Sequence[RemotingCommand], at: int, queues: Mapping[str, int], born_host: bytes
    ) -> list[PlainSend]:
        usual = self._cluster_entry
        sends: list[PlainSend] = []
        topic, queue_count = "", 0
        last_tags, code = None, 0
        for command in commands[at:] if at else commands:
            sent = command.sent
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
            found = PLAIN(own)
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

    def columns(self, command: SendColumns, queues: Mapping[str, int], born_host: bytes) -> AppendColumns | None:
        """The same of plain sends that are columns; None if one of them, or their topic, is not plain."""
        sent: Sent = command.columns
        header: SendMessageHeader = command.sample
        least = min(map(queues.get, set(sent.topics), repeat(0)))
        if max(sent.queue_ids) >= least and any(map(ge, sent.queue_ids, map(queues.get, sent.topics, repeat(0)))):
            return None
        if not all(map(PLAIN, command.samples)):
            return None
        keys = sent.unique_keys
        if sent.keys:
            keys = list(chain.from_iterable(zip(keys, sent.keys, strict=True)))
        return AppendColumns(
            sent.topics,
            sent.queue_ids,
            command.bodies,
            sent.properties,
            self._cluster_entry,
            sent.tags_codes,
            header.flag,
            header.sys_flag,
            sent.born_timestamps,
            born_host,
            header.reconsume_times or 0,
            keys,
        )

    def single(
        self, connection: Connection, command: RemotingCommand, header: SendMessageHeader, topic: TopicConfig
    ) -> tuple[Append, str, int]:
        """The append of a message, its unique key, and the queue that it is for. It has its status if it is refused."""
        is_dead_letter = topic.topic_name != header.topic
        if not is_dead_letter and (granted := self._granted(connection, command, header, topic)) is not None:
            return granted
        properties = self._complete(never_delayed(header.properties) if is_dead_letter else header.properties)
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
            connection.peer_host,
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

    def _granted(
        self, connection: Connection, command: RemotingCommand, header: SendMessageHeader, topic: TopicConfig
    ) -> tuple[Append, str, int] | None:
        """As `single`, of a message that has usual properties but for the one that defers it; None for any other."""
        wishing = self._wishing(header.properties) if topic.topic_filter_type is not _MULTI_TAG else None
        if wishing is None:
            return None
        encoded, code, keys, wish = wishing
        append = Append(
            topic.topic_name,
            header.queue_id if header.queue_id >= 0 else any_queue(topic),
            command.body,
            encoded,
            code,
            header.flag,
            header.sys_flag,
            header.born_timestamp,
            connection.peer_host,
            header.reconsume_times or 0,
        )
        append.keys = keys
        queue_id = append.queue_id
        if not self._defer_fast(append, wish, self._now_ms()):
            return None
        return append, keys[0].decode(), queue_id

    def batch(
        self, connection: Connection, command: RemotingCommand, header: SendMessageHeader, topic: TopicConfig
    ) -> tuple[list[Append], str]:
        """The appends of a batch, and the batch's own unique key if it has one. RequestError if it is none."""
        self._check_batch(command, header)
        batch_level, shared = self._level(header.properties)
        common = _common(connection, header, topic)
        appends = None
        if shared is not None:
            appends = self._plain_batch(command.body, shared, *common)
        if appends is None:
            appends = [self._of_batch(record, batch_level, *common) for record in decode_batch(command.body)]
        return appends, batch_level.get(PropertyName.UNIQ_KEY, "")

    def batch_columns(
        self, connection: Connection, command: RemotingCommand, header: SendMessageHeader, topic: TopicConfig
    ) -> tuple[BatchColumns | None, str]:
        """The same as columns; None for a batch that is to be taken message by message."""
        if self._columns_of_batch is None:
            return None, ""
        self._check_batch(command, header)
        batch_level, shared = self._level(header.properties)
        if shared is None:
            return None, ""
        columns = self._columns_of_batch(command.body, shared, *_common(connection, header, topic))
        return columns, batch_level.get(PropertyName.UNIQ_KEY, "")

    def _of_batch(
        self, record: BatchRecord, batch_level: dict[str, str], topic: str, queue_id: int, sys_flag: int, *born: Any
    ) -> Append:
        properties = self._complete_record(record, batch_level)
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


def first_of(batch: Batch) -> Append:
    """What knows where a batch begins."""
    return cast(Append, batch) if isinstance(batch, BatchColumns) else batch[0]


def _common(
    connection: Connection, header: SendMessageHeader, topic: TopicConfig
) -> tuple[str, int, int, int, bytes, int]:
    """What the messages of a batch share: topic, queue, sysFlag, born time and host, times reconsumed."""
    queue_id = header.queue_id if header.queue_id >= 0 else any_queue(topic)
    sys_flag = header.sys_flag
    if topic.topic_filter_type is _MULTI_TAG:
        sys_flag |= SysFlag.MULTI_TAGS
    born = header.born_timestamp, connection.peer_host
    return topic.topic_name, queue_id, sys_flag, *born, header.reconsume_times or 0


def _level(text: str, completion: PropertyCompletion) -> tuple[dict[str, str], Shared | None]:
    """A batch's own properties, and what they add to those of its messages."""
    batch_level = decode_properties(text)
    return batch_level, completion.shared(batch_level)


def never_delayed(properties: str) -> str:
    """The properties of a message that becomes a dead letter instead of waiting for its next try."""
    return encode_properties(decode_properties(properties) | {PropertyName.DELAY: NO_DELAY})


def any_queue(topic: TopicConfig) -> int:
    """A queue for a message whose producer did not choose one."""
    return random.randrange(max(topic.write_queue_nums, 1))
