from collections.abc import Callable, Container, Sequence
from typing import Any

def count_up(values: Sequence[int], bounds: Sequence[float], counts: list[int]) -> int: ...
def note_units(queue: Any) -> None: ...
def publish(
    full_bytes: int,
    queues: Sequence[Any],
    waiting: dict[Any, None],
    topics: Container[str] | None,
    on_arrival: Callable[[str, int, int, Sequence[int]], None] | None,
) -> tuple[int, list[Any]]: ...
