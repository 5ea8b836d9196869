from skylarkmq.protocol.unit_runs import Segment

class Records:
    count: int
    size: int
    begin: int
    last: int
    is_run: bool
    def __len__(self) -> int: ...

class UnitRun:
    first: int
    count: int
    begin: int
    end: int
    segment: Segment
    def __init__(
        self, first: int, units: bytes | bytearray, segment: Segment, limit: int, most_span: int, longest: int
    ) -> None: ...
    def take(self, offset: int, wanted: int, most_bytes: int) -> Records | None: ...

def found_head(
    pieces: tuple[bytes, ...], max_offset: int, min_offset: int, next_offset: int, opaque: int, size: int
) -> bytes: ...
