"""Mixed messages for a replicated group, sent by raw frames, and what readers of the group must get.

A sender survives kills of the master: a request without a response may or may not be stored, so its messages may be
read, and need not be.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.message import BatchRecord, encode_batch
from tests.harness.limits import PROCESS_LIMIT_S
from tests.harness.raw import RawClient, RawResponse
from tests.interop.exchange import encoded, request
from tests.interop.replication_nodes import Node, body_table

PLAIN, BATCHES, DELAYED, ENDED, TIMED = "ReplPlain", "ReplBatches", "ReplDelayed", "ReplEnded", "ReplTimed"
QUEUES: Final = {PLAIN: 4, BATCHES: 1, DELAYED: 2, ENDED: 2, TIMED: 2}
STORED: Final = frozenset((0, 10, 11, 12))
"""Response codes of stored messages."""
AGAIN: Final = frozenset((1, 2, 14))
"""Response codes of a broker that is starting or stopping."""
COMMIT, ROLLBACK = 8, 12
HALF_FLAG: Final = 4
BATCH_MESSAGES: Final = 10
POLL_S: Final = 0.05


class Half(msgspec.Struct, frozen=True):
    """A stored half message."""

    n: str
    queue_offset: int
    physical_offset: int
    msg_id: str


class Expected:
    """Messages by name: `stored` must be read, `possible` may be. `open` half messages are not decided yet."""

    def __init__(self) -> None:
        self.stored: dict[str, tuple[str, bytes]] = {}
        self.possible: set[str] = set()
        self.rolled_back: set[str] = set()
        self.open: list[Half] = []

    def differences(self, received: Iterable[tuple[str, str, bytes]]) -> list[str]:
        """Return what is wrong with the received (name, topic, body)."""
        wrong, seen = [], set()
        for n, topic, body in received:
            known = self.stored.get(n)
            if known is not None and known != (topic, body):
                wrong.append(f"{n} differs")
            elif known is None and n not in self.possible:
                wrong.append(f"{n} of {topic} was {'rolled back' if n in self.rolled_back else 'never sent'}")
            seen.add(n)
        return wrong + [f"{n} is missing" for n in self.stored.keys() - seen]


class Sender:
    """Sends to one master. `has_timers`: RocketMQ 5."""

    def __init__(self, master: Node, *, has_timers: bool, seed: int = 0) -> None:
        self._master = master
        self._has_timers = has_timers
        self._chance = random.Random(seed)
        self._client: RawClient | None = None
        self._count = 0
        self._bodies: dict[str, bytes] = {}  # of half messages
        self.expected = Expected()

    def run(self, messages: int) -> Iterator[int]:
        """Send about this many messages; yield the number after each step."""
        end = self._count + messages
        while self._count < end:
            self._step()
            yield self._count

    def _step(self) -> None:
        chance = self._chance.random()
        if chance < 0.05:
            self._batch()
        elif chance < 0.15:
            self.delayed(self._chance.choice((1, 1, 2)))
        elif chance < 0.25:
            self._transaction()
        elif chance < 0.33 and self._has_timers:
            self.timed(self._chance.choice((1, 2, 3)))
        elif 0.33 <= chance < 0.331:
            self.short_topic()
        else:
            self._plain()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # ---------------------------------------------------------------------------------------------- kinds of messages

    def _plain(self) -> None:
        size = 100_000 if self._chance.random() < 0.002 else self._chance.randrange(1, 2_000)
        self._send(PLAIN, {}, self._chance.randbytes(size))

    def delayed(self, level: int) -> None:
        self._send(DELAYED, {"DELAY": str(level)}, self._chance.randbytes(100))

    def timed(self, seconds: int) -> None:
        due_ms = int(time.time() * 1000) + seconds * 1_000
        self._send(TIMED, {"TIMER_DELIVER_MS": str(due_ms)}, self._chance.randbytes(100))

    def _batch(self) -> None:
        names = [self._name("batch") for _ in range(BATCH_MESSAGES)]
        bodies = [self._chance.randbytes(200) for _ in names]
        records = [
            BatchRecord(0, body, encoded({"n": n, "KEYS": n, "TAGS": "batch"}).encode())
            for n, body in zip(names, bodies, strict=True)
        ]
        ext = request(BATCHES, 0, {"WAIT": "true"}) | {"batch": True}
        response = self._call(RequestCode.SEND_MESSAGE, ext, encode_batch(records))
        for n, body in zip(names, bodies, strict=True):
            self._note(response, n, BATCHES, body)

    def _transaction(self) -> None:
        half = self.half()
        chance = self._chance.random()
        if half is not None and chance < 0.8:
            self.end(half, commit=chance < 0.5)

    def half(self) -> Half | None:
        """Send a half message; None if that was not acknowledged."""
        n, body = self._name("half"), self._chance.randbytes(100)
        properties = {"n": n, "KEYS": n, "TRAN_MSG": "true", "PGROUP": "repl", "UNIQ_KEY": f"{self._count:032X}"}
        ext = request(ENDED, self._chance.randrange(2), properties, HALF_FLAG)
        response = self._call(RequestCode.SEND_MESSAGE, ext | {"producerGroup": "repl"}, body)
        self.expected.possible.add(n)
        if response is None or response.code not in STORED:
            return None
        msg_id = response.ext["msgId"]
        half = Half(n, int(response.ext["queueOffset"]), int(msg_id[16:], 16), properties["UNIQ_KEY"])
        self.expected.open.append(half)
        self._bodies[n] = body
        return half

    def end(self, half: Half, *, commit: bool, at: Node | None = None) -> None:
        """Commit or roll back; `at`: another broker than the master."""
        ext = {
            "producerGroup": "repl",
            "tranStateTableOffset": half.queue_offset,
            "commitLogOffset": half.physical_offset,
            "commitOrRollback": COMMIT if commit else ROLLBACK,
            "fromTransactionCheck": True,
            "msgId": half.msg_id,
            "transactionId": half.msg_id,
        }
        code = RequestCode.END_TRANSACTION
        response = self._call(code, ext) if at is None else at.call(code, ext)
        if half in self.expected.open:
            self.expected.open.remove(half)
        if response is None or response.code != 0:
            assert at is None, f"END_TRANSACTION: {response}"
            return
        self.expected.possible.discard(half.n)
        if commit:
            self.expected.stored[half.n] = ENDED, self._bodies[half.n]
        else:
            self.expected.rolled_back.add(half.n)

    def short_topic(self) -> None:
        """Create a topic, send to it, and delete it; some are created again."""
        topic = f"ReplShort{self._chance.randrange(1_000)}"
        self.create_topic(topic, 1)
        for _ in range(3):
            self._send(topic, {}, b"short")
        self._wait_until_dispatched()
        self._call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})

    def _wait_until_dispatched(self) -> None:
        """Wait until the master has written all queue units.

        RocketMQ 4.9 unmaps the queue of a topic that is deleted, also while another thread writes to it, which ends the
        process. So a topic is deleted while that thread has nothing to write.
        """
        deadline = time.monotonic() + PROCESS_LIMIT_S
        while True:
            response = self._call(RequestCode.GET_BROKER_RUNTIME_INFO, {})
            if response is not None and body_table(response)["dispatchBehindBytes"] == "0":
                return
            assert time.monotonic() < deadline, "the master does not dispatch its messages"
            time.sleep(POLL_S)

    def create_topic(self, topic: str, queues: int) -> None:
        numbers = {"readQueueNums": queues, "writeQueueNums": queues, "perm": 6}
        flags = {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False, "defaultTopic": "TBW102"}
        self._call(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": topic, **numbers, **flags})

    # --------------------------------------------------------------------------------------------------------- sending

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}-{self._count}"

    def _send(self, topic: str, properties: dict[str, str], body: bytes) -> None:
        n = self._name(topic)
        own = {"n": n, "KEYS": n, "TAGS": ("TagA", "标签")[self._count % 2]} | properties
        queue = self._chance.randrange(QUEUES.get(topic, 1))
        self._note(self._call(RequestCode.SEND_MESSAGE, request(topic, queue, own), body), n, topic, body)

    def _note(self, response: RawResponse | None, n: str, topic: str, body: bytes) -> None:
        if topic not in QUEUES:
            return
        if response is not None and response.code in STORED:
            self.expected.stored[n] = topic, body
        else:
            assert response is None, f"code {response.code}: {response.remark}"
            self.expected.possible.add(n)

    def _call(self, code: int, ext: dict[str, object], body: bytes = b"") -> RawResponse | None:
        """Return the response; None if the connection broke, so that the request may have had its effect.

        A broker that is starting or stopping is asked again."""
        deadline = time.monotonic() + PROCESS_LIMIT_S
        while True:
            client = self._connected(deadline)
            try:
                response = client.call(code, ext, body)
            except OSError:
                self.close()
                return None
            if response.code not in AGAIN:
                return response
            assert time.monotonic() < deadline, f"code {response.code}: {response.remark}"
            time.sleep(POLL_S)

    def _connected(self, deadline: float) -> RawClient:
        while self._client is None:
            try:
                self._client = self._master.client()
            except OSError:
                assert time.monotonic() < deadline, "no master"
                self._master.revive()
                time.sleep(POLL_S)
        return self._client


def with_faults(
    steps: Iterator[int],
    messages: int,
    faults: Sequence[Callable[[], None]],
    chance: random.Random,
    progress: Callable[[int, int], None],
) -> None:
    """Run the steps; call each fault once, at random numbers of messages.

    `progress` is called after each fault, with the numbers of messages and faults so far.
    """
    at = sorted(chance.randrange(messages // 10, messages * 9 // 10) for _ in faults)
    done = 0
    for count in steps:
        while done < len(at) and count >= at[done]:
            faults[done]()
            done += 1
            progress(count, done)
