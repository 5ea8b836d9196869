"""The orders for a producer: a thousand messages that together cover the forms that a message may have.

An order specifies one message and how to send it. Its property `n` is a unique name, by which a test finds the order
of a received message. Bodies cycle through BODIES, and modes through those of the client, ten messages each.
"""

import random
from collections.abc import Callable, Iterator
from itertools import cycle

import msgspec

MESSAGES = 1_000
BATCH = 10
SIZE_100_KIB = 100 * 1024
COMPRESS_FROM = 4 * 1024  # minimum body size, in bytes, that every client compresses, except in batches

TAGS = ("TagA", "TagB", "étiquette", "标签")
PROPERTIES: tuple[dict[str, str], ...] = (
    {},
    {"größe": "übergroß, 12 cm"},
    {"ort": "北京市 – Köln"},
    {"mood": "🙂 smiling", "größe": "ß"},
)
SYNC, ASYNC, ONEWAY, BATCHED = "sync", "async", "oneway", "batch"
RECALLED = "recalled"  # sent, then recalled


class Order(msgspec.Struct, frozen=True):
    """One message to send. As JSON, with the body in base64, it is one line of a producer's input."""

    n: str
    mode: str
    tags: str
    keys: tuple[str, ...]
    properties: dict[str, str]
    body: bytes
    last_of_batch: bool = False
    delay_level: int = 0  # 0: no delay
    timer_setter: str = ""  # the method of Java's Message to call with `timer_ms`
    timer_ms: int = 0


def one_byte(chance: random.Random) -> bytes:
    return chance.randbytes(1) if chance.random() < 0.5 else b"1"


def some_bytes(chance: random.Random) -> bytes:
    return chance.randbytes(chance.randrange(2, 2_000))


def plain_text(chance: random.Random) -> bytes:
    return f"Grüße an {chance.random()} Empfänger – 你好 🙂".encode()


def compressible(chance: random.Random) -> bytes:
    """Return a body well above COMPRESS_FROM."""
    return f"the same words again {chance.random()} ".encode() * chance.randrange(200, 1_000)


def hundred_kib(chance: random.Random) -> bytes:
    return chance.randbytes(SIZE_100_KIB)


BODIES: tuple[Callable[[random.Random], bytes], ...] = (
    *(one_byte, some_bytes, plain_text, some_bytes) * 2,
    compressible,
    *(some_bytes, plain_text) * 5,
    one_byte, some_bytes, compressible,
    *(some_bytes, plain_text) * 10,
    hundred_kib,
)  # fmt: skip


def thousand_orders(modes: tuple[str, ...], *, zero_bytes: bool) -> list[Order]:
    """Return MESSAGES orders, the same in every run. Without `zero_bytes` their bodies contain no byte 0."""
    chance = random.Random(MESSAGES)
    bodies = cycle(BODIES)
    orders = []
    for n, (mode, last_of_batch) in zip(range(MESSAGES), runs_of_modes(modes), strict=False):
        body = next(bodies)(chance)
        order = Order(
            n=str(n),
            mode=mode,
            tags=TAGS[n % len(TAGS)],
            keys=(f"key-{n}", f"schlüssel-{n % 7}"),
            properties={"n": str(n), **PROPERTIES[n % len(PROPERTIES)]},
            body=body if zero_bytes else body.replace(b"\0", b"\1"),
            last_of_batch=last_of_batch,
        )
        orders.append(order)
    return orders


def runs_of_modes(modes: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
    """Yield the modes, BATCH messages each, and whether the message ends a batch. MESSAGES is a multiple of BATCH."""
    for mode in cycle(modes):
        for position in range(BATCH):
            yield mode, mode == BATCHED and position == BATCH - 1
