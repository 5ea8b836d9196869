"""Fuzzers of the modules for requests and responses: frames, headers, batches."""

import json
from random import Random
from types import SimpleNamespace
from typing import Any, Final

from skylarkmq.broker.delivery.deferral import Deferral
from skylarkmq.broker.processors.send.messages import SendMessages
from skylarkmq.broker.processors.send.response import SendResponses
from skylarkmq.broker.processors.send.stored_properties import PropertyCompletion
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.protocol import compiled, stream
from skylarkmq.protocol.command import JSON, MSGPACK, ROCKETMQ
from skylarkmq.protocol.disk import index_keys
from skylarkmq.protocol.frame import encode_frame
from skylarkmq.protocol.message import decode_batch, decode_properties
from skylarkmq.protocol.message_id import encode_offset_ids
from tests.fuzz.cases.memory import damaged, exact, number
from tests.protocol.compiled import test_same, test_same_batches, test_same_pulls

ENTRIES: Final = (
    "UNIQ_KEY\x01A1B2\x02", "UNIQ_KEY\x01" + "Z" * 64 + "\x02", "UNIQ_KEY\x01" + "Z" * 65 + "\x02", "KEYS\x01k1 k2\x02",
    "KEYS\x01  \x02", "TAGS\x01TagA\x02", "WAIT\x01true\x02", "WAIT\x01false\x02", "__CRC32#\x010123456789\x02",
    "DELAY\x013\x02", "TIMER_OUT_MS\x011\x02", "TRAN_MSG\x01true\x02", "n\x01v\x02", "\x01\x02", "\x02", "\x01", "x",
)  # fmt: skip
SPOILT: Final = ("\x7f", "\x00", "\u0080", "\u8ba2", "\\", '"', "\n", "\x1f", "k" * 500)


def decode(chance: Random) -> None:
    """A read of several frames of all types, the last of them cut off anywhere."""
    inputs, pulls = inputs_of(chance)
    parts = [chance.choice((inputs, pulls)).frame() for _ in range(chance.randint(1, 5))]
    data = b"".join(parts)
    if chance.random() < 0.3:
        data = damaged(chance, data)
    read_alike(data[: chance.randrange(len(data) + 1)] if chance.random() < 0.5 else data)


def header(chance: Random) -> None:
    """One header of a send in JSON or in the binary dialect, damaged or cut inside a frame of the correct length."""
    inputs, _ = inputs_of(chance)
    is_json = chance.random() < 0.6
    one_header(chance, JSON if is_json else ROCKETMQ, inputs.header() if is_json else inputs.binary_header())


def msgpack_header(chance: Random) -> None:
    """One header in MessagePack, of a send or a pull."""
    one_header(chance, MSGPACK, chance.choice(inputs_of(chance)).packed_header())


def pull(chance: Random) -> None:
    """One header of a pull, in JSON or MessagePack."""
    _, pulls = inputs_of(chance)
    is_json = chance.random() < 0.6
    whole = pulls.header() if is_json else pulls.packed_header()
    frame = framed(chance, JSON if is_json else MSGPACK, whole)
    data = exact(frame)
    found = test_same_pulls.outcome(test_same_pulls.decoder().decode, data)  # type: ignore[arg-type]  # or a view
    assert found == test_same_pulls.outcome(stream.python_decode_frames, frame), frame


def properties(chance: Random) -> None:
    """Properties of all types in a send's header, with all escapes."""
    text = "".join(chance.choices(ENTRIES, k=chance.randrange(7)))
    if chance.random() < 0.3:
        at = chance.randrange(len(text) + 1)
        text = text[:at] + chance.choice(SPOILT) + text[at + chance.randrange(3) :]
    if chance.random() < 0.02:
        text += "p\x01" + "v" * chance.choice((32_000, 32_700, 32_767, 32_768, 40_000))
    fields = test_same.USUAL | {"i": text}
    escaped = json.dumps(fields, ensure_ascii=chance.random() < 0.7, separators=(",", ":"))
    whole = b'{"code":310,"extFields":' + escaped.encode("utf-8", "replace") + b',"flag":0,"opaque":7}'
    one_header(chance, JSON, whole)


