"""Runtime information: every key that readers need, in the format that they parse."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import msgspec
import pytest

from skylarkmq.broker.counters.put_latency import PutLatencyStatistics
from skylarkmq.broker.counters.throughput import Counters, Throughput
from skylarkmq.broker.processors.admin.runtime import (
    RuntimeConfig,
    RuntimeProcessor,
    StoreTimes,
    duration_text,
    size_text,
)
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from tests.harness.broker_parts import NO_TIMES, BrokerParts, broker_parts, pull
from tests.harness.golden import bodies
from tests.harness.stores import Clock

NUMBER = r"-?\d+"
DECIMAL = r"\d+(\.\d+)?"
SIZE = rf"{DECIMAL} [KMGTP]?i?B"
FORMS = {
    r"timer(En|De)queueTps": DECIMAL,
    r".*Tps": rf"{DECIMAL} {DECIMAL} {DECIMAL}",
    r"(commitLog|consumeQueue)DiskRatio.*": r"\d\.\d\d",
    r"commitLogDirCapacity": rf"Total : {SIZE}, Free : {SIZE}\.",
    r"remainHowManyDataTo(Flush|Commit)": SIZE,
    r"runtime": r"\[ \d+ days, \d+ hours, \d+ minutes, \d+ seconds \]",
    r"brokerVersionDesc": "V5_3_3",
    r"brokerVersion": "479",
    r"brokerActive": "true",
    r"putMessageDistributeTime": r"(\[[^]]+\]:\d+ ){13}",
    r"putMessageAverageSize|putLatency99|putLatency999": DECIMAL,
    r".*": NUMBER,
}
NOT_YET = re.compile(r"scheduleMessageOffset_\d+|commitLogDiskRatio_.*")
"""Keys of delay levels with messages, and a path of the queried broker."""


class Runtime(BrokerParts):
    """Parts; `now_ms` is a minute after the start."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, boot_ms=Clock().now_ms - 61_000)
        self.processor = self.administration.runtime

    def call(self) -> dict[str, str]:
        response = self.peer().call(RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO))
        assert response.code == 0
        table: dict[str, str] = msgspec.json.decode(response.body)["table"]
        return table


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    it = Runtime(tmp_path)
    yield it
    it.store.close()


async def test_every_value_has_the_format_that_readers_parse(runtime: Runtime) -> None:
    """All values are texts, each in the format of its key."""
    for key, value in runtime.call().items():
        form = next(form for pattern, form in FORMS.items() if re.fullmatch(pattern, key))
        assert re.fullmatch(form, value), f"{key}: {value}"


async def test_every_key_of_4_9_8_is_returned(runtime: Runtime) -> None:
    """The response of a real broker has no key that ours lacks, except those listed above."""
    [golden] = [msgspec.json.decode(body)["table"] for body in bodies("GET_BROKER_RUNTIME_INFO", "response")]
    missing = {key for key in golden.keys() - runtime.call().keys() if not NOT_YET.fullmatch(key)}
    assert missing == set()


async def test_the_keys_added_by_5_3_3_are_returned(runtime: Runtime) -> None:
    """Both spellings of the transferred rate, timers, and the queues of 5.x."""
    assert {
        "getTransferredTps",
        "getTransferedTps",
        "timerReadBehind",
        "timerDequeueTps",
        "brokerActive",
        "litePullThreadPoolQueueSize",
        "ackThreadPoolQueueCapacity",
        "ackThreadPoolQueueHeadWaitTimeMills",
        "remainHowManyDataToCommit",
    } <= runtime.call().keys()


async def test_the_figures_follow_the_broker_s_work(runtime: Runtime) -> None:
    """Puts, pulls, parked pulls, and the end of the log."""
    runtime.traffic.step(runtime.clock.now_ms, runtime.clock.now_ms)
    runtime.put(b"x" * 100, b"y" * 100)
    peer = runtime.peer()
    peer.call(pull())
    peer.call(pull(queue_offset=2))
    peer.send(pull(queue_offset=2, suspend_ms=1000))
    runtime.clock.now_ms += 1000
    runtime.traffic.step(runtime.clock.now_ms, runtime.clock.now_ms)
    table = runtime.call()
    log = runtime.store.statistics().log
    expected = {
        "putMessageTimesTotal": "2",
        "putMessageSizeTotal": str(log.max_offset),
        "putMessageAverageSize": str(log.max_offset / 2),
        "commitLogMaxOffset": str(log.max_offset),
        "earliestMessageTimeStamp": "1700000000000",
        "putTps": "2.0 2.0 2.0",
        "getFoundTps": "1.0 1.0 1.0",
        "getMissTps": "1.0 1.0 1.0",
        "getTotalTps": "2.0 2.0 2.0",
        "getTransferedTps": "2.0 2.0 2.0",
        "msgPutTotalTodayNow": "2",
        "msgGetTotalTodayNow": "2",
        "pullThreadPoolQueueSize": "1",
        "pullThreadPoolQueueCapacity": "100000",
        "runtime": "[ 0 days, 0 hours, 1 minutes, 2 seconds ]",
    }
    assert expected.items() <= table.items()


async def test_durations_come_from_the_parts(runtime: Runtime) -> None:
    """The distribution of puts in the last minute, the longest put and get, and the wait of the oldest request."""
    runtime.times = StoreTimes(PutLatencyStatistics((5, *range(1, 13)), 234), 56)
    runtime.pool.suspend(str)
    runtime.pool.defer(cast(Connection, object()), RemotingCommand.request(11), 1.0)
    table = runtime.processor.table()
    assert table["putMessageDistributeTime"].startswith("[<=0ms]:5 [0~10ms]:1 [10~50ms]:2 ")
    assert (table["putMessageEntireTimeMax"], table["getMessageEntireTimeMax"]) == ("234", "56")
    assert table["pullThreadPoolQueueHeadWaitTimeMills"] == "1500"
    assert table["sendThreadPoolQueueHeadWaitTimeMills"] == "0"


async def test_an_empty_store_has_no_earliest_message(tmp_path: Path) -> None:
    """-1, as in RocketMQ."""
    with broker_parts(tmp_path) as parts:
        processor = RuntimeProcessor(
            RuntimeConfig(store_path=tmp_path, boot_ms=0),
            parts.store,
            Throughput(Counters),
            list,
            lambda: NO_TIMES,
            parts.clock,
        )
        assert processor.table()["earliestMessageTimeStamp"] == "-1"
        assert processor.table()["pullThreadPoolQueueCapacity"] == "0"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (2970, "2.9 KiB"),
        (1 << 20, "1.0 MiB"),
        (270582939648, "252.0 GiB"),
        (1 << 62, "4096.0 PiB"),
    ],
)
def test_sizes_are_a_number_a_space_and_a_unit(size: int, text: str) -> None:
    """The exporter splits at the space."""
    assert size_text(size) == text


def test_a_duration_has_four_units() -> None:
    """Days, hours, minutes, seconds."""
    assert duration_text(((1 * 24 + 2) * 60 + 3) * 60_000 + 4_999) == "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"
