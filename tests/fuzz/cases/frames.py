"""Fuzzers of the modules for requests and responses: frames, headers, batches."""

import hmac
import json
from base64 import b64encode
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
from skylarkmq.protocol.hmac_sha1 import keyed
from skylarkmq.protocol.message import decode_batch, decode_properties
from skylarkmq.protocol.message_id import encode_offset_ids
from tests.fuzz.cases.memory import damaged, exact, number
from tests.protocol.compiled import test_same, test_same_batches, test_same_pulls, test_same_signed

ENTRIES: Final = (
    "UNIQ_KEY\x01A1B2\x02", "UNIQ_KEY\x01" + "Z" * 64 + "\x02", "UNIQ_KEY\x01" + "Z" * 65 + "\x02", "KEYS\x01k1 k2\x02",
    "KEYS\x01  \x02", "TAGS\x01TagA\x02", "WAIT\x01true\x02", "WAIT\x01false\x02", "__CRC32#\x010123456789\x02",
    "DELAY\x013\x02", "TIMER_OUT_MS\x011\x02", "TRAN_MSG\x01true\x02", "n\x01v\x02", "\x01\x02", "\x02", "\x01", "x",
)  # fmt: skip
SPOILT: Final = ("\x7f", "\x00", "\u0080", "\u8ba2", "\\", '"', "\n", "\x1f", "k" * 500)


def decode(rng: Random) -> None:
    """A read of several frames of all types, the last of them cut off anywhere."""
    inputs, pulls = inputs_of(rng)
    parts = [rng.choice((inputs, pulls)).frame() for _ in range(rng.randint(1, 5))]
    data = b"".join(parts)
    if rng.random() < 0.3:
        data = damaged(rng, data)
    read_alike(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.5 else data)


def header(rng: Random) -> None:
    """One header of a send in JSON or in the binary dialect, damaged or cut inside a frame of the correct length."""
    inputs, _ = inputs_of(rng)
    is_json = rng.random() < 0.6
    one_header(rng, JSON if is_json else ROCKETMQ, inputs.header() if is_json else inputs.binary_header())


def msgpack_header(rng: Random) -> None:
    """One header in MessagePack, of a send or a pull."""
    one_header(rng, MSGPACK, rng.choice(inputs_of(rng)).packed_header())


def pull(rng: Random) -> None:
    """One header of a pull, in JSON or MessagePack."""
    _, pulls = inputs_of(rng)
    is_json = rng.random() < 0.6
    whole = pulls.header() if is_json else pulls.packed_header()
    frame = framed(rng, JSON if is_json else MSGPACK, whole)
    data = exact(frame)
    found = test_same_pulls.outcome(test_same.new_decoder().decode, data)  # type: ignore[arg-type]  # or a view
    assert found == test_same_pulls.outcome(stream.python_decode_frames, frame), frame


def signed(rng: Random) -> None:
    """A send or a pull with the fields of a signature, in any dialect, damaged or cut inside a frame of the correct
    length."""
    inputs: test_same.Inputs = rng.choice((test_same_signed.SignedInputs, test_same_signed.SignedPulls))(0)
    inputs.choice = rng
    if rng.random() < 0.5:
        test_same_signed.check_alike(exact(inputs.frame()))  # type: ignore[arg-type]  # or a view
        return
    is_binary = rng.random() < 0.3 and not isinstance(inputs, test_same_signed.SignedPulls)
    data = framed(rng, ROCKETMQ if is_binary else JSON, inputs.binary_header() if is_binary else inputs.header())
    test_same_signed.check_alike(exact(data))  # type: ignore[arg-type]  # or a view


def hmac_sha1(rng: Random) -> None:
    """Signatures of contents and bodies around the sizes of SHA-1's blocks, with one key of any size."""
    secret = rng.randbytes(rng.randrange(131))
    by_compiled = keyed(secret)
    for _ in range(rng.randrange(1, 4)):
        content, body = (exact(rng.randbytes(rng.choice((0, rng.randrange(130), 4_096)))) for _ in range(2))
        expected = b64encode(hmac.digest(secret, bytes(content) + bytes(body), "sha1"))
        assert by_compiled.signature(content, body) == expected, (secret, bytes(content), bytes(body))


