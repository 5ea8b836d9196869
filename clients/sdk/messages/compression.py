"""Compressed bodies in the SDK: what producers compress and consumers inflate.

The codecs and their bits in `sysFlag` are in protocol/compression.py. `zlib` is always there. `lz4` and `zstd` need an
extra: `pip install 'skylarkmq[lz4]'`, `pip install 'skylarkmq[zstd]'`.
"""

import asyncio
from typing import Final

from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.compression import (
    MAX_PAYLOAD_BYTES,
    CodecMissing,
    Compression,
    PayloadError,
    check_codec,
    compress,
    compression_flags,
    inflate_steps,
)

__all__ = [
    "COMPRESSION_BITS",
    "DEFAULT_LEVELS",
    "CodecMissing",
    "Compression",
    "PayloadError",
    "check_codec",
    "compress",
    "compression_flags",
    "decompress",
]

COMPRESSION_BITS: Final = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_TYPE_MASK)
"""The bits of `sysFlag` that describe how a body is compressed."""

DEFAULT_LEVELS: Final[dict[Compression, int]] = {"zlib": 5, "lz4": 0, "zstd": 3}
"""The levels that RocketMQ's Java producer uses for zlib, and the defaults of the other two libraries."""


async def decompress(body: bytes, sys_flag: int, max_bytes: int = MAX_PAYLOAD_BYTES) -> bytes:
    """Return the body as the producer passed it in; an uncompressed one is returned as it is.

    Inflating runs in steps of at most 256 KiB, and other tasks run between two steps. Memory stays within twice
    `max_bytes`. Raises PayloadError if the body is damaged or larger than `max_bytes`, CodecMissing if the package for
    its codec is not installed: the text names the extra.
    """
    if not sys_flag & SysFlag.COMPRESSED:
        return body
    pieces: list[bytes] = []
    for piece in inflate_steps(body, sys_flag, max_bytes):
        if pieces:
            await asyncio.sleep(0)
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
