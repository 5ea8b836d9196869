"""What a store holds that goes back and forth between brokers, and how it is written and compared.

A `Ledger` remembers every message that a broker acknowledged: where it lies and what it consists of. It grows while one
broker writes, and is held against what the next one gives back: by a client that consumes everything, by look-ups of
keys and ids, and by raw pulls.
"""

import random
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from skylarkmq.broker.store.config import StoreConfig
from skylarkmq.protocol.codes import RequestCode, SystemTopic
from skylarkmq.protocol.message import BatchRecord, MessageExt, encode_batch
from skylarkmq.protocol.record import decode
from tests.harness.raw import RawClient, RawResponse
from tests.harness.stores import config_of, message, opened
from tests.interop.drivers import Received

ORDERS, EVENTS, JAVA, DELAYED, ODD = (
    "ExchangeOrders",
    "ExchangeEvents",
    "ExchangeJava",
    "ExchangeDelayed",
    "ExchangeOdd",
)
QUEUES: Final = {ORDERS: 4, EVENTS: 1, JAVA: 8, DELAYED: 2, ODD: 1}
CONSUMED: Final = (ORDERS, EVENTS, JAVA, DELAYED)  # of ODD's messages, some stop a Java client
GROUP: Final = "exchange-raw"

SIZES: Final = {
    "mappedFileSizeCommitLog": 512 << 10,
    "mappedFileSizeConsumeQueue": 20 * 50,
    "maxHashSlotNum": 500,
    "maxIndexNum": 1_000,
}
"""Small enough that log, queues and index roll many times."""

STORE_SIZES: Final[dict[str, Any]] = {
    "mapped_file_size_commit_log": SIZES["mappedFileSizeCommitLog"],
    "mapped_file_size_consume_queue": SIZES["mappedFileSizeConsumeQueue"],
    "max_hash_slot_num": SIZES["maxHashSlotNum"],
    "max_index_num": SIZES["maxIndexNum"],
}

SIZE_100_KIB: Final = 100 << 10
COMPRESSED: Final = 1
PULL_WITH_SUBSCRIPTION: Final = 4
OK, NOT_FOUND, RETRY = 0, 19, 20
LEVELS_SOON: Final = (1, 2)
LEVEL_TWO_HOURS: Final = 18


class Message(msgspec.Struct, frozen=True):
    """An acknowledged message; `body` as its producer gave it. None: not told, or decided when it is delivered."""

    n: str
    topic: str
    queue: int | None
    offset: int | None
    body: bytes
    properties: dict[str, str]
    place: str = ""  # its offset id

    @property
    def first_key(self) -> str:
        return self.properties.get("KEYS", "").split(" ")[0]


class Ledger:
    """`messages` must be there, each exactly once; those of `perhaps` may, for their answers never came."""

    def __init__(self) -> None:
        self.messages: dict[str, Message] = {}
        self.perhaps: dict[str, Message] = {}

    def add(self, messages: Iterable[Message]) -> None:
        for acknowledged in messages:
            assert acknowledged.n not in self.messages
            self.messages[acknowledged.n] = acknowledged

    def copy(self) -> "Ledger":
        other = Ledger()
        other.messages |= self.messages
        other.perhaps |= self.perhaps
        return other

    def of(self, *topics: str) -> dict[str, Message]:
        return {n: known for n, known in self.messages.items() if known.topic in topics}

    def differences(self, received: Iterable[Received], *topics: str) -> list[str]:
        """What is wrong with all that a consumer of these topics got."""
        expected = self.of(*topics)
        seen: set[str] = set()
        wrong = []
        for got in received:
            known = expected.get(got.n) or self.perhaps.get(got.n)
            if known is None or got.n in seen:
                wrong.append(f"{got.n} is {'unknown' if known is None else 'there twice'}: {got.topic}/{got.queue}")
            else:
                wrong += unlike(known, got)
            seen.add(got.n)
        return wrong + [f"{n} is missing" for n in expected.keys() - seen]


