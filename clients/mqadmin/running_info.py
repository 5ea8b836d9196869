"""The state that a consumer reports (GET_CONSUMER_RUNNING_INFO, 307) as text, and the checks of RocketMQ's tool on it.

The checks: all members of a push group have the same subscriptions, and none of a member's queues stands still. They
apply to members that have run for two minutes, because subscriptions change at the start.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final

from skylarkmq.clients.mqadmin.java_output import java_format, local_time_ms
from skylarkmq.protocol.bodies.client_state import ConsumerRunningInfo, ProcessQueueInfo
from skylarkmq.protocol.bodies.heartbeat import SubscriptionData
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.hash_order import bucket_order

_QUEUE_HEAD: Final = "%-64s  %-32s  %-4s  %-20s%n"
_QUEUE_NAMES: Final = ("#Topic", "#Broker Name", "#QID")
_RATES_HEAD: Final = "%-64s  %14s %14s %14s %14s %18s %25s%n"
_RATES_NAMES: Final = (
    "#Topic", "#Pull RT", "#Pull TPS", "#Consume RT", "#ConsumeOK TPS", "#ConsumeFailed TPS",
    "#ConsumeFailedMsgsInHour",
)  # fmt: skip
_RATES_ROW: Final = "%-32s  %14.2f %14.2f %14.2f %14.2f %18.2f %25d%n"
_RUNNING_FOR_MS: Final = 2 * 60_000
_BLOCKED_MS: Final = 60_000
_STARTED: Final = "PROP_CONSUMER_START_TIMESTAMP"
_ORDERLY: Final = "PROP_CONSUMEORDERLY"
_TYPE: Final = "PROP_CONSUME_TYPE"


def running_info_text(info: ConsumerRunningInfo) -> str:
    """Return the text in several sections; with the stacks of the member's threads if they were requested."""
    jstack = "" if info.jstack is None else f"\n\n#Consumer jstack#\n{info.jstack}"
    return "".join(_sections(info)) + jstack


def _sections(info: ConsumerRunningInfo) -> Iterator[str]:
    yield "#Consumer Properties#\n"
    yield from _pairs({name: info.properties[name] for name in bucket_order(info.properties)})
    yield "\n\n#Consumer Subscription#\n"
    for number, data in enumerate(sorted(info.subscription_set, key=_subscription_text), 1):
        pattern = "%03d Topic: %-40s ClassFilter: %-8s SubExpression: %s%n"
        yield java_format(pattern, number, data.topic, data.class_filter_mode, data.sub_string)
    queues = sorted(info.mq_table.items())
    yield "\n\n#Consumer Offset#\n" + java_format(_QUEUE_HEAD, *_QUEUE_NAMES, "#Consumer Offset")
    for queue, state in queues:
        yield java_format("%-32s  %-32s  %-4d  %-20d%n", *_cells(queue), state.commit_offset)
    yield "\n\n#Consumer MQ Detail#\n" + java_format(_QUEUE_HEAD, *_QUEUE_NAMES, "#ProcessQueueInfo")
    for queue, state in queues:
        yield java_format("%-64s  %-32s  %-4d  %s%n", *_cells(queue), _queue_text(state))
    head = java_format("%-32s  %-32s  %-4s  %-20s%n", *_QUEUE_NAMES, "#ProcessQueueInfo")
    yield "\n\n#Consumer Pop Detail#\n" + head
    for queue, pop in sorted(info.mq_pop_table.items()):
        text = java_format(
            "PopProcessQueueInfo [waitAckCount:%d, droped:%s, lastPopTimestamp:%d]",
            pop.wait_ack_count,
            pop.droped,
            pop.last_pop_timestamp,
        )
        yield java_format("%-32s  %-32s  %-4d  %s%n", *_cells(queue), text)
    yield "\n\n#Consumer RT&TPS#\n" + java_format(_RATES_HEAD, *_RATES_NAMES)
    for topic, status in sorted(info.status_table.items()):
        rates = status.pull_rt, status.pull_tps, status.consume_rt, status.consume_ok_tps, status.consume_failed_tps
        yield java_format(_RATES_ROW, topic, *map(float, rates), status.consume_failed_msgs)
    yield "\n\n#User Consume Info#\n"
    yield from _pairs(dict(sorted(info.user_consumer_info.items())))


