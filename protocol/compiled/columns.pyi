from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from skylarkmq.protocol.record import Buffer

_Text: TypeAlias = tuple[bytes | None, bytes, Any] | tuple[bytes | None, bytes]

def steps(buffer: Buffer, at: int, end: int) -> bytes: ...
def columns(
    buffer: Buffer,
    starts: object,
    wanted: int,
    allocate: Callable[[int], Any] | None = None,
    encoded: int = 0,
    viewed: int = 0,
) -> tuple[Sequence[bytes | None], Sequence[_Text | None]] | None: ...
def slice_crcs(crc32: int, data: Buffer, begins: object, ends: object) -> bytes: ...