def unlike(known: Message, got: Received) -> list[str]:
    """How what was received differs from what was acknowledged; brokers and clients may add properties."""
    pairs: dict[str, tuple[object, object]] = {
        "topic": (known.topic, got.topic),
        "body": (known.body, got.body),
    }
    if known.queue is not None:
        pairs["queue"] = known.queue, got.queue
    if known.offset is not None:
        pairs["offset"] = known.offset, got.offset
    pairs |= {name: (value, got.properties.get(name)) for name, value in known.properties.items()}
    return [
        f"{known.n}: {name} {ours!r:.80} {theirs!r:.80}" for name, (ours, theirs) in pairs.items() if ours != theirs
    ]


# ------------------------------------------------------------------------------------------------------------- writing


class Writer:
    """Sends by raw frames and takes down what is acknowledged. Every message has a name of its own."""

    def __init__(self, client: RawClient, ledger: Ledger, prefix: str) -> None:
        self._client = client
        self._ledger = ledger
        self._prefix = prefix
        self._chance = random.Random(prefix)

    def orders(self, count: int) -> None:
        """Plain messages of many sizes, each 50th of 100 KiB, every third compressed, to the queues in turn."""
        for i in range(count):
            n = f"{self._prefix}-order-{i}"
            body = self._chance.randbytes(SIZE_100_KIB if i % 50 == 49 else self._chance.randrange(1, 3_000))
            is_compressed = i % 3 == 2
            properties = {"n": n, "KEYS": f"{n} order-{i % 7}", "TAGS": ("TagA", "标签")[i % 2], "größe": "übergroß"}
            ext = request(ORDERS, i % QUEUES[ORDERS], properties, COMPRESSED if is_compressed else 0)
            answer = self._client.call(RequestCode.SEND_MESSAGE, ext, zlib.compress(body) if is_compressed else body)
            self._ledger.add([acknowledged(ext, properties, body, answer)])

    def batches(self, count: int) -> None:
        """Batches of ten."""
        for i in range(count):
            names = [f"{self._prefix}-batch-{i}-{j}" for j in range(10)]
            bodies = [self._chance.randbytes(300) for _ in names]
            all_properties = [{"n": n, "KEYS": n, "TAGS": "batch"} for n in names]
            records = [
                BatchRecord(0, body, encoded(properties).encode())
                for body, properties in zip(bodies, all_properties, strict=True)
            ]
            ext = request(EVENTS, 0, {"WAIT": "true"}) | {"batch": True}
            answer = self._client.call(RequestCode.SEND_MESSAGE, ext, encode_batch(records))
            places = answer.ext["msgId"].split(",")
            for j, (properties, body) in enumerate(zip(all_properties, bodies, strict=True)):
                ext_of_one = answer.ext | {"msgId": places[j], "queueOffset": str(int(answer.ext["queueOffset"]) + j)}
                self._ledger.add([acknowledged(ext, properties, body, answer._replace(ext=ext_of_one))])

    def odd(self) -> None:
        """What official clients refuse to send: no body, no key, an empty key, a property without value."""
        for name, keys, body in (("empty", {}, b""), ("keyless", {}, b"x"), ("spaces", {"KEYS": "  a  b "}, b"\0")):
            properties = {"n": f"{self._prefix}-{name}", **keys}
            ext = request(ODD, 0, properties)
            answer = self._client.call(RequestCode.SEND_MESSAGE, ext, body)
            self._ledger.add([acknowledged(ext, properties, body, answer)])

    def burst(self, count: int) -> Iterator[int]:
        """Messages all at once; gives how many are acknowledged so far, and may be left at any moment."""
        requests = []
        waiting: list[Message] = []
        for i in range(count):
            properties = {"n": f"{self._prefix}-burst-{i}", "KEYS": f"burst-{i}", "TAGS": "burst"}
            ext = request(EVENTS, 0, properties)
            body = self._chance.randbytes(1_000)
            requests.append((ext, body))
            waiting.append(Message(properties["n"], EVENTS, 0, None, body, properties))
        self._ledger.perhaps |= {message.n: message for message in waiting}
        answers = self._client.pipeline(RequestCode.SEND_MESSAGE, requests)
        for done, (i, answer) in enumerate(answers, 1):
            ext, body = requests[i]
            self._ledger.add([acknowledged(ext, waiting[i].properties, body, answer)])
            del self._ledger.perhaps[waiting[i].n]
            yield done


