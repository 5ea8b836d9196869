"""The responses of a consumer to requests that brokers relay to it:

    NOTIFY_CONSUMER_IDS_CHANGED (40)       rebalance
    RESET_CONSUMER_CLIENT_OFFSET (220)     continue at other offsets
    GET_CONSUMER_STATUS_FROM_CLIENT (221)  the offsets
    GET_CONSUMER_RUNNING_INFO (307)        settings, queues, rates, stacks
    CONSUME_MESSAGE_DIRECTLY (309)         call the handler with one message

A reset while the consumer runs: the queues that are read here continue at the new offsets, which are committed at once.
Received messages of these queues are dropped; in an orderly group the running handler ends first.
"""

import logging
import time
from collections.abc import Iterable
from typing import Final

import msgspec

from skylarkmq.clients.sdk.base.clocks import now_ms
from skylarkmq.clients.sdk.base.settings import ConsumerSettings
from skylarkmq.clients.sdk.connection.background_tasks import Background
from skylarkmq.clients.sdk.consuming.group_member import GroupMember
from skylarkmq.clients.sdk.consuming.handler_calls import HandlerCalls
from skylarkmq.clients.sdk.consuming.offset_tracker import OffsetTracker
from skylarkmq.clients.sdk.consuming.queue_puller import QueuePuller
from skylarkmq.clients.sdk.consuming.received_message import received
from skylarkmq.clients.sdk.consuming.stack_dump import thread_stacks
from skylarkmq.clients.sdk.messages.stored_messages import inflate_message, restore_topic
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
    """The offset at which to continue in a queue."""

    offset: int


class MemberResponses:
    """The responses of one member (`connection.broker_requests.ConsumerAnswers`). `calls` None: it has no handler."""

    def __init__(self, member: GroupMember, calls: HandlerCalls | None, settings: ConsumerSettings) -> None:
        self._member = member
        self._calls = calls
        self._settings = settings
        self._started_ms = now_ms()
        self._resets: dict[MessageQueue, Reset] = {}  # that run, the last one of each queue
        self._background = Background(f"{member.group}/responses")

    def __repr__(self) -> str:
        return f"<MemberResponses {self._member.group}>"

    def group_changed(self) -> None:
        """Rebalance now."""
        self._member.group_changed()

    def reset(self, offsets: dict[MessageQueue, int]) -> None:
        """Continue at these offsets in the queues that are read here. The last reset of a queue wins."""
        for queue in offsets.keys() & set(self._member.assigned.queues()):
            if offsets[queue] < 0:
                log.warning("reset to a negative offset ignored queue=%s offset=%d", queue, offsets[queue])
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
                await self._member.assigned.move(queue, reset.offset)
        finally:
            del self._resets[queue]

    def positions(self, topic: str) -> dict[MessageQueue, int]:
        """Return the smallest unacknowledged offset of each queue that is read here."""
        return {puller.queue: offset for puller, offset in self._offsets() if puller.queue.topic == topic}

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        """Return settings, subscriptions, queues and rates; with the stacks of handlers and threads, if requested."""
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
            mq_table={puller.queue: self._queue_info(puller) for puller in self._member.assigned.pullers()},
            status_table={entry.topic: rates.status(entry.topic) for entry in self._member.subscriptions},
            jstack=self._stacks() if with_stacks else None,
        )

    async def consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult | None:
        """Call the handler with a message now, beside all other calls. Return None if there is no handler."""
        if self._calls is None:
            return None
        begun_s = time.perf_counter()
        name, remark = ConsumeResultName.SUCCESS, None
        try:
            queue = MessageQueue(message.topic, "", message.queue_id)
            await inflate_message(message, self._settings.max_inflated_bytes)
            restored = restore_topic(message, self._member.namespace)
            result = await self._calls.call(received(restored, OffsetTracker(message.queue_offset, queue=queue)))
        except Exception as error:
            log.info("handler failed in a direct call msg_id=%s", message.msg_id, exc_info=True)
            name, remark = ConsumeResultName.THROW_EXCEPTION, f"{type(error).__name__}: {error}"
        else:
            name = name if result is None else ConsumeResultName.LATER
        spent_ms = int((time.perf_counter() - begun_s) * 1000)
        return ConsumeDirectlyResult(name.value, True, self._member.role.orderly, remark, spent_ms)

    async def stop(self) -> None:
        """Cancel the resets that run."""
        await self._background.stop()

    def _stacks(self) -> str:
        """Return the stacks of the handlers, then of the threads."""
        return "\n".join((*(self._calls.stacks() if self._calls else ()), *thread_stacks()))

    def _offsets(self) -> Iterable[tuple[QueuePuller, int]]:
        for puller in self._member.assigned.pullers():
            if puller.tracker is not None:
                yield puller, puller.tracker.commit_offset()

    def _queue_info(self, puller: QueuePuller) -> ProcessQueueInfo:
        tracker, locks = puller.tracker, self._member.locks
        info = ProcessQueueInfo(
            commit_offset=puller.committed or 0,
            last_pull_timestamp=int(puller.pulled_s * 1000),
            locked=locks is not None and locks.holds(puller.queue),
            last_lock_timestamp=0 if locks is None else locks.granted_ms(puller.queue),
            last_consume_timestamp=_unix_ms(tracker.begun_s) if tracker is not None and tracker.begun_s else 0,
        )
        if tracker is not None and tracker.unfinished:
            info.cached_msg_min_offset = tracker.commit_offset()
            info.cached_msg_max_offset = tracker.position - 1
            info.cached_msg_count = tracker.unfinished
            info.cached_msg_size_in_mi_b = tracker.unfinished_bytes // _MIB
        return info


def _unix_ms(monotonic_s: float) -> int:
    return int((time.time() - (time.monotonic() - monotonic_s)) * 1000)