def inputs_of(chance: Random) -> tuple[test_same.Inputs, test_same_pulls.PullInputs]:
    """Return the generators of inputs, which continue with these random numbers."""
    inputs, pulls = test_same.Inputs(0), test_same_pulls.PullInputs(0)
    inputs.choice = pulls.choice = chance
    return inputs, pulls


def one_header(chance: Random, dialect: int, whole: bytes) -> None:
    read_alike(framed(chance, dialect, whole))


def framed(chance: Random, dialect: int, whole: bytes) -> bytes:
    """Return a frame with this header, mostly damaged."""
    if chance.random() < 0.6:
        whole = damaged(chance, whole)
    return encode_frame(dialect, whole, chance.randbytes(chance.choice((0, 0, 5))))


def read_alike(data: bytes) -> None:
    """Assert that both versions read the same."""
    found = test_same.outcome(test_same_pulls.decoder().decode, exact(data))  # type: ignore[arg-type]  # or a view
    assert found == test_same.outcome(stream.python_decode_frames, data), data


_completion: Final = PropertyCompletion("Default", lambda: "NEW")
_general: Final = SendMessages(_completion, 4 << 20, Deferral(()).defer, lambda: 0)
_batches: Final[Any] = compiled.load("batch")


def batch(chance: Random) -> None:
    """A batch, whole or damaged: on the fast path the result is that of the pure-Python version."""
    body = test_same_batches.some_batch(chance)
    if chance.random() < 0.4:
        body = damaged(chance, body)
    batch_level = decode_properties(chance.choice(test_same_batches.BATCH_LEVEL))
    values = ("T", 3, 1, 1_700_000_000_000, bytes(8), 2)
    shared = _completion.shared(batch_level)
    fast = _batches.Batches(PutStatus.PENDING, _completion.cluster_entry)
    found = fast.appends(exact(body), shared, *values)
    if found is not None:
        expected = [_general._batch_append(record, batch_level, *values) for record in decode_batch(body)]
        names = (*test_same_batches.NAMES, "keys")
        assert [[getattr(one, name) for name in names[:-1]] for one in found] == [
            [getattr(one, name) for name in names[:-1]] for one in expected
        ]
        assert [bytes(one.body) for one in found] == [bytes(one.body) for one in expected]
        assert [one.keys for one in found] == [index_keys(one.properties) for one in found]
    offsets = [number(chance) & (2**63 - 1) for _ in range(chance.randrange(5))]
    appends = [Append("T", 0, b"", b"", 0, 0, 0, 0, bytes(8), physical_offset=at) for at in offsets]
    host = chance.randbytes(chance.choice((8, 20)))
    assert _batches.offset_ids(host, appends) == encode_offset_ids(host, offsets)


def send_responses(chance: Random) -> None:
    """Responses to accepted sends in all dialects, with extreme numbers, in regions with long and unusual names."""
    region = chance.choice(("", "DefaultRegion", 'odd "%d"', "é" * 90, "r" * chance.randrange(600)))
    made = SendResponses(region, trace_on=chance.random() < 0.5, store_host=chance.randbytes(chance.choice((8, 20))))
    sends: list[Any] = []
    for _ in range(chance.randrange(9)):
        append = Append("T", chance.getrandbits(31), b"", b"", 0, 0, 0, 0, bytes(8))
        append.physical_offset, append.queue_offset = number(chance) & (2**63 - 1), number(chance)
        append.status = chance.choice((PutStatus.PUT_OK, PutStatus.PUT_OK, PutStatus.PENDING))
        command = SimpleNamespace(
            dialect=chance.choice((JSON, JSON, ROCKETMQ, MSGPACK)),
            flag=chance.choice((0, 0, 0, 2)),
            opaque=number(chance) % (1 << 32) - (1 << 31),
        )
        key = "".join(chance.choices("AZaz09", k=chance.randint(1, 64))).encode()
        sends.append((command, append, key))
    found, expected = made.stored_all(sends), made._stored_all(sends)
    if len(region) < 500:  # with a longer one the pure-Python version uses the general encoder
        assert found == expected
