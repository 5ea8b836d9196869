"""Pulls on a slave, as RocketMQ 5.3 serves them.

Without `slaveReadEnable` every pull is refused (SYSTEM_BUSY, 2); clients repeat it later.

With it, a slave serves what it has. It never corrects a client's offset: its copy may lack what the master has. While a
master is known, a pull that needs no old messages is sent to it: suggestWhichBrokerId is 0, and a pull that finds
nothing gets PULL_RETRY_IMMEDIATELY (20) instead of being parked. Without a known master it is parked, as on a master.
RocketMQ's slaves respond 20 then as well, and their consumers ask again without a pause.

Source: docs/reference/wire.md, "Slaves".
"""

from typing import Final, NamedTuple

import msgspec

from skylarkmq.broker.processors.pull.response import MASTER_ID
from skylarkmq.broker.store.read.queue_reads import GetResult, GetStatus
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError

REFUSED: Final = "[REJECTREQUEST]system busy, start flow control for a while"


class SlaveResult(NamedTuple):
    """What a slave responds. `suggested_broker`: the replica that the consumer should pull from next."""

    code: ResponseCode
    result: GetResult
    suggested_broker: int


def refused() -> RequestError:
    """Return the error to raise for every pull on a slave without `slaveReadEnable`."""
    return RequestError(ResponseCode.SYSTEM_BUSY, REFUSED)


def on_slave(answer: SlaveResult, offset: int, group: SubscriptionGroupConfig, *, has_master: bool) -> SlaveResult:
    """Return what a slave responds to a pull from `offset` where a master would respond `answer`."""
    code, result, suggested = answer
    if result.status is GetStatus.FOUND:
        return SlaveResult(code, result, MASTER_ID if has_master and not result.behind_memory else suggested)
    if code is ResponseCode.PULL_OFFSET_MOVED:
        return SlaveResult(ResponseCode.PULL_RETRY_IMMEDIATELY, _at(result, offset), group.broker_id)
    if result.status in {GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE}:
        result = _at(result, offset)
    if has_master and not result.behind_memory:
        return SlaveResult(ResponseCode.PULL_RETRY_IMMEDIATELY, result, MASTER_ID)
    return SlaveResult(code, result, suggested)


def _at(result: GetResult, offset: int) -> GetResult:
    return msgspec.structs.replace(result, next_begin_offset=offset)
