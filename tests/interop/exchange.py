"""The content of a store that brokers exchange: how it is written, recorded and compared.

A `Ledger` records every message that a broker acknowledged, with its offsets and content. It grows while one broker
writes. The next broker must return the same messages: to a client that consumes everything, to lookups of keys and
ids, and to raw pulls.
"""

import random
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.protocol.codes import RequestCode, SystemTopic
from skylarkmq.protocol.message import BatchRecord, MessageExt, encode_batch
from skylarkmq.protocol.record import decode
from tests.harness.raw import RawClient, RawResponse
from tests.harness.stores import config_of, message, opened
from tests.interop.drivers import Received

ORDERS, EVENTS, JAVA, DELAYED, UNUSUAL = (
    "ExchangeOrders",
    "ExchangeEvents",
    "ExchangeJava",
    "ExchangeDelayed",
    "ExchangeUnusual",
)
QUEUES: Final = {ORDERS: 4, EVENTS: 1, JAVA: 8, DELAYED: 2, UNUSUAL: 1}
CONSUMED: Final = (ORDERS, EVENTS, JAVA, DELAYED)  # without UNUSUAL: some of its messages stop a Java client
GROUP: Final = "exchange-raw"

SIZES: Final = {
    "mappedFileSizeCommitLog": 512 << 10,
    "mappedFileSizeConsumeQueue": 20 * 50,
    "maxHashSlotNum": 500,
    "maxIndexNum": 1_000,
}
"""Small sizes, so that log, queues and index consist of many files."""

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
SHORT_LEVELS: Final = (1, 2)
LEVEL_TWO_HOURS: Final = 18


class Message(msgspec.Struct, frozen=True):
    """An acknowledged message, with the body that its producer sent. None: not reported, or assigned at delivery."""

    n: str
    topic: str
    queue: int | None
    offset: int | None
    body: bytes
    properties: dict[str, str]
    offset_id: str = ""

    @property
    def first_key(self) -> str:
        return self.properties.get("KEYS", "").split(" ")[0]


class Ledger:
    """Each of `messages` must be stored exactly once. `unconfirmed` messages may be stored: they got no response."""

    def __init__(self) -> None:
        self.messages: dict[str, Message] = {}
        self.unconfirmed: dict[str, Message] = {}

    def add(self, messages: Iterable[Message]) -> None:
        for acknowledged in messages:
            assert acknowledged.n not in self.messages
            self.messages[acknowledged.n] = acknowledged

    def copy(self) -> "Ledger":
        other = Ledger()
        other.messages |= self.messages
        other.unconfirmed |= self.unconfirmed
        return other

    def of(self, *topics: str) -> dict[str, Message]:
        return {n: known for n, known in self.messages.items() if known.topic in topics}

    def differences(self, received: Iterable[Received], *topics: str) -> list[str]:
        """Return the differences between the ledger and all messages that a consumer of these topics received."""
        expected = self.of(*topics)
        seen: set[str] = set()
        wrong = []
        for got in received:
            known = expected.get(got.n) or self.unconfirmed.get(got.n)
            if known is None or got.n in seen:
                wrong.append(f"{got.n} is {'unknown' if known is None else 'received twice'}: {got.topic}/{got.queue}")
            else:
                wrong += differences_of(known, got)
            seen.add(got.n)
        return wrong + [f"{n} is missing" for n in expected.keys() - seen]


def differences_of(known: Message, got: Received) -> list[str]:
    """Return the differences of a received message; brokers and clients may add properties."""
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
        f"{known.n}: {name} {expected!r:.80} {received!r:.80}"
        for name, (expected, received) in pairs.items()
        if expected != received
    ]


# ------------------------------------------------------------------------------------------------------------- writing