def request(topic: str, queue: int, properties: Mapping[str, str], sys_flag: int = 0) -> dict[str, object]:
    """The header of a send."""
    target = {"topic": topic, "queueId": queue, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4}
    flags = {"sysFlag": sys_flag, "flag": 0, "reconsumeTimes": 0, "unitMode": False, "batch": False}
    origin = {"producerGroup": "exchange", "bornTimestamp": int(time.time() * 1000)}
    return {**origin, **target, **flags, "properties": encoded(properties)}


def encoded(properties: Mapping[str, str]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def acknowledged(ext: Mapping[str, object], properties: dict[str, str], body: bytes, answer: RawResponse) -> Message:
    assert answer.code == OK, f"code {answer.code}: {answer.remark}"
    told = answer.ext
    place = told["msgId"]
    return Message(
        properties["n"], str(ext["topic"]), int(told["queueId"]), int(told["queueOffset"]), body, properties, place
    )


def store_config(root: Path) -> StoreConfig:
    """The settings under which such a store is opened."""
    return config_of(root, **STORE_SIZES)


def put_delayed(root: Path, ledger: Ledger) -> None:
    """Delayed messages, put as a broker stores them while none runs, which would deliver them by itself."""
    with opened(root, **STORE_SIZES) as it:
        it.clock.now_ms = int(time.time() * 1000)
        for level in (*LEVELS_SOON, LEVEL_TWO_HOURS):
            for i in range(20):
                n = f"delayed-{level}-{i}"
                queue = i % QUEUES[DELAYED]
                real = {"REAL_TOPIC": DELAYED, "REAL_QID": str(queue)}
                own = {"n": n, "KEYS": n, "TAGS": "later", "UNIQ_KEY": f"7F000001{level * 1000 + i:024X}"}
                properties = {**own, "DELAY": str(level), **real}
                it.put(message(n.encode(), SystemTopic.SCHEDULE, level - 1, properties=encoded(properties).encode()))
                if level in LEVELS_SOON:
                    ledger.add([Message(n, DELAYED, queue, None, n.encode(), own)])


# ------------------------------------------------------------------------------------------------------------- reading


def pull_all(client: RawClient, topic: str, queues: int) -> list[Received]:
    """All that is in a topic, by raw pulls; bodies inflated."""
    return [as_received(found) for queue in range(queues) for found in pull_queue(client, topic, queue)]


def pull_queue(client: RawClient, topic: str, queue: int) -> list[MessageExt]:
    messages: list[MessageExt] = []
    offset = 0
    while True:
        who = {"consumerGroup": GROUP, "topic": topic, "queueId": queue, "subscription": "*", "subVersion": 0}
        what = {"queueOffset": offset, "maxMsgNums": 32, "commitOffset": 0, "suspendTimeoutMillis": 0}
        answer = client.call(RequestCode.PULL_MESSAGE, {**who, **what, "sysFlag": PULL_WITH_SUBSCRIPTION})
        if answer.code == NOT_FOUND:
            return messages
        assert answer.code in {OK, RETRY}, f"code {answer.code}: {answer.remark}"
        messages += decode(answer.body)
        offset = int(answer.ext["nextBeginOffset"])


def as_received(found: MessageExt) -> Received:
    properties: dict[str, str | None] = dict(found.properties)
    return Received(
        found.topic,
        found.queue_id,
        found.queue_offset,
        found.msg_id,
        properties,
        found.payload(),
        properties.get("TAGS"),
        properties.get("KEYS"),
    )
