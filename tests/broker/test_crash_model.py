"""A crash changes nothing, whatever clients have put, by any request.

A broker runs in this process, and a client sends it sequences of unusual requests of every kind that writes into the
log: all codes and dialects of sends, batches, send-backs, delayed messages, timers, half messages and their ends,
replies. Then the store is copied between two event-loop iterations, which equals its state after kill -9. The recovery
of the copy must have the same result as the dispatch in the running broker: the same log, the same units of the same
queues, the same index items. No record is skipped, since every record that can be stored must be valid for recovery
(docs/reference/disk.md, "Checks before the log"). No request ends in an unexpected error.
"""

import asyncio
import logging
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skylarkmq.broker.app.daemon import Broker
from skylarkmq.broker.app.in_process import SMALL, free_ports, loop_in_a_thread, made, wait
from skylarkmq.broker.config.parsing import Given
from skylarkmq.broker.config.sections import LOOPBACK, Machine, load_broker
from skylarkmq.broker.store.files.record_rules import has_unit
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.message import BatchRecord, encode_batch
from tests.attack.generators import INTERNAL, NAMES, NUMBERS, PROPERTIES, SYS_FLAGS
from tests.attack.normal_clients import COMMIT, long_names, send_header
from tests.crash.expected_state import Stored, items_of, log_of
from tests.harness.raw import RawClient
from tests.harness.stores import Opened

pytestmark = pytest.mark.crash

EXAMPLES = int(os.environ.get("SKYLARK_CRASHES", "50"))
MIN_LENGTH = 8
GROUP = "G"
ROLLBACK = 12
SEGMENT_BYTES = 1 << 18
MAX_UNITS = 32
MAX_SHOWN = 100
SIZES = {
    "mappedFileSizeCommitLog": SEGMENT_BYTES,
    "mappedFileSizeConsumeQueue": 20 * 100,
    "maxHashSlotNum": 100,
    "maxIndexNum": 200,
}
STORE_SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": SEGMENT_BYTES,
    "mapped_file_size_consume_queue": 20 * 100,
    "max_hash_slot_num": 100,
    "max_index_num": 200,
}

NUMBER_TEXTS = [text for text in map(str, NUMBERS) if len(text) <= MAX_SHOWN]
SHORT_NAMES = [name for name in NAMES if len(name) <= 128]
topics = st.sampled_from(["%RETRY%G", "%DLQ%G", "TBW102", "DefaultCluster_REPLY_TOPIC", *INTERNAL, *SHORT_NAMES])
some_topics = st.one_of(*(st.just(topic) for topic in "AAAAAB"), topics)
numbers = st.sampled_from(["0", "1", "3", *NUMBER_TEXTS])
values = st.one_of(numbers, topics, st.sampled_from(["true", "k1 k2", "", "1000"]), st.text(max_size=9))
properties = st.dictionaries(st.sampled_from(PROPERTIES), values, max_size=4)
flags = st.one_of(st.sampled_from(SYS_FLAGS), st.integers(-(2**31), 2**31 - 1)).map(str)
odd_fields = st.one_of(
    st.tuples(st.just("f"), flags), st.tuples(st.sampled_from("deghjl"), numbers), st.tuples(st.just("e"), st.just("2"))
)
odd_headers: st.SearchStrategy[dict[str, str]] = st.one_of(st.just({}), odd_fields.map(lambda field: dict([field])))
sizes = st.one_of(st.integers(0, 40), st.integers(0, 20_000))
SEND_CODES = [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_REPLY_MESSAGE_V2]


class Send(NamedTuple):
    """One message by one of the sends; `kind` makes it a delayed message, a timer or a half message."""

    code: int
    topic: str
    header: dict[str, str]
    properties: dict[str, str]
    kind: dict[str, str]
    size: int


class Batch(NamedTuple):
    topic: str
    header: dict[str, str]
    each: list[tuple[dict[str, str], int]]


class SendBack(NamedTuple):
    """Sends back the message that was stored `ago` sends before."""

    ago: int
    header: dict[str, str]


class End(NamedTuple):
    """Ends the half message that was stored `ago` half messages before."""

    ago: int
    is_commit: bool


