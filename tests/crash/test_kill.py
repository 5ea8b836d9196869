"""SIGKILL of the daemon under load: every acknowledged message is stored once, in the order of its queue."""

import asyncio
import os
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from skylarkmq import Message, Producer, ProducerSettings, SendResult, SendStatus
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import RequestCode
from tests.crash.expected_state import log_of
from tests.harness.daemon import Daemon, running
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient
from tests.harness.stores import Clock, abandon, config_of

pytestmark = pytest.mark.crash

KILLS: Final = int(os.environ.get("SKYLARK_KILLS", "20"))
IN_FLIGHT: Final = 64
TOPIC: Final = "Kill"
SEGMENT_BYTES: Final = 1 << 17
QUEUE_SEGMENT_BYTES: Final = 20 * 100


async def send_until_killed(daemon: Daemon, first: int, rng: Random) -> dict[int, SendResult]:
    """Send until the daemon is killed, with requests in flight; return the acknowledgments by message number."""
    acknowledged: dict[int, SendResult] = {}
    last = rng.randint(20, 600)
    numbers = iter(range(first, first + 100_000))

    async def sender(producer: Producer) -> None:
        for number in numbers:
            body = b"%d." % number + b"x" * rng.randint(0, 2_000)
            result = await producer.send(Message(TOPIC, body, keys=[str(number)]))
            assert result.status is SendStatus.OK
            acknowledged[number] = result
            if len(acknowledged) == last:
                daemon.process.kill()

    settings = ProducerSettings(send_timeout_s=2.0, retries=0)
    async with Producer("killers", namesrv=daemon.namesrv, settings=settings) as producer:
        await asyncio.gather(*(sender(producer) for _ in range(IN_FLIGHT)), return_exceptions=True)
    return acknowledged


def audit(root: Path, acknowledged: dict[int, SendResult]) -> None:
    """Check that a recovery of the store has every acknowledged message at its acknowledged offset."""
    config = config_of(
        root,
        mapped_file_size_commit_log=SEGMENT_BYTES,
        mapped_file_size_consume_queue=QUEUE_SEGMENT_BYTES,
    )
    store = MessageStore(config, Clock())
    store.load()
    records = [record for record in log_of(store) if record.topic == TOPIC]
    found = {(record.queue_id, record.queue_offset): record for record in records}
    assert len(found) == len(records), "two records with one queue offset"
    offsets_found = set()
    for number, result in acknowledged.items():
        position = result.queue.queue_id, result.queue_offset
        assert found[position].body.split(b".")[0] == b"%d" % number, f"message {number} is not at {position}"
        offsets_found.add(position)
    assert len(offsets_found) == len(acknowledged), "two messages were acknowledged with one offset"
    for (topic, queue_id), queue in store.queues.by_key.items():
        offsets = [offset for owner, offset in found if owner == queue_id] if topic == TOPIC else range(queue.end)
        assert sorted(offsets) == list(range(queue.end))
    abandon(store)


async def test_acknowledged_messages_survive_kills(tmp_path: Path) -> None:
    """The daemon is killed repeatedly under SYNC_FLUSH load. SKYLARK_KILLS: the number of kills."""
    settings = {
        "flushDiskType": "SYNC_FLUSH",
        "mappedFileSizeCommitLog": SEGMENT_BYTES,
        "mappedFileSizeConsumeQueue": QUEUE_SEGMENT_BYTES,
    }
    acknowledged: dict[int, SendResult] = {}
    for number in range(KILLS):
        with running(directory=tmp_path, settings=settings) as daemon:
            new = await send_until_killed(daemon, number * 100_000, Random(number))
        assert new, daemon.output
        acknowledged |= new
        audit(tmp_path / "store", acknowledged)


@pytest.mark.parametrize("flags", [0x80, 0xC0, -(1 << 31)])
def test_invalid_flags_of_one_message_lose_no_other_message(tmp_path: Path, flags: int) -> None:
    """After a send with invalid flags, 1,000 acknowledged sends and SIGKILL, all messages are stored."""
    settings = {"flushDiskType": "SYNC_FLUSH"}
    ext = {"a": "PG", "b": TOPIC, "c": "TBW102", "d": 1, "e": 0, "g": 1, "h": 0, "m": False, "i": ""}
    with running(directory=tmp_path, settings=settings) as daemon:
        with RawClient(LOOPBACK, daemon.broker_port) as client:
            for number in range(1_002):
                flag = flags if number == 1 else 0
                response = client.call(RequestCode.SEND_MESSAGE_V2, ext | {"f": flag}, b"%d" % number)
                assert (response.code, int(response.ext["queueOffset"])) == (0, number)
        daemon.process.kill()
        daemon.process.wait()
    with running(directory=tmp_path, settings=settings) as daemon, RawClient(LOOPBACK, daemon.broker_port) as client:
        response = client.call(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": 0})
        assert int(response.ext["offset"]) == 1_002
    sizes: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 20 * 1024}
    store = MessageStore(config_of(tmp_path / "store", **sizes), Clock())
    store.load()
    records = [record for record in log_of(store) if record.topic == TOPIC]
    assert [record.body for record in records] == [b"%d" % number for number in range(1_002)]
    abandon(store)
