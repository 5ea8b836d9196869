"""Compressed bodies: every codec, exact limits, bounded memory, and codecs that are not installed."""

import os
import tracemalloc
import zlib

import pytest

from skylarkmq.protocol import compression
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.compression import (
    INFLATE_STEP_BYTES,
    MAX_PAYLOAD_BYTES,
    CodecMissing,
    Compression,
    PayloadError,
    check_codec,
    compress,
    compression_flags,
    inflate,
    inflate_steps,
)

MIB = 1024 * 1024
LEVEL = 3


@pytest.fixture(params=["zlib", "lz4", "zstd"])
def kind(request: pytest.FixtureRequest) -> Compression:
    """Each codec whose package is installed."""
    try:
        check_codec(request.param)
    except CodecMissing as error:
        pytest.skip(str(error))
    found: Compression = request.param
    return found


@pytest.fixture
def no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if neither lz4 nor zstd were installed."""

    def missing(name: str) -> None:
        raise ImportError(name)

    compression._codec.cache_clear()
    monkeypatch.setattr(compression, "import_module", missing)


@pytest.mark.parametrize("sys_flag", [SysFlag.COMPRESSED, 769])
def test_zlib_bodies_of_old_and_new_writers_inflate(sys_flag: int) -> None:
    """zlib bodies inflate with and without codec bits."""
    assert inflate(zlib.compress(b"x" * 5000, 5), sys_flag) == b"x" * 5000


def test_a_body_without_the_compressed_bit_is_returned_as_it_is() -> None:
    """Codec bits alone mean nothing."""
    assert inflate(memoryview(b"x"), SysFlag.COMPRESSION_ZLIB) == b"x"


def test_a_compressed_body_inflates_to_the_original(kind: Compression) -> None:
    """The flags that a producer sets lead a consumer to the same codec."""
    body = os.urandom(1000) + bytes(2 * INFLATE_STEP_BYTES)
    assert inflate(compress(body, kind, LEVEL), compression_flags(kind)) == body


def test_flags_name_the_codec() -> None:
    """The bits are those of RocketMQ's Java producers since 4.9.4."""
    assert [compression_flags("zlib"), compression_flags("lz4"), compression_flags("zstd")] == [0x301, 0x101, 0x201]


def test_lz4_frames_have_independent_blocks() -> None:
    """lz4-java, RocketMQ's reader, rejects linked blocks: bit 5 of the frame descriptor."""
    frame = pytest.importorskip("lz4.frame")
    packed = compress(bytes(10 * MIB), "lz4", 0)
    assert frame.get_frame_info(packed)["block_linked"] is False


def test_damaged_bodies_raise(kind: Compression) -> None:
    """Nothing, noise, and a body that is cut off are PayloadErrors."""
    for body in (b"", b"no compressed body", compress(b"x" * 5000, kind, LEVEL)[:-1]):
        with pytest.raises(PayloadError):
            inflate(body, compression_flags(kind))


@pytest.mark.parametrize("limit", [0, 1000, INFLATE_STEP_BYTES, 3 * INFLATE_STEP_BYTES + 1])
def test_the_size_limit_is_exact(kind: Compression, limit: int) -> None:
    """A body of `max_bytes` inflates; one byte more is a PayloadError that names the limit."""
    assert len(inflate(compress(bytes(limit), kind, LEVEL), compression_flags(kind), limit)) == limit
    with pytest.raises(PayloadError, match=f"larger than {limit} bytes"):
        inflate(compress(bytes(limit + 1), kind, LEVEL), compression_flags(kind), limit)


def test_a_decompression_bomb_uses_bounded_memory(kind: Compression) -> None:
    """A small body that claims 256 MiB is rejected at the default limit, and uses about twice that at most."""
    bomb = compress(bytes(256 * MIB), kind, 1)
    tracemalloc.start()
    try:
        with pytest.raises(PayloadError, match=f"larger than {MAX_PAYLOAD_BYTES}"):
            inflate(bomb, compression_flags(kind))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * MAX_PAYLOAD_BYTES + 4 * INFLATE_STEP_BYTES


def test_a_zstd_window_beyond_the_limit_is_rejected() -> None:
    """A frame cannot claim a window that is larger than the body may be."""
    check_or_skip("zstd")
    header = bytes.fromhex("28b52ffd") + bytes([0x00, (27 - 10) << 3])  # no content size, a window of 128 MiB
    with pytest.raises(PayloadError, match="damaged"):
        inflate(header + bytes(100), compression_flags("zstd"))


def test_a_body_inflates_in_steps(kind: Compression) -> None:
    """No step is larger than INFLATE_STEP_BYTES, and all steps together are the body."""
    payload = bytes(3 * INFLATE_STEP_BYTES) + os.urandom(INFLATE_STEP_BYTES)
    steps = list(inflate_steps(compress(payload, kind, LEVEL), compression_flags(kind)))
    assert max(map(len, steps)) <= INFLATE_STEP_BYTES
    assert b"".join(steps) == payload


@pytest.mark.usefixtures("no_packages")
@pytest.mark.parametrize("missing", ["lz4", "zstd"])
def test_a_missing_package_is_an_error_that_names_the_extra(missing: Compression) -> None:
    """Both directions name it, and a producer can check beforehand."""
    match = rf"pip install 'skylarkmq\[{missing}\]'"
    with pytest.raises(CodecMissing, match=match):
        inflate(b"x", compression_flags(missing))
    with pytest.raises(CodecMissing, match=match):
        compress(b"x", missing, LEVEL)
    with pytest.raises(CodecMissing, match=match):
        check_codec(missing)


@pytest.mark.usefixtures("no_packages")
def test_zlib_needs_no_package() -> None:
    """zlib is part of Python."""
    assert inflate(compress(b"x", "zlib", LEVEL), compression_flags("zlib")) == b"x"


def test_unknown_codecs_raise() -> None:
    """Unknown codec bits are a PayloadError, an unknown name is a ValueError."""
    with pytest.raises(PayloadError, match="0x700"):
        inflate(b"x", SysFlag.COMPRESSED | 0x700)
    with pytest.raises(ValueError, match="one of zlib, lz4, zstd"):
        check_codec("gzip")


def check_or_skip(name: str) -> None:
    try:
        check_codec(name)
    except CodecMissing as error:
        pytest.skip(str(error))
