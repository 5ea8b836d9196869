"""Processors that never sleep, for everybody on the machine, as the broker has them while it is busy."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

DEVICE: Final = Path("/dev/cpu_dma_latency")
AT_ONCE: Final = bytes(4)  # an int32, the longest wake in µs


@contextmanager
def kept_awake(wanted: bool = True) -> Iterator[None]:
    """Idle processors poll until the end of the block, if wanted. OSError: we may not ask for that, or there is no such
    device."""
    if not wanted:
        yield
        return
    with DEVICE.open("wb", buffering=0) as device:
        device.write(AT_ONCE)
        yield
