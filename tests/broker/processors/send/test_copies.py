"""Sends to a SYNC_MASTER: the response waits for copies on other machines, and has RocketMQ's codes 11 and 12."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.files.config import FlushDiskType
from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.protocol.codes import Flag, RequestCode, ResponseCode
from skylarkmq.protocol.command import JSON, MSGPACK, ROCKETMQ, RemotingCommand
from skylarkmq.protocol.message import BatchRecord, encode_batch
from tests.broker.processors.send.test_processor import NOW, Sends, send
from tests.harness.copies import TestCopies

KEY = "UNIQ_KEY\x01A\x02"
BATCH = encode_batch([BatchRecord(0, b"1", b""), BatchRecord(0, b"2", b"")])


def fast(**fields: Any) -> RemotingCommand:
    """Return a send for the fast path."""
    return send(properties=KEY, **fields)


def general(**fields: Any) -> RemotingCommand:
    """Return a send for the general path: it has a delay level."""
    return send(properties=f"{KEY}DELAY\x013\x02", **fields)


def batch(**fields: Any) -> RemotingCommand:
    """Return a batch."""
    return send(BATCH, code=RequestCode.SEND_BATCH_MESSAGE, batch=True, properties=KEY, **fields)


EVERY_PATH = pytest.mark.parametrize("make", [fast, general, batch])


@pytest.fixture(params=["as-installed", "interpreted"])
async def sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any) -> AsyncIterator[Sends]:
    """An ASYNC_FLUSH store; the fast path has served its first send."""
    sends = Sends(tmp_path)
    responses = sends.processor._responses
    if request.param == "interpreted":
        monkeypatch.setattr(responses, "stored_all", responses._stored_all)
    sends.peer.send(fast(), batch())
    sends.peer.take()
    sends.peer.received.clear()
    yield sends
    sends.store.close()


@pytest.fixture
def copies(sends: Sends) -> Iterator[TestCopies]:
    copies = TestCopies()
    sends.store.flush.replicate(copies)
    yield copies
    copies.move(1 << 62)


def end(sends: Sends) -> int:
    return sends.store.max_physical_offset


@EVERY_PATH
async def test_the_response_waits_for_the_copy(sends: Sends, copies: TestCopies, make: Any) -> None:
    """Also under ASYNC_FLUSH. Until then the send keeps its slot in the pool; the message is visible before."""
    sends.peer.send(make(), make())
    assert (sends.peer.received, sends.pool.pending) == ([], 2)
    copies.move(end(sends))
    assert [it.code for it in sends.peer.take()] == [ResponseCode.SUCCESS] * 2
    assert sends.pool.pending == 0


@EVERY_PATH
@pytest.mark.parametrize("dialect", [JSON, ROCKETMQ, MSGPACK])
@pytest.mark.parametrize(
    ("refusal", "code"), [(None, 12), (PutStatus.SLAVE_NOT_AVAILABLE, 11)], ids=["timeout", "no-replica"]
)
async def test_a_message_without_a_copy_is_stored_and_reported(
    sends: Sends, copies: TestCopies, make: Any, dialect: int, refusal: PutStatus | None, code: int
) -> None:
    """The response has its code, no remark, and the same fields as that to an acknowledged message."""
    command = make()
    command.dialect = dialect
    copies.refusal = refusal
    sends.peer.send(command)
    assert len(sends.peer.received) == (0 if refusal is None else 1)
    sends.store.step(NOW + copies.timeout_ms)
    sends.peer.take()
    (late,) = sends.peer.received
    assert (late.code, late.remark) == (code, None)
    copies.refusal = None
    again = make()
    again.dialect = dialect
    sends.peer.send(again)
    copies.move(end(sends))
    (good,) = sends.peer.take()
    assert good.code == ResponseCode.SUCCESS
    late_fields, good_fields = late.ext_fields(), good.ext_fields()
    assert late_fields.keys() == good_fields.keys()
    assert int(late_fields["queueOffset"]) + (2 if make is batch else 1) == int(good_fields["queueOffset"])
    stored = sends.stored(late)
    assert [message.body for message in stored] == ([b"1", b"2"] if make is batch else [b"body"])


async def test_wait_false_gets_its_response_at_once(sends: Sends, copies: TestCopies) -> None:
    """Whether a replica is connected or not."""
    for refusal in (None, PutStatus.SLAVE_NOT_AVAILABLE):
        copies.refusal = refusal
        assert sends.peer.call(send(properties=f"{KEY}WAIT\x01false\x02")).code == ResponseCode.SUCCESS


@EVERY_PATH
async def test_a_oneway_send_gets_no_response(sends: Sends, copies: TestCopies, make: Any) -> None:
    """Whatever happens to its copy."""
    command = make()
    command.flag |= Flag.ONEWAY
    sends.peer.send(command)
    sends.store.step(NOW + copies.timeout_ms)
    assert sends.peer.take() == []
    assert sends.pool.pending == 0


@EVERY_PATH
async def test_on_a_link_an_overdue_send_is_refused(sends: Sends, make: Any) -> None:
    """With SERVICE_NOT_AVAILABLE (14), and consumers do not see it before it is committed."""
    copies = TestCopies(is_visible_first=False)
    sends.store.flush.replicate(copies)
    visible = sends.store.statistics().dispatched
    sends.peer.send(make())
    sends.store.step(NOW + copies.timeout_ms)
    (refused,) = sends.peer.take()
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert (refused.remark or "").startswith("service not available now.")
    assert sends.store.statistics().dispatched == visible
    copies.move(end(sends))
    assert sends.store.statistics().dispatched == visible + (2 if make is batch else 1)


async def test_under_sync_flush_the_response_waits_for_both(tmp_path: Path) -> None:
    """The flush and the copy, in any order."""
    sends = Sends(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    copies = TestCopies()
    sends.store.flush.replicate(copies)
    flusher = sends.store._durability.log._flusher
    assert flusher is not None
    sends.peer.send(fast())
    flusher.wait_idle()
    sends.store.step(NOW)
    assert sends.peer.take() == []
    copies.move(end(sends))
    assert [it.code for it in sends.peer.take()] == [ResponseCode.SUCCESS]
    copies.move(1 << 62)
    sends.peer.send(fast())
    assert sends.peer.received[1:] == []
    flusher.wait_idle()
    sends.store.step(NOW)
    assert [it.code for it in sends.peer.take()] == [ResponseCode.SUCCESS]
    sends.store.close()
