"""Processors that never sleep, for all processes of the machine, as the broker sets them while it is busy."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

DEVICE: Final = Path("/dev/cpu_dma_latency")
AT_ONCE: Final = bytes(4)  # an int32: the maximum wake-up latency in µs


@contextmanager
def kept_awake(wanted: bool = True) -> Iterator[None]:
    """Keep idle processors polling until the end of the block, if wanted.

    Raises OSError without permission or device.
    """
    if not wanted:
        yield
        return
    with DEVICE.open("wb", buffering=0) as device:
        device.write(AT_ONCE)
        yield