def properties(rng: Random) -> None:
    """Properties of all types in a send's header, with all escapes."""
    text = "".join(rng.choices(ENTRIES, k=rng.randrange(7)))
    if rng.random() < 0.3:
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(SPOILT) + text[at + rng.randrange(3) :]
    if rng.random() < 0.02:
        text += "p\x01" + "v" * rng.choice((32_000, 32_700, 32_767, 32_768, 40_000))
    fields = test_same.USUAL | {"i": text}
    escaped = json.dumps(fields, ensure_ascii=rng.random() < 0.7, separators=(",", ":"))
    whole = b'{"code":310,"extFields":' + escaped.encode("utf-8", "replace") + b',"flag":0,"opaque":7}'
    one_header(rng, JSON, whole)


def inputs_of(rng: Random) -> tuple[test_same.Inputs, test_same_pulls.PullInputs]:
    """Return the generators of inputs, which continue with these random numbers."""
    inputs, pulls = test_same.Inputs(0), test_same_pulls.PullInputs(0)
    inputs.choice = pulls.choice = rng
    return inputs, pulls


def one_header(rng: Random, dialect: int, whole: bytes) -> None:
    read_alike(framed(rng, dialect, whole))


def framed(rng: Random, dialect: int, whole: bytes) -> bytes:
    """Return a frame with this header, mostly damaged."""
    if rng.random() < 0.6:
        whole = damaged(rng, whole)
    return encode_frame(dialect, whole, rng.randbytes(rng.choice((0, 0, 5))))


def read_alike(data: bytes) -> None:
    """Assert that both versions read the same."""
    found = test_same.outcome(test_same.new_decoder().decode, exact(data))  # type: ignore[arg-type]  # or a view
    assert found == test_same.outcome(stream.python_decode_frames, data), data


_completion: Final = PropertyCompletion("Default", lambda: "NEW")
_general: Final = SendMessages(_completion, 4 << 20, Deferral(()).defer, lambda: 0)
_batches: Final[Any] = compiled.load("batch")


def batch(rng: Random) -> None:
    """A batch, whole or damaged: on the fast path the result is that of the pure-Python version."""
    body = test_same_batches.some_batch(rng)
    if rng.random() < 0.4:
        body = damaged(rng, body)
    batch_level = decode_properties(rng.choice(test_same_batches.BATCH_LEVEL))
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
    offsets = [number(rng) & (2**63 - 1) for _ in range(rng.randrange(5))]
    appends = [Append("T", 0, b"", b"", 0, 0, 0, 0, bytes(8), physical_offset=at) for at in offsets]
    host = rng.randbytes(rng.choice((8, 20)))
    assert _batches.offset_ids(host, appends) == encode_offset_ids(host, offsets)


def send_responses(rng: Random) -> None:
    """Responses to accepted sends in all dialects, with extreme numbers, in regions with long and unusual names."""
    region = rng.choice(("", "DefaultRegion", 'odd "%d"', "é" * 90, "r" * rng.randrange(600)))
    made = SendResponses(region, trace_on=rng.random() < 0.5, store_host=rng.randbytes(rng.choice((8, 20))))
    sends: list[Any] = []
    for _ in range(rng.randrange(9)):
        append = Append("T", rng.getrandbits(31), b"", b"", 0, 0, 0, 0, bytes(8))
        append.physical_offset, append.queue_offset = number(rng) & (2**63 - 1), number(rng)
        append.status = rng.choice((PutStatus.PUT_OK, PutStatus.PUT_OK, PutStatus.PENDING))
        command = SimpleNamespace(
            dialect=rng.choice((JSON, JSON, ROCKETMQ, MSGPACK)),
            flag=rng.choice((0, 0, 0, 2)),
            opaque=number(rng) % (1 << 32) - (1 << 31),
        )
        key = "".join(rng.choices("AZaz09", k=rng.randint(1, 64))).encode()
        sends.append((command, append, key))
    found, expected = made.stored_all(sends), made._stored_all(sends)
    if len(region) < 500:  # with a longer one the pure-Python version uses the general encoder
        assert found == expected
