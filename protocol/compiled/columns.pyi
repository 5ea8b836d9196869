from collections.abc import Sequence
from typing import TypeAlias

from skylarkmq.protocol.record import Buffer

_Text: TypeAlias = tuple[bytes | None, bytes, bytes]

def steps(buffer: Buffer, at: int, end: int) -> bytes: ...
def columns(
    buffer: Buffer, starts: object, wanted: int
) -> tuple[Sequence[bytes | None], Sequence[_Text | None]] | None: ...