kinds = st.sampled_from(
    [{}, {}, {}, {"DELAY": "1"}, {"TIMER_DELAY_MS": "50"}, {"TIMER_DELIVER_MS": "1"}, {"TRAN_MSG": "true"}]
)
puts = st.one_of(
    st.builds(Send, st.sampled_from(SEND_CODES), some_topics, odd_headers, properties, kinds, sizes),
    st.builds(Batch, some_topics, odd_headers, st.lists(st.tuples(properties, sizes), min_size=1, max_size=5)),
    st.builds(SendBack, st.integers(0, 3), st.fixed_dictionaries({}, optional={"delayLevel": numbers})),
    st.builds(End, st.integers(0, 3), st.booleans()),
)


class RunningBroker:
    """The broker, and the responses of its client."""

    def __init__(self, loop: asyncio.AbstractEventLoop, broker: Broker, port: int, store: Path) -> None:
        self.loop = loop
        self.broker = broker
        self.root = store
        self.acknowledged: dict[tuple[str, int, int], int] = {}
        self._port = port
        self._client = RawClient(LOOPBACK, port)
        self._count = 0
        self._stored: list[dict[str, str]] = []
        self._halves: list[tuple[dict[str, str], str]] = []

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def put(self, one: Any) -> None:
        """Make one request; if the broker closes the connection, it has refused the request."""
        try:
            self._put(one)
        except ConnectionError:
            self._client.close()
            self._client = RawClient(LOOPBACK, self._port)

    def _put(self, one: Any) -> None:
        match one:
            case Send():
                self._send(one)
            case Batch():
                records = [BatchRecord(0, self._body(size), _text(texts).encode()) for texts, size in one.each]
                header = send_header(one.topic, "", **one.header | {"m": "true"})
                self._client.call(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(records))
            case SendBack() if self._stored:
                self._send_back(one)
            case End() if self._halves:
                self._end(one)

    def _send_back(self, one: SendBack) -> None:
        offset = _physical_offset(self._stored[-1 - one.ago % len(self._stored)])
        fields: dict[str, object] = {"offset": offset, "group": GROUP, "delayLevel": "0", "originMsgId": "x"}
        fields |= {"originTopic": "A", "unitMode": "false"}
        self._client.call(RequestCode.CONSUMER_SEND_MSG_BACK, fields | one.header)

    def _end(self, one: End) -> None:
        response_ext, key = self._halves[-1 - one.ago % len(self._halves)]
        fields: dict[str, object] = {"producerGroup": "P", "tranStateTableOffset": response_ext["queueOffset"]}
        fields |= {"commitLogOffset": _physical_offset(response_ext), "msgId": key, "transactionId": key}
        fields |= {"fromTransactionCheck": "false", "commitOrRollback": COMMIT if one.is_commit else ROLLBACK}
        self._client.call(RequestCode.END_TRANSACTION, fields)

    def _send(self, send: Send) -> None:
        texts = {**send.properties, **send.kind}
        if send.code == RequestCode.SEND_REPLY_MESSAGE_V2:
            texts["REPLY_TO_CLIENT"] = "nobody"
        if "TRAN_MSG" in send.kind:
            texts |= {"PGROUP": "P", "UNIQ_KEY": f"U{len(self._stored)}"}
        header = send_header(send.topic, _text(texts), **send.header)
        if "TRAN_MSG" in send.kind:
            header["f"] = 4
        named = header if send.code != RequestCode.SEND_MESSAGE else long_names(header | {"l": "16"})
        body = self._body(send.size)
        response = self._client.call(send.code, named, body)
        if response.code != ResponseCode.SUCCESS or "msgId" not in response.ext:
            return
        self._stored.append(response.ext)
        if "TRAN_MSG" in send.kind:
            self._halves.append((response.ext, texts["UNIQ_KEY"]))
        elif (
            has_unit(int(send.header.get("f", "0")))
            and not send.kind
            and not texts.keys() & {"DELAY", "TRAN_MSG", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"}
        ):
            place = send.topic, int(response.ext["queueId"]), int(response.ext["queueOffset"])
            self.acknowledged[place] = zlib.crc32(body)

    def _body(self, size: int) -> bytes:
        self._count += 1
        return (b"%d:" % self._count).ljust(size, b".")

    def crash(self, copy: Path) -> tuple["State", "State"]:
        """Return the state of the running broker, and that of a recovered copy of its store, taken at the same time."""

        async def take() -> State:
            state = State(self.broker.parts.store)
            shutil.copytree(self.root, copy, ignore=shutil.ignore_patterns("config", "*.tmp"))
            return state

        live = wait(self.loop, take())
        it = Opened(copy, **STORE_SIZES)
        try:
            assert it.recovered.skipped == 0
            return live, State(it.store)
        finally:
            it.store.close()


class State:
    """The state of a store according to dispatch or recovery."""

    def __init__(self, store: MessageStore) -> None:
        store.commit()
        store.make_visible()
        assert store._parts.index is not None
        store._parts.index.index.put_waiting()
        self.log = log_of(store)
        self.items = items_of(store)
        self.units = {
            (queue.topic, queue.queue_id): list(_units(store, queue.topic, queue.queue_id))
            for queue in store.queues.by_key.values()
            if queue.end
        }

    def message(self, topic: str, queue_id: int, offset: int) -> Stored:
        """Return the message of a queue at an offset."""
        at = self.units[topic, queue_id][offset][0]
        return next(record for record in self.log if record.at == at)


def _units(store: MessageStore, topic: str, queue_id: int) -> Iterator[tuple[int, int, int]]:
    offset, end = 0, store.max_offset(topic, queue_id) or 0
    while offset < end:
        found = store.units(topic, queue_id, offset, MAX_UNITS)
        assert found, f"{topic}/{queue_id} has no unit at {offset}, its end is {end}"
        yield from found
        offset += len(found)


def _text(texts: dict[str, str]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in texts.items())


def _physical_offset(response_ext: dict[str, str]) -> int:
    """Return the physical offset in a message id."""
    return int(response_ext["msgId"].split(",")[0][16:], 16)


@contextmanager
def running_broker(directory: Path, loop: asyncio.AbstractEventLoop) -> Iterator[RunningBroker]:
    """Yield a broker with an empty store, and its client."""
    broker_port, namesrv_port = free_ports(2)
    store = directory / "store"
    own = {"listenPort": broker_port, "embeddedNamesrvPort": namesrv_port, "storePathRootDir": store}
    chosen = [Given(key, str(value), "test") for key, value in {**SMALL, **SIZES, **own}.items()]
    machine = Machine(host_name="b", address=LOOPBACK, home=directory, resolve=lambda host: host)
    broker = wait(loop, made(load_broker(chosen, machine)))
    wait(loop, broker.start())
    try:
        with closing(RunningBroker(loop, broker, broker_port, store)) as it:
            yield it
    finally:
        wait(loop, broker.stop())


class Tracebacks(logging.Handler):
    """Keeps log records with a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(logging.Formatter().format(record))


@contextmanager
def no_traceback() -> Iterator[None]:
    """Raise AssertionError if a traceback is logged."""
    handler, logger = Tracebacks(), logging.getLogger("skylarkmq.broker")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
    assert not handler.found, handler.found[0]


@pytest.mark.timeout(3600)
@settings(max_examples=EXAMPLES)
@given(sequence=st.lists(puts, min_size=MIN_LENGTH, max_size=60))
def test_a_crash_changes_nothing(sequence: list[Any]) -> None:
    """Live dispatch and recovery have the same result for all accepted requests."""
    with (
        tempfile.TemporaryDirectory(prefix="crash-model-") as directory,
        loop_in_a_thread() as loop,
        running_broker(Path(directory), loop) as it,
        no_traceback(),
    ):
        for one in sequence:
            it.put(one)
        live, recovered = it.crash(Path(directory) / "copy")
    assert recovered.log == live.log
    assert recovered.units == live.units
    assert recovered.items == live.items
    for place, body_crc in it.acknowledged.items():
        assert zlib.crc32(recovered.message(*place).body) == body_crc
