"""A consumer's answers to what is asked of it: 40, 220, 221, 307, 309.

A reset while it runs: queues that are read here go on at the new offsets, and these become the group's at once; what
was received of them is forgotten, and in an orderly group a running handler is waited for.
"""

import logging
import time
from collections.abc import Iterable
from typing import Final

import msgspec

from skylarkmq.clients.connection.background_tasks import Background
from skylarkmq.clients.consuming.group_member import GroupMember
from skylarkmq.clients.consuming.handler_calls import HandlerCalls
from skylarkmq.clients.consuming.offset_tracker import Progress
from skylarkmq.clients.consuming.queue_puller import QueueReader
from skylarkmq.clients.consuming.received_message import as_received
from skylarkmq.clients.consuming.send_back import Later
from skylarkmq.clients.consuming.stack_dump import thread_stacks
from skylarkmq.clients.settings import ConsumerSettings
from skylarkmq.protocol.bodies.client_state import (
    ConsumeDirectlyResult,
    ConsumeResultName,
    ConsumerRunningInfo,
    ProcessQueueInfo,
)
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import VERSION_NAME
from skylarkmq.protocol.message import MessageExt

_MIB: Final = 1024 * 1024

log = logging.getLogger(__name__)


class Reset(msgspec.Struct, frozen=True, eq=False):
    """Where to go on in a queue."""

    offset: int


class MemberAnswers:
    """What one member answers (`clients.callbacks.ConsumerAnswers`); `calls` None: it has no handler."""

    def __init__(self, member: GroupMember, calls: HandlerCalls | None, settings: ConsumerSettings) -> None:
        self._member = member
        self._calls = calls
        self._settings = settings
        self._started_ms = _now_ms()
        self._resets: dict[MessageQueue, Reset] = {}  # under way, the last one of each queue
        self._background = Background(f"{member.group}/answers")

    def __repr__(self) -> str:
        return f"<MemberAnswers {self._member.group}>"

    def group_changed(self) -> None:
        """Look again who reads what."""
        self._member.group_changed()

    def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Go on from these offsets in the queues that are read here; the last reset of a queue counts."""
        for queue in offsets.keys() & set(self._member.owned.queues()):
            if offsets[queue] < 0:
                log.warning("reset to no offset ignored queue=%s offset=%d", queue, offsets[queue])
                continue
            is_moving = queue in self._resets
            self._resets[queue] = Reset(offsets[queue])
            if not is_moving:
                self._background.spawn(f"reset/{queue}", self._move(queue))

    async def _move(self, queue: MessageQueue) -> None:
        try:
            reset: Reset | None = None
            while reset is not self._resets[queue]:
                reset = self._resets[queue]
                await self._member.owned.move(queue, reset.offset)
        finally:
            del self._resets[queue]

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """The smallest unfinished offset of each queue that is read here."""
        return {reader.queue: offset for reader, offset in self._offsets() if reader.queue.topic == topic}

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        """Settings, subscriptions, queues and rates; where handlers and threads are, if that is wanted."""
        role, rates = self._member.role, self._member.rates
        return ConsumerRunningInfo(
            properties={
                "PROP_CLIENT_VERSION": VERSION_NAME,
                "PROP_CONSUMEORDERLY": str(role.orderly).lower(),
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
                "PROP_CONSUME_TYPE": role.consume_type.value,
                "PROP_NAMESERVER_ADDR": ";".join(self._member.name_servers),
                "PROP_THREADPOOL_CORE_SIZE": str(self._settings.concurrency),
                "messageModel": role.model.value,
            },
            subscription_set=self._member.subscriptions,
            mq_table={reader.queue: self._queue_info(reader) for reader in self._member.owned.readers()},
            status_table={entry.topic: rates.status(entry.topic) for entry in self._member.subscriptions},
            jstack=self._stacks() if with_stacks else None,
        )

    async def consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult | None:
        """Call the handler now, whatever else runs."""
        if self._calls is None:
            return None
        begun_s = time.perf_counter()
        name, remark = ConsumeResultName.SUCCESS, None
        try:
            queue = MessageQueue(message.topic, "", message.queue_id)
            result = await self._calls.call(
                await as_received(message, self._member.namespace, self._settings.max_inflated_bytes),
                Progress(message.queue_offset, queue=queue),
            )
        except Exception as error:
            log.info("handler failed, as is told to who asked msg_id=%s", message.msg_id, exc_info=True)
            name, remark = ConsumeResultName.THROW_EXCEPTION, f"{type(error).__name__}: {error}"
        else:
            name = ConsumeResultName.LATER if isinstance(result, Later) else name
        spent_ms = int((time.perf_counter() - begun_s) * 1000)
        return ConsumeDirectlyResult(name.value, True, self._member.role.orderly, remark, spent_ms)

    async def stop(self) -> None:
        """End resets that are under way."""
        await self._background.stop()

    def _stacks(self) -> str:
        """Handlers first."""
        return "\n".join((*(self._calls.stacks() if self._calls else ()), *thread_stacks()))

    def _offsets(self) -> Iterable[tuple[QueueReader, int]]:
        for reader in self._member.owned.readers():
            if reader.progress is not None:
                yield reader, reader.progress.commit_offset()

    def _queue_info(self, reader: QueueReader) -> ProcessQueueInfo:
        progress, locks = reader.progress, self._member.locks
        info = ProcessQueueInfo(
            commit_offset=reader.committed or 0,
            last_pull_timestamp=int(reader.pulled_s * 1000),
            locked=locks is not None and locks.holds(reader.queue),
            last_lock_timestamp=0 if locks is None else locks.granted_ms(reader.queue),
            last_consume_timestamp=_unix_ms(progress.begun_s) if progress is not None and progress.begun_s else 0,
        )
        if progress is not None and progress.unfinished:
            info.cached_msg_min_offset = progress.commit_offset()
            info.cached_msg_max_offset = progress.position - 1
            info.cached_msg_count = progress.unfinished
            info.cached_msg_size_in_mi_b = progress.unfinished_bytes // _MIB
        return info


def _unix_ms(monotonic_s: float) -> int:
    return int((time.time() - (time.monotonic() - monotonic_s)) * 1000)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
