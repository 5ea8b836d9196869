"""Delayed messages with power cuts, kills and stops, and with kill -9 of the real daemon."""

import asyncio
import os
import time
from pathlib import Path
from random import Random
from typing import Final

import pytest

from skylarkmq import Message, Producer, ProducerSettings
from skylarkmq.protocol.codes import RequestCode, SystemTopic
from skylarkmq.protocol.message import MessageExt
from skylarkmq.protocol.record import decode
from tests.crash.delayed_cut import TRIAL
from tests.harness.daemon import Daemon, running
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient

pytestmark = pytest.mark.crash

CUTS: Final = int(os.environ.get("SKYLARK_CUTS", "3000")) // 6
KILLS: Final = max(int(os.environ.get("SKYLARK_KILLS", "20")) // 4, 1)
TOPIC: Final = "KilledDelays"
IN_FLIGHT: Final = 32
DELAY_MS: Final = 1_000
SETTINGS: Final = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": 1 << 17,
    "messageDelayLevel": f"{DELAY_MS // 1000}s",
    "flushDelayOffsetInterval": 300,
}
PULL: Final = {
    "consumerGroup": "CG", "maxMsgNums": 32, "commitOffset": 0, "subVersion": 1, "subscription": "*", "sysFlag": 4,
    "suspendTimeoutMillis": 0,
}  # fmt: skip


@pytest.mark.timeout(3600)
def test_delayed_messages_survive_power_cuts() -> None:
    """No delayed message is early, lost, or repeated without need. SKYLARK_CUTS: six times the number of runs."""
    assert not (failed := TRIAL.failed(range(CUTS))), "\n".join(failed)


@pytest.mark.parametrize("seed", range(20))
def test_some_seeds_in_this_process(seed: int) -> None:
    """A few runs in this process, for debugging."""
    TRIAL.run(seed)


async def send_until_killed(daemon: Daemon, first: int, rng: Random) -> set[bytes]:
    """Send until the daemon is killed, while earlier messages are due; return the acknowledged bodies."""
    acknowledged: set[bytes] = set()
    end_s = time.monotonic() + rng.uniform(1.2, 2.5)
    numbers = iter(range(first, first + 100_000))

    async def sender(producer: Producer) -> None:
        for number in numbers:
            body = b"%d." % number + b"x" * rng.randint(0, 500)
            await producer.send(Message(TOPIC, body, properties={"DELAY": "1"}))
            acknowledged.add(body)
            if time.monotonic() > end_s:
                daemon.process.kill()

    settings = ProducerSettings(send_timeout_s=2.0, retries=0)
    async with Producer("killers", namesrv=daemon.namesrv, settings=settings) as producer:
        await asyncio.gather(*(sender(producer) for _ in range(IN_FLIGHT)), return_exceptions=True)
    return acknowledged


def pull_all(client: RawClient, topic: str, queue_id: int) -> list[MessageExt]:
    found: list[MessageExt] = []
    while True:
        where = {"topic": topic, "queueId": queue_id, "queueOffset": len(found)}
        response = client.call(RequestCode.PULL_MESSAGE, PULL | where)
        if response.code:
            return found
        found += decode(response.body)


async def test_delayed_messages_survive_kills(tmp_path: Path) -> None:
    """After repeated kills, every acknowledged message is delivered, and none before its delay has passed."""
    acknowledged: set[bytes] = set()
    for number in range(KILLS):
        with running(directory=tmp_path, settings=SETTINGS) as daemon:
            acknowledged |= await send_until_killed(daemon, number * 100_000, Random(number))
    with (
        running(directory=tmp_path, settings=SETTINGS) as daemon,
        RawClient(LOOPBACK, daemon.broker_port, timeout=WAIT_LIMIT_S) as client,
    ):
        deadline = time.monotonic() + WAIT_LIMIT_S
        missing, messages = acknowledged, list[MessageExt]()
        while missing:
            assert time.monotonic() < deadline, f"{len(missing)} of {len(acknowledged)} are not delivered"
            messages = [message for queue_id in range(8) for message in pull_all(client, TOPIC, queue_id)]
            missing = acknowledged - {message.body for message in messages}
        dues = {
            message.body: message.store_timestamp + DELAY_MS for message in pull_all(client, SystemTopic.SCHEDULE, 0)
        }
    early = [message.body[:20] for message in messages if message.store_timestamp < dues[message.body]]
    assert early == []