class Writer:
    """Sends by raw frames and records the acknowledged messages. Every message has a unique name."""

    def __init__(self, client: RawClient, ledger: Ledger, prefix: str) -> None:
        self._client = client
        self._ledger = ledger
        self._prefix = prefix
        self._chance = random.Random(prefix)

    def orders(self, count: int) -> None:
        """Send single messages of many sizes to all queues; each 50th has 100 KiB, each third is compressed."""
        for i in range(count):
            n = f"{self._prefix}-order-{i}"
            body = self._chance.randbytes(SIZE_100_KIB if i % 50 == 49 else self._chance.randrange(1, 3_000))
            is_compressed = i % 3 == 2
            properties = {"n": n, "KEYS": f"{n} order-{i % 7}", "TAGS": ("TagA", "标签")[i % 2], "größe": "übergroß"}
            ext = request(ORDERS, i % QUEUES[ORDERS], properties, COMPRESSED if is_compressed else 0)
            response = self._client.call(RequestCode.SEND_MESSAGE, ext, zlib.compress(body) if is_compressed else body)
            self._ledger.add([acknowledged_message(ext, properties, body, response)])

    def batches(self, count: int) -> None:
        """Send batches of ten messages."""
        for i in range(count):
            names = [f"{self._prefix}-batch-{i}-{j}" for j in range(10)]
            bodies = [self._chance.randbytes(300) for _ in names]
            all_properties = [{"n": n, "KEYS": n, "TAGS": "batch"} for n in names]
            records = [
                BatchRecord(0, body, encoded(properties).encode())
                for body, properties in zip(bodies, all_properties, strict=True)
            ]
            ext = request(EVENTS, 0, {"WAIT": "true"}) | {"batch": True}
            response = self._client.call(RequestCode.SEND_MESSAGE, ext, encode_batch(records))
            offset_ids = response.ext["msgId"].split(",")
            for j, (properties, body) in enumerate(zip(all_properties, bodies, strict=True)):
                ext_of_one = response.ext | {
                    "msgId": offset_ids[j],
                    "queueOffset": str(int(response.ext["queueOffset"]) + j),
                }
                self._ledger.add([acknowledged_message(ext, properties, body, response._replace(ext=ext_of_one))])

    def unusual(self) -> None:
        """Send messages that official clients do not send: without body, without key, with spaces around keys."""
        for name, keys, body in (("empty", {}, b""), ("keyless", {}, b"x"), ("spaces", {"KEYS": "  a  b "}, b"\0")):
            properties = {"n": f"{self._prefix}-{name}", **keys}
            ext = request(UNUSUAL, 0, properties)
            response = self._client.call(RequestCode.SEND_MESSAGE, ext, body)
            self._ledger.add([acknowledged_message(ext, properties, body, response)])

    def burst(self, count: int) -> Iterator[int]:
        """Send messages in one write, and yield the number of acknowledged ones after each response."""
        requests = []
        waiting: list[Message] = []
        for i in range(count):
            properties = {"n": f"{self._prefix}-burst-{i}", "KEYS": f"burst-{i}", "TAGS": "burst"}
            ext = request(EVENTS, 0, properties)
            body = self._chance.randbytes(1_000)
            requests.append((ext, body))
            waiting.append(Message(properties["n"], EVENTS, 0, None, body, properties))
        self._ledger.unconfirmed |= {message.n: message for message in waiting}
        responses = self._client.pipeline(RequestCode.SEND_MESSAGE, requests)
        for done, (i, response) in enumerate(responses, 1):
            ext, body = requests[i]
            self._ledger.add([acknowledged_message(ext, waiting[i].properties, body, response)])
            del self._ledger.unconfirmed[waiting[i].n]
            yield done


def request(topic: str, queue: int, properties: Mapping[str, str], sys_flag: int = 0) -> dict[str, object]:
    """Return the header of a send."""
    target = {"topic": topic, "queueId": queue, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4}
    flags = {"sysFlag": sys_flag, "flag": 0, "reconsumeTimes": 0, "unitMode": False, "batch": False}
    origin = {"producerGroup": "exchange", "bornTimestamp": int(time.time() * 1000)}
    return {**origin, **target, **flags, "properties": encoded(properties)}


def encoded(properties: Mapping[str, str]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def acknowledged_message(
    ext: Mapping[str, object], properties: dict[str, str], body: bytes, response: RawResponse
) -> Message:
    assert response.code == OK, f"code {response.code}: {response.remark}"
    fields = response.ext
    offset_id = fields["msgId"]
    return Message(
        properties["n"],
        str(ext["topic"]),
        int(fields["queueId"]),
        int(fields["queueOffset"]),
        body,
        properties,
        offset_id,
    )


def store_config(root: Path) -> StoreConfig:
    """Return the settings that open such a store."""
    return config_of(root, **STORE_SIZES)


def put_delayed(root: Path, ledger: Ledger) -> None:
    """Append delayed messages to the store while no broker runs, because a running broker would deliver them."""
    with opened(root, **STORE_SIZES) as it:
        it.clock.now_ms = int(time.time() * 1000)
        for level in (*SHORT_LEVELS, LEVEL_TWO_HOURS):
            for i in range(20):
                n = f"delayed-{level}-{i}"
                queue = i % QUEUES[DELAYED]
                real = {"REAL_TOPIC": DELAYED, "REAL_QID": str(queue)}
                own = {"n": n, "KEYS": n, "TAGS": "later", "UNIQ_KEY": f"7F000001{level * 1000 + i:024X}"}
                properties = {**own, "DELAY": str(level), **real}
                it.put(message(n.encode(), SystemTopic.SCHEDULE, level - 1, properties=encoded(properties).encode()))
                if level in SHORT_LEVELS:
                    ledger.add([Message(n, DELAYED, queue, None, n.encode(), own)])


# ------------------------------------------------------------------------------------------------------------- reading


def pull_all(client: RawClient, topic: str, queues: int) -> list[Received]:
    """Return all messages of a topic, by raw pulls, with inflated bodies."""
    return [as_received(found) for queue in range(queues) for found in pull_queue(client, topic, queue)]


def pull_queue(client: RawClient, topic: str, queue: int) -> list[MessageExt]:
    messages: list[MessageExt] = []
    offset = 0
    while True:
        queue_fields = {"consumerGroup": GROUP, "topic": topic, "queueId": queue, "subscription": "*", "subVersion": 0}
        range_fields = {"queueOffset": offset, "maxMsgNums": 32, "commitOffset": 0, "suspendTimeoutMillis": 0}
        response = client.call(
            RequestCode.PULL_MESSAGE, {**queue_fields, **range_fields, "sysFlag": PULL_WITH_SUBSCRIPTION}
        )
        if response.code == NOT_FOUND:
            return messages
        assert response.code in {OK, RETRY}, f"code {response.code}: {response.remark}"
        messages += decode(response.body)
        offset = int(response.ext["nextBeginOffset"])


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
