"""Messages that a broker keeps for later: by delay level, by time of delivery, and of undecided transactions.

They are in topics of the broker itself, and stay there after their delivery until retention removes them. So those that
still wait are found by progress and content:

    levels         SCHEDULE_TOPIC_XXXX has a queue for each level; the runtime info has the offset of the next delivery
    timers         rmq_sys_wheel_timer: the time of delivery is to come, and no later message recalls it
    transactions   RMQ_SYS_TRANS_HALF_TOPIC from the offset that the broker's group has committed; a half message is
                   decided if RMQ_SYS_TRANS_OP_HALF_TOPIC names its offset, or the offset of the half message that it
                   copies

Of each topic the newest MAX_SCANNED messages are read. Source: docs/reference/wire.md, "Timer messages";
docs/reference/disk.md, "Half messages on disk".
"""

import re
from typing import Final, NamedTuple

from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.base.errors import NoRoute
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.clients.sdk.connection.topic_route import address_text
from skylarkmq.clients.sdk.consuming.queue_calls import QueueCalls
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import TRANSACTIONS_GROUP, RequestCode, SystemTopic
from skylarkmq.protocol.decimals import INT64_MAX, decimal
from skylarkmq.protocol.headers.transactions import ResumeCheckHeader
from skylarkmq.protocol.message import MessageExt, PropertyName
from skylarkmq.protocol.recall_handle import RecallHandle
from skylarkmq.protocol.timers import DELETES, OUT_MS

MAX_SCANNED: Final = 10_000
LONGEST_DELAY_MS: Final = 8 * 24 * 3_600_000
"""No timer message waits for longer after its last roll: the wheel of RocketMQ has seven days."""

_LEVEL_KEY: Final = "scheduleMessageOffset_"
_OFFSETS: Final = re.compile(r"[0-9]{1,19}")
_READ: Final = 32


class DelayLevel(NamedTuple):
    """The messages of one delay level of a broker: [next_offset, end) of this queue still wait."""

    queue: MessageQueue
    level: int
    next_offset: int
    end: int


class WaitingTimer(NamedTuple):
    """A message that waits for its time of delivery. `handle` recalls it; None if its producer gave it no id."""

    broker_name: str
    topic: str
    deliver_ms: int
    handle: str | None
    message: MessageExt


class OpenTransaction(NamedTuple):
    """A half message without a decision, as it was stored last."""

    broker_name: str
    topic: str
    group: str
    checks: int
    message: MessageExt


class Scan(NamedTuple):
    """The messages of a range of a queue, oldest first; `is_cut`: older ones were not read."""

    messages: list[MessageExt]
    is_cut: bool


async def delay_levels(admin: Admin) -> list[DelayLevel]:
    """Return the delay levels of all brokers."""
    levels = []
    for name, address in (await admin.masters()).items():
        for key, value in (await admin.brokers.runtime_info(address)).items():
            level = decimal(key.removeprefix(_LEVEL_KEY), 1, 1_000) if key.startswith(_LEVEL_KEY) else None
            delivered, _, end = value.partition(",")
            first, last = decimal(delivered), decimal(end)
            if level is not None and first is not None and last is not None:
                levels.append(DelayLevel(MessageQueue(SystemTopic.SCHEDULE, name, level - 1), level, first, last))
    return sorted(levels)


async def waiting_timers(admin: Admin, now_ms: int) -> tuple[list[WaitingTimer], bool]:
    """Return the timer messages of all brokers by time of delivery, and whether older ones were not read."""
    found: list[WaitingTimer] = []
    is_cut = False
    for name in await admin.masters():
        queue = MessageQueue(SystemTopic.TIMER, name, 0)
        try:
            first, end = await admin.messages.bounds(queue, now_ms - LONGEST_DELAY_MS)
        except NoRoute:  # the broker has no timers: RocketMQ 4.9
            continue
        scan = await _scan(admin, queue, first, end)
        found += timers_in(scan.messages, name, now_ms)
        is_cut |= scan.is_cut
    return sorted(found, key=lambda timer: timer.deliver_ms), is_cut