def _pairs(table: Mapping[str, str]) -> Iterator[str]:
    return (java_format("%-40s: %s%n", name, value) for name, value in table.items())


def _cells(queue: MessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id


def _queue_text(state: ProcessQueueInfo) -> str:
    return java_format(
        "ProcessQueueInfo [commitOffset=%d, cachedMsgMinOffset=%d, cachedMsgMaxOffset=%d, cachedMsgCount=%d, "
        "cachedMsgSizeInMiB=%d, transactionMsgMinOffset=%d, transactionMsgMaxOffset=%d, transactionMsgCount=%d, "
        "locked=%s, tryUnlockTimes=%d, lastLockTimestamp=%s, droped=%s, lastPullTimestamp=%s, lastConsumeTimestamp=%s]",
        state.commit_offset,
        state.cached_msg_min_offset,
        state.cached_msg_max_offset,
        state.cached_msg_count,
        state.cached_msg_size_in_mi_b,
        state.transaction_msg_min_offset,
        state.transaction_msg_max_offset,
        state.transaction_msg_count,
        state.locked,
        state.try_unlock_times,
        _digits(state.last_lock_timestamp),
        state.droped,
        _digits(state.last_pull_timestamp),
        _digits(state.last_consume_timestamp),
    )


def _digits(timestamp_ms: int) -> str:
    """Return a time as yyyyMMddHHmmssSSS in the local time zone."""
    return "".join(filter(str.isdigit, local_time_ms(timestamp_ms)))


# ----------------------------------------------------------------------------------------------------------- checks


def have_same_subscriptions(members: Iterable[ConsumerRunningInfo], now_ms: int) -> bool:
    """Return whether all members have the same subscriptions; also if the check does not apply to the first one."""
    infos = list(members)
    if not _is_push(infos[0]) or now_ms - _started_ms(infos[0]) <= _RUNNING_FOR_MS:
        return True
    texts = [{_subscription_text(data) for data in info.subscription_set} for info in infos]
    return all(one == other for one, other in pairwise(texts))


def problems(client_id: str, info: ConsumerRunningInfo, now_ms: int) -> Iterator[str]:
    """Yield a line for each queue of a push member that it cannot lock, or from which it consumes nothing."""
    if not _is_push(info):
        return
    is_orderly = info.properties.get(_ORDERLY, "").lower() == "true"
    for queue, state in sorted(info.mq_table.items()):
        problem = _lock_problem(state, now_ms) if is_orderly else _block_problem(state, now_ms)
        if problem is not None:
            name = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
            yield f"{client_id} {name} {problem}\n"


def _lock_problem(state: ProcessQueueInfo, now_ms: int) -> str | None:
    if not state.locked:
        return f"can't lock for a while, {now_ms - state.last_lock_timestamp}ms"
    if state.droped and state.try_unlock_times > 0:
        return f"unlock {state.try_unlock_times} times, still failed"
    return None


def _block_problem(state: ProcessQueueInfo, now_ms: int) -> str | None:
    idle_ms = now_ms - state.last_consume_timestamp
    if idle_ms > _BLOCKED_MS and state.cached_msg_count > 0:
        return f"can't consume for a while, maybe blocked, {idle_ms}ms"
    return None


def _is_push(info: ConsumerRunningInfo) -> bool:
    return info.properties.get(_TYPE) == "CONSUME_PASSIVELY"


def _started_ms(info: ConsumerRunningInfo) -> int:
    """Return the time of the start; 0 if the member does not report it."""
    text = info.properties.get(_STARTED, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _subscription_text(data: SubscriptionData) -> str:
    return f"{data.topic}@{data.sub_string}"
