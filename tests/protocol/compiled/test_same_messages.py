"""The compiled module makes the same messages of a pull response as the pure-Python version."""

import random

import pytest

from skylarkmq.protocol import compiled, record
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.message import MessageExt
from skylarkmq.protocol.message_id import cached_host
from tests.harness.rounds import rounds

module = compiled.load("messages")

pytestmark = pytest.mark.skipif(module is None, reason="no compiled modules here")

ROWS = rounds(20_000)
"""Number of responses of up to ten records each."""
TOPICS = ["T", "TopicTest", "%RETRY%group", "x" * 127, "y" * 128, "主题"]
HOSTS = [bytes(8), bytes(range(8)), bytes([255] * 8), bytes(range(20))]
ENTRIES = [
    "TAGS\x01a\x02", "KEYS\x01k1 k2\x02", "UNIQ_KEY\x01ABC\x02", "TAGS\x01b\x02", "名\x01x\x02", "订单\x01订单\x02",
    "n\x01值é😀\x02", "\x01no name\x02", "no value\x01\x02", "nothing\x02", "\x02", "\x01", "a\x01b\x01c\x02", "é",
    "\x00\x01\x00\x02",
]  # fmt: skip


def read(reader: record.RecordReader, body: bytes, monkeypatch: pytest.MonkeyPatch, check_body: bool) -> object:
    """Return the messages of that response, or the error."""
    monkeypatch.setattr(record, "read_common_layout", reader)
    try:
        return record.decode(memoryview(body), check_body=check_body)
    except ProtocolError as error:
        return str(error)


def test_random_responses_give_the_same_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many records, most in the common layout, some damaged: the same messages, or the same error."""
    rng = random.Random(31)
    compiled_read = module.Messages(MessageExt, cached_host).read
    complaints = 0
    for _ in range(ROWS):
        body = random_response(rng)
        check_body = rng.random() < 0.8
        found = read(compiled_read, body, monkeypatch, check_body)
        assert found == read(record.python_read_common_layout, body, monkeypatch, check_body)
        complaints += isinstance(found, str)
    assert ROWS // 10 < complaints < ROWS // 2


def test_common_records_are_read_by_the_module() -> None:
    """Records in the common layout do not need the general parser, whatever comes last."""
    messages: list[MessageExt] = []
    body = b"".join(
        random_record(random.Random(5), "Topic", HOSTS[0], b"TAGS\x01a\x02K\x01\xe4\xb8\xad") for _ in range(9)
    )
    assert module.Messages(MessageExt, cached_host).read(memoryview(body), 0, True, messages) == len(body)
    assert [message.properties for message in messages] == [{"TAGS": "a", "K": "中"}] * 9
    with pytest.raises(ValueError, match="before"):
        module.Messages(MessageExt, cached_host).read(memoryview(body), -1, True, messages)


def random_response(rng: random.Random) -> bytes:
    """Return a response's body; every fourth one has a changed byte, or is cut off."""
    body = bytearray()
    for _ in range(rng.randint(1, 10)):
        topic = rng.choice(TOPICS[:2] if rng.random() < 0.9 else TOPICS)
        host = rng.choice(HOSTS[:3] if rng.random() < 0.9 else HOSTS)
        properties = "".join(rng.choices(ENTRIES, k=rng.randrange(6))).encode()
        body += random_record(rng, topic, host, properties if rng.random() < 0.9 else rng.randbytes(20))
    if rng.random() < 0.2:
        body[rng.randrange(len(body))] = rng.choice((0, 1, 127, 128, 255))
    if rng.random() < 0.1:
        del body[rng.randrange(len(body)) :]
    return bytes(body)


def random_record(rng: random.Random, topic: str, host: bytes, properties: bytes) -> bytes:
    """Return a record with any numbers."""
    return record.encode(
        topic=topic,
        body=rng.randbytes(rng.choice((0, 1, 50))),
        properties=properties,
        queue_id=rng.getrandbits(32) - (1 << 31),
        queue_offset=rng.getrandbits(64) - (1 << 63),
        physical_offset=rng.getrandbits(64) - (1 << 63),
        born_timestamp=rng.getrandbits(64) - (1 << 63),
        born_host=host,
        store_timestamp=rng.getrandbits(64) - (1 << 63),
        store_host=rng.choice(HOSTS[:3]),
        flag=rng.getrandbits(32) - (1 << 31),
        sys_flag=rng.choice((0, 1, 8, 0x301, 0x30)),
        reconsume_times=rng.randint(-1, 20),
        prepared_transaction_offset=rng.getrandbits(64) - (1 << 63),
    )
