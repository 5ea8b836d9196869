from collections.abc import Callable, Container, Sequence
from typing import Any

def gather_units(
    appends: Sequence[Any], deliver_time: Callable[[Any], int], jumped: Callable[[Any], None]
) -> list[Any]: ...
def publish(
    full_bytes: int,
    queues: Sequence[Any],
    waiting: dict[Any, None],
    topics: Container[str] | None,
    on_arrival: Callable[[str, int, int, Sequence[int]], None] | None,
) -> tuple[int, list[Any]]: ...
