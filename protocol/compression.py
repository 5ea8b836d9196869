"""Compressed bodies: the codecs of RocketMQ, for both directions.

Bit 0x1 of `sysFlag` marks a compressed body, bits 0x700 name the codec:

    0x000  zlib: clients from before the codec bits (RocketMQ up to 4.9.3, and others) set none
    0x100  LZ4, frame format               needs the package `lz4`             pip install 'skylarkmq[lz4]'
    0x200  Zstandard                       needs `backports.zstd` below 3.14   pip install 'skylarkmq[zstd]'
    0x300  zlib: Java clients since 4.9.4, and this module

The packages are optional. They are imported when the first body needs them.

A few hundred kilobytes can inflate to hundreds of megabytes. So inflating always has a limit, works in steps of
INFLATE_STEP_BYTES, and needs at most twice the limit of memory. Source: docs/reference/wire.md, "System flags".
"""

import sys
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any, Final, Literal

import msgspec

from skylarkmq.protocol.codes import SysFlag

MAX_PAYLOAD_BYTES: Final = 16 * 1024 * 1024
"""Default limit of an inflated body: the largest frame, so what can be sent uncompressed can be inflated. RocketMQ's
producers and brokers accept bodies up to 4 MiB (maxMessageSize) unless they are configured otherwise."""
INFLATE_STEP_BYTES: Final = 256 * 1024

Compression = Literal["zlib", "lz4", "zstd"]
"""The names of the codecs, as producers choose them."""

_STDLIB_ZSTD: Final = (3, 14)  # the first Python with compression.zstd; backports.zstd is the same for older ones
_MIN_WINDOW_BITS: Final = 23  # 8 MiB: the window that every decoder must support (RFC 8878, 3.1.1.1.2)
_MAX_WINDOW_BITS: Final = 27


class PayloadError(ValueError):
    """A body that cannot be inflated: damaged, too large, or of a codec that is not installed."""


class CodecMissing(PayloadError):
    """The package of a codec is not installed. The text names the extra to install."""


class _Codec(msgspec.Struct, frozen=True):
    """One codec. `inflater` makes a decompressor for bodies of up to so many bytes; a damaged body raises `damage`."""

    name: str
    compress: Callable[[bytes, int], bytes]
    inflater: Callable[[int], Any]
    damage: type[Exception]


def compress(body: bytes, kind: Compression, level: int) -> bytes:
    """Return `body` compressed. Levels are the codec's own: zlib 0–9, lz4 0–16, zstd 1–22.

    Raises CodecMissing if the codec is not installed, ValueError for an unknown kind.
    """
    return _codec(kind).compress(body, level)


def check_codec(kind: str) -> None:
    """Raise CodecMissing if the codec is not installed, ValueError if `kind` is not a Compression."""
    _codec(kind)


def compression_flags(kind: Compression) -> int:
    """Return the bits of `sysFlag` that mark a body as compressed by this codec, as RocketMQ's Java producers set them.

    Readers without codec bits ignore them, so 0x301 is zlib for every reader.
    """
    return int(SysFlag.COMPRESSED | _WRITTEN_BITS[kind])


def inflate(body: bytes | memoryview, sys_flag: int, max_bytes: int = MAX_PAYLOAD_BYTES) -> bytes:
    """Return the body as the producer passed it in.

    Raises PayloadError if the body is damaged or has more than `max_bytes`, CodecMissing if its codec is not installed.
    Memory stays within twice `max_bytes`, whatever the body claims.
    """
    if not sys_flag & SysFlag.COMPRESSED:
        return bytes(body)
    return b"".join(inflate_steps(body, sys_flag, max_bytes))


def inflate_steps(body: bytes | memoryview, sys_flag: int, max_bytes: int = MAX_PAYLOAD_BYTES) -> Iterator[bytes]:
    """Yield a compressed body in pieces of at most INFLATE_STEP_BYTES, so that a caller can do other work in between.

    Raises the errors of `inflate`, as soon as the limit is exceeded.
    """
    bits = sys_flag & SysFlag.COMPRESSION_TYPE_MASK
    if bits not in _READ_KINDS:
        raise PayloadError(f"unknown compression type 0x{bits:x} in sysFlag {sys_flag}")
    codec = _codec(_READ_KINDS[bits])
    inflater = codec.inflater(max_bytes)
    rest: bytes | memoryview = body
    size = 0
    while not inflater.eof:
        try:
            piece: bytes = inflater.decompress(rest, min(INFLATE_STEP_BYTES, max_bytes - size + 1))
        except codec.damage as damage:
            raise PayloadError(f"the {codec.name} body is damaged: {damage}") from damage
        rest = getattr(inflater, "unconsumed_tail", b"")  # zlib returns its rest, the others keep it
        size += len(piece)
        if size > max_bytes:
            raise PayloadError(f"the {codec.name} body is larger than {max_bytes} bytes when inflated")
        if not piece and not rest and not inflater.eof:
            raise PayloadError(f"the {codec.name} body is cut off")
        yield piece


def _module(name: str, codec: str, extra: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise CodecMissing(
            f"the body is compressed by {codec}, and the package for it is not installed. "
            f"Install it: pip install 'skylarkmq[{extra}]'"
        ) from error


def _zlib() -> _Codec:
    return _Codec("ZLIB", zlib.compress, lambda _: zlib.decompressobj(), zlib.error)


def _lz4() -> _Codec:
    frame = _module("lz4.frame", "LZ4", "lz4")

    def compressed(body: bytes, level: int) -> bytes:
        # RocketMQ's reader (lz4-java) rejects frames whose blocks depend on each other
        packed: bytes = frame.compress(body, compression_level=level, block_linked=False)
        return packed

    return _Codec("LZ4", compressed, lambda _: frame.LZ4FrameDecompressor(), RuntimeError)


def _zstd() -> _Codec:
    zstd = _module("compression.zstd" if sys.version_info >= _STDLIB_ZSTD else "backports.zstd", "ZSTD", "zstd")
    window_log_max = zstd.DecompressionParameter.window_log_max

    def inflater(max_bytes: int) -> Any:
        bits = min(max((max_bytes - 1).bit_length(), _MIN_WINDOW_BITS), _MAX_WINDOW_BITS)
        return zstd.ZstdDecompressor(options={window_log_max: bits})

    return _Codec("ZSTD", zstd.compress, inflater, zstd.ZstdError)


_MAKERS: Final[dict[str, Callable[[], _Codec]]] = {"zlib": _zlib, "lz4": _lz4, "zstd": _zstd}
_READ_KINDS: Final[dict[int, Compression]] = {
    0: "zlib",
    SysFlag.COMPRESSION_LZ4: "lz4",
    SysFlag.COMPRESSION_ZSTD: "zstd",
    SysFlag.COMPRESSION_ZLIB: "zlib",
}
_WRITTEN_BITS: Final[dict[Compression, int]] = {
    "zlib": SysFlag.COMPRESSION_ZLIB,
    "lz4": SysFlag.COMPRESSION_LZ4,
    "zstd": SysFlag.COMPRESSION_ZSTD,
}


@cache
def _codec(kind: str) -> _Codec:
    if kind not in _MAKERS:
        raise ValueError(f"unknown compression {kind!r}: it is one of {', '.join(_MAKERS)}")
    return _MAKERS[kind]()
