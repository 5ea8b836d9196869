"""Compressed sends: codec, level, threshold, and what the broker stores and delivers."""

import sys
from collections.abc import Iterator

import pytest

import skylarkmq.protocol.compression as codecs
from skylarkmq import ConsumeFrom, InvalidArgument, Message, ProducerSettings, connect
from skylarkmq.broker.app.in_process import InProcessBroker, running
from skylarkmq.clients.sdk.messages.compression import Compression
from skylarkmq.clients.sdk.messages.outgoing_message import Preparation
from skylarkmq.protocol.codes import RequestCode, SysFlag
from skylarkmq.protocol.compression import inflate
from skylarkmq.protocol.headers.queue import ViewMessageHeader
from skylarkmq.protocol.message_id import UniqueIds, decode_offset_id
from skylarkmq.protocol.record import decode

BODY = b"a body that compresses well " * 1000
FLAGS: dict[Compression | None, int] = {
    None: 0,
    "zlib": SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB,
    "lz4": SysFlag.COMPRESSED | SysFlag.COMPRESSION_LZ4,
    "zstd": SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZSTD,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with running(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


def prepared(compression: Compression | None, settings: ProducerSettings, body: bytes = BODY) -> tuple[bytes, int]:
    preparation = Preparation(UniqueIds("10.0.0.1", 7, 99), settings, compression)
    outgoing = preparation.one(Message("T", body), 0)
    return outgoing.body, outgoing.sys_flag


@pytest.mark.parametrize("compression", FLAGS)
async def test_a_compressed_body_is_stored_with_its_codec_and_delivered_inflated(
    compression: Compression | None, broker: InProcessBroker
) -> None:
    """The broker stores the compressed bytes and keeps the codec's bits of sysFlag, as RocketMQ 5 does."""
    try:
        codecs.check_codec(compression or "zlib")
    except codecs.CodecMissing as missing:
        pytest.skip(str(missing))
    async with (
        connect(broker.namesrv) as mq,
        mq.producer("p", compression=compression) as producer,
        mq.pull_consumer(f"g-{compression}", consume_from=ConsumeFrom.FIRST) as consumer,
    ):
        result = await producer.send(Message(f"Compressed-{compression}", BODY))
        offset = decode_offset_id(result.offset_msg_id)[2]
        header = ViewMessageHeader(offset=offset)
        response = await mq.client.request(broker.address, RequestCode.VIEW_MESSAGE_BY_ID, header)
        (stored,) = decode(response.body)
        assert stored.sys_flag & (SysFlag.COMPRESSED | SysFlag.COMPRESSION_TYPE_MASK) == FLAGS[compression]
        assert (len(stored.body) < len(BODY) // 10) is (compression is not None)
        assert inflate(stored.body, stored.sys_flag) == BODY
        await consumer.subscribe(f"Compressed-{compression}")
        (message,) = await consumer.poll(timeout_s=20)
        assert message.body == BODY


def test_level_and_threshold_are_settings() -> None:
    """The level is the codec's own; smaller bodies, and those that compression does not shrink, stay as they are."""
    fast, small = (prepared("zlib", ProducerSettings(compression_level=level))[0] for level in (1, 9))
    assert len(small) < len(fast)
    above = ProducerSettings(compress_above_bytes=len(BODY) + 1)
    assert prepared("zlib", above) == (BODY, 0)
    assert prepared("zlib", ProducerSettings(compression_level=0)) == (BODY, 0)
    assert prepared(None, ProducerSettings(compress_above_bytes=0)) == (BODY, 0)


def test_an_unknown_codec_or_level_is_an_invalid_argument() -> None:
    with pytest.raises(InvalidArgument, match=r"compression: .*gzip"):
        prepared("gzip", ProducerSettings())  # type: ignore[arg-type]  # on purpose
    with pytest.raises(InvalidArgument, match="compression_level of zlib must be 0 to 9"):
        prepared("zlib", ProducerSettings(compression_level=77))


@pytest.mark.parametrize(("compression", "package"), [("lz4", "lz4.frame"), ("zstd", "backports.zstd")])
def test_a_missing_package_is_an_error_that_names_the_extra(
    compression: Compression, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the producer is made, not when it sends."""
    if compression == "zstd" and sys.version_info >= (3, 14):
        pytest.skip("Python has Zstandard")
    monkeypatch.setitem(sys.modules, package, None)
    codecs._codec.cache_clear()
    try:
        with pytest.raises(InvalidArgument, match=rf"skylarkmq\[{compression}\]"):
            prepared(compression, ProducerSettings())
    finally:
        codecs._codec.cache_clear()