def timers_in(messages: list[MessageExt], broker_name: str, now_ms: int) -> list[WaitingTimer]:
    """Return those messages of a broker's timer topic, oldest first, that still wait."""
    waiting: dict[tuple[str, str], WaitingTimer] = {}
    for message in messages:
        properties = message.properties
        topic, key = properties.get(PropertyName.REAL_TOPIC, ""), message.uniq_key
        deleted = properties.get(DELETES)
        if deleted is not None:
            deleted_topic, _, deleted_key = deleted.rpartition("+")
            waiting.pop((deleted_topic or topic, deleted_key), None)
            continue
        out_ms = decimal(properties.get(OUT_MS), 0, INT64_MAX)
        deliver_ms = decimal(properties.get(PropertyName.TIMER_DELIVER_MS), 0, INT64_MAX) or out_ms
        if out_ms is None or deliver_ms is None or deliver_ms <= now_ms:
            continue
        handle = RecallHandle(topic, broker_name, str(out_ms + 1), key).encode() if topic and key else None
        identity = (topic, key or message.offset_msg_id)
        waiting[identity] = WaitingTimer(broker_name, topic, deliver_ms, handle, message)
    return list(waiting.values())


async def open_transactions(admin: Admin) -> tuple[list[OpenTransaction], bool]:
    """Return the undecided half messages of all brokers, oldest first, and whether older ones were not read."""
    found: list[OpenTransaction] = []
    is_cut = False
    for name in await admin.masters():
        halves = await _since_progress(admin, MessageQueue(SystemTopic.TRANSACTION_HALF, name, 0))
        ops = await _since_progress(admin, MessageQueue(SystemTopic.TRANSACTION_OP, name, 0))
        found += transactions_in(halves.messages, ops.messages, name)
        is_cut |= halves.is_cut or ops.is_cut
    return sorted(found, key=lambda each: each.message.born_timestamp), is_cut


def transactions_in(halves: list[MessageExt], ops: list[MessageExt], broker_name: str) -> list[OpenTransaction]:
    """Return the half messages without a decision; of a message and its copies the last one."""
    decided = {int(text) for op in ops for text in _OFFSETS.findall(op.body.decode("ascii", "replace"))}
    latest: dict[str, MessageExt] = {}
    for half in halves:
        latest[half.uniq_key or half.offset_msg_id] = half
    return [
        OpenTransaction(
            broker_name,
            half.properties.get(PropertyName.REAL_TOPIC, ""),
            half.properties.get(PropertyName.PRODUCER_GROUP, ""),
            decimal(half.properties.get(PropertyName.TRANSACTION_CHECK_TIMES), 0, INT64_MAX) or 0,
            half,
        )
        for half in latest.values()
        if decided.isdisjoint({half.queue_offset, _root_of(half)})
    ]


async def check_again(client: Client, half: MessageExt) -> None:
    """Have the broker ask the producers for a decision again (RESUME_CHECK_HALF_MESSAGE, 323); for a discarded half
    message, too. BrokerError if it is no half message."""
    header = ResumeCheckHeader(msg_id=half.offset_msg_id, topic=half.topic)
    await client.request(address_text(half.store_host), RequestCode.RESUME_CHECK_HALF_MESSAGE, header)


def _root_of(half: MessageExt) -> int:
    """Return the offset of the half message of which this one is a copy; its own if it is none."""
    names = (PropertyName.TRANSACTION_QUEUE_OFFSET, PropertyName.TRANSACTION_HALF_OFFSET)
    roots = (decimal(half.properties.get(name), 0, half.queue_offset) for name in names)
    return next((root for root in roots if root is not None), half.queue_offset)


async def _since_progress(admin: Admin, queue: MessageQueue) -> Scan:
    """Return the messages that the broker's check of transactions has not passed."""
    try:
        first, end = await admin.messages.bounds(queue)
        committed = await QueueCalls(admin.client, TRANSACTIONS_GROUP).committed_offset(queue)
    except NoRoute:  # the broker never had a transaction
        return Scan([], False)
    return await _scan(admin, queue, max(first, committed or 0), end)


async def _scan(admin: Admin, queue: MessageQueue, first: int, end: int) -> Scan:
    found: list[MessageExt] = []
    offset = max(first, end - MAX_SCANNED)
    is_cut = offset > first
    while offset < end:
        pulled = await admin.messages.pull(queue, offset, _READ)
        found += pulled.messages
        if pulled.next_offset <= offset:
            break
        offset = pulled.next_offset
    return Scan(found, is_cut)
