"""Checks of delayed messages and timers: they are delivered at their time.

A broker reports the progress of each delay level as `scheduleMessageOffset_3 = offset,end`. The message at `offset` is
the next one to be delivered, and it is late if its time has passed: the store time + the delay of the level.
"""

import re
from collections.abc import Iterator
from typing import Final

from skylarkmq.clients.mqadmin.doctor.broker_state import skew_ms
from skylarkmq.clients.mqadmin.doctor.findings import Check, NotExamined, Outcomes, warning
from skylarkmq.clients.mqadmin.doctor.subject import State, Subject, is_master
from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import SystemTopic

MAX_LATE_S: Final = 10
"""Delayed messages and timers that are later are a finding."""
_LEVEL: Final = re.compile(r"scheduleMessageOffset_(\d{1,9})", re.ASCII)
_PROGRESS: Final = re.compile(r"(\d{1,18}),(\d{1,18})", re.ASCII)
_DELAY: Final = re.compile(r"(\d{1,9})([smhd])", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


async def delayed_messages(subject: Subject) -> Outcomes:
    """The next message of each delay level is not late."""
    for target, state in (await subject.known_states()).items():
        config = (await subject.configs()).get(target)
        if not is_master(target):
            continue
        if not isinstance(config, dict) or "messageDelayLevel" not in config:
            yield NotExamined(str(target), "messageDelayLevel cannot be read")
            continue
        delays_s = [int(number) * _SECONDS[unit] for number, unit in _DELAY.findall(config["messageDelayLevel"])]
        for level, offset in _waiting(state):
            if level > len(delays_s):
                continue
            queue = MessageQueue(SystemTopic.SCHEDULE, target.name, level - 1)
            try:
                pulled = await subject.admin.messages.pull(queue, offset, 1)
            except ClientError as problem:
                yield NotExamined(str(target), f"the messages of delay level {level} cannot be read: {problem}")
                break
            if not pulled.messages:
                continue
            least_skew_ms = (skew_ms(state) or (0, 0))[0]
            due_ms = pulled.messages[0].store_timestamp + delays_s[level - 1] * 1000
            late_s = (state.sent_ms + least_skew_ms - due_ms) // 1000
            if late_s > MAX_LATE_S:
                what = f"messages of delay level {level} are {late_s} s late"
                yield warning(str(target), what, "Run this again. If it grows, check CPU, disk and log of the broker.")


async def timers(subject: Subject) -> Outcomes:
    """Messages with a delivery time of their own (RocketMQ 5) are not late."""
    for target, state in (await subject.known_states()).items():
        late_s = state.number("timerReadBehind")
        if late_s is None:
            yield NotExamined(str(target), "the broker does not report timerReadBehind")
        elif late_s > MAX_LATE_S and is_master(target):
            what = f"messages with a delivery time are {late_s:g} s late"
            yield warning(str(target), what, "Run this again. If it grows, check CPU, disk and log of the broker.")


def _waiting(state: State) -> Iterator[tuple[int, int]]:
    """Yield each delay level that has messages, and the offset of its next one."""
    for key, text in sorted(state.table.items()):
        level, progress = _LEVEL.fullmatch(key), _PROGRESS.fullmatch(text)
        if level is not None and progress is not None and int(level[1]) > 0 and int(progress[1]) < int(progress[2]):
            yield int(level[1]), int(progress[1])


CHECKS: Final = (Check("delayed messages", delayed_messages), Check("timers", timers))
