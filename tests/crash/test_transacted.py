"""Transactions with power cuts, kills and stops, and with kill -9 of the real daemon."""

import asyncio
import os
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Final

import pytest

from skylarkmq import Message, MessageExt, ProducerSettings, TransactionProducer, TransactionState
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.record import decode
from tests.crash.transacted_cut import TRIAL
from tests.harness.daemon import Daemon, running
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient

pytestmark = pytest.mark.crash

CUTS: Final = int(os.environ.get("SKYLARK_CUTS", "3000")) // 6
KILLS: Final = max(int(os.environ.get("SKYLARK_KILLS", "20")) // 4, 1)
TOPIC: Final = "KilledTransactions"
QUEUES: Final = 8
IN_FLIGHT: Final = 32
SETTINGS: Final = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": 1 << 17,
    "transactionTimeOut": 200,
    "transactionCheckInterval": 300,
    "transactionCheckMax": 1_000_000,
    "flushConsumerOffsetInterval": 300,
}
PULL: Final = {
    "consumerGroup": "CG", "maxMsgNums": 32, "commitOffset": 0, "subVersion": 1, "subscription": "*", "sysFlag": 4,
    "suspendTimeoutMillis": 0,
}  # fmt: skip
FATES: Final = (TransactionState.COMMIT, TransactionState.ROLLBACK)


@pytest.mark.timeout(3600)
def test_transactions_survive_power_cuts() -> None:
    """No transaction is lost, ends wrongly, or is repeated without need. SKYLARK_CUTS: six times the number of runs."""
    assert not (failed := TRIAL.failed(range(CUTS))), "\n".join(failed)


@pytest.mark.parametrize("seed", [*range(10), 292, 567, 803, 931])
def test_some_seeds_in_this_process(seed: int) -> None:
    """A few runs in this process, for debugging; some of these seeds failed once."""
    TRIAL.run(seed)


def fate(number: int) -> TransactionState:
    """Return how a transaction ends, for every producer."""
    return FATES[number % 3 == 0]


async def check(message: MessageExt) -> TransactionState:
    return fate(int(message.body.split(b".")[0]))


async def transact_until_killed(daemon: Daemon, first: int, rng: Random) -> set[int]:
    """Run transactions until the daemon is killed, during their ends and checks; return those with acknowledged half
    messages."""
    halves: set[int] = set()
    end_s = time.monotonic() + rng.uniform(0.8, 2.0)
    numbers = iter(range(first, first + 100_000))

    async def sender(producer: TransactionProducer) -> None:
        for number in numbers:
            body = b"%d." % number + b"x" * rng.randint(0, 300)

            async def local(_: str, number: int = number) -> TransactionState:
                halves.add(number)
                return fate(number) if rng.random() < 0.6 else TransactionState.UNKNOWN

            await producer.send_in_transaction(Message(TOPIC, body), local)
            if time.monotonic() > end_s:
                daemon.process.kill()

    settings = ProducerSettings(send_timeout_s=2.0, retries=0)
    async with TransactionProducer("killers", checker=check, namesrv=daemon.namesrv, settings=settings) as producer:
        await asyncio.gather(*(sender(producer) for _ in range(IN_FLIGHT)), return_exceptions=True)
    return halves


def delivered(client: RawClient) -> Counter[int]:
    """Return how often each transaction's message is in the topic."""
    found: Counter[int] = Counter()
    for queue_id in range(QUEUES):
        offset = 0
        while True:
            where = {"topic": TOPIC, "queueId": queue_id, "queueOffset": offset}
            response = client.call(RequestCode.PULL_MESSAGE, PULL | where)
            if response.code:
                break
            messages = list(decode(response.body))
            offset += len(messages)
            found.update(int(message.body.split(b".")[0]) for message in messages)
    return found


async def test_transactions_survive_kills(tmp_path: Path) -> None:
    """After repeated kills, every acknowledged half message is delivered if committed, and never if rolled back."""
    halves: set[int] = set()
    for number in range(KILLS):
        with running(directory=tmp_path, settings=SETTINGS) as daemon:
            halves |= await transact_until_killed(daemon, number * 100_000, Random(number))
    committed = {number for number in halves if fate(number) is TransactionState.COMMIT}
    with (
        running(directory=tmp_path, settings=SETTINGS) as daemon,
        RawClient(LOOPBACK, daemon.broker_port, timeout=WAIT_LIMIT_S) as client,
    ):
        async with TransactionProducer("killers", checker=check, namesrv=daemon.namesrv) as producer:
            await producer.send(Message("Another", b"registers the producer with the broker"))
            deadline = time.monotonic() + WAIT_LIMIT_S
            while missing := committed - (found := await asyncio.to_thread(delivered, client)).keys():
                assert time.monotonic() < deadline, f"{len(missing)} of {len(committed)} are not delivered"
    assert [number for number in found if fate(number) is not TransactionState.COMMIT] == []
