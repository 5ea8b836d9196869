"""Processors that stay awake while messages come and go.

An idle processor of a virtual machine is given back to the host, and to have it again takes 30 to 60 µs: at each stop
of a message, when it arrives, when the disk is done, when its sender is told. That is more than a broker does for it.
Linux lets idle processors poll instead for as long as somebody asks for that (PM QoS, /dev/cpu_dma_latency). What they
use then is the host's CPU time; no process here is charged for it.

So the broker asks while bytes come, and takes it back within two tenths of a second after. It does so only where it
pays: in a guest whose idle processors halt by the `haltpoll` driver, and with few of them, since all are kept awake.
What other machines do with idle processors is left to their operators. If the process ends, however it does, so does
what it asked for.

Source: docs/decisions/0010-awake-cpus.md.
"""

import logging
import os
import sys
from pathlib import Path
from typing import Final

from skylarkmq.broker.remoting.busy_polling import ReceivedBytes

MOST_CPUS: Final = 8
BUSY_BYTES: Final = 64 * 1024  # that come between two steps: some 600 messages a second of 1 KiB

_DEVICE: Final = Path("/dev/cpu_dma_latency")
_DRIVER: Final = Path("/sys/devices/system/cpu/cpuidle/current_driver")
_AWAKE: Final = (0).to_bytes(4, sys.byteorder)  # the longest wake, in µs
_ASLEEP: Final = (2_000_000_000).to_bytes(4, sys.byteorder)  # what the kernel has without any request

log = logging.getLogger(__name__)


def open_request() -> int | None:
    """The descriptor by which processors can be kept awake; None where that is no use, or not allowed."""
    try:
        driver = _DRIVER.read_text().strip()
    except OSError:
        return None
    if driver != "haltpoll" or (os.cpu_count() or 1) > MOST_CPUS:
        return None
    try:
        request = os.open(_DEVICE, os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        log.info("idle processors sleep, also under load device=%s error=%s", _DEVICE, error.strerror)
        return None
    log.info("idle processors are kept awake under load device=%s", _DEVICE)
    return request


class IdleStateInhibitor:
    """Keeps processors awake by a descriptor of `open_request`, which it closes; None: it does nothing."""

    def __init__(self, request: int | None, reads: ReceivedBytes) -> None:
        self._request = request
        self._reads = reads
        self._seen_bytes = reads.received_bytes
        self.is_active = False

    def __repr__(self) -> str:
        return f"<IdleStateInhibitor is_active={self.is_active}>"

    def step(self) -> None:
        """Look whether messages come; ten times a second."""
        seen_bytes, self._seen_bytes = self._seen_bytes, self._reads.received_bytes
        is_busy = self._seen_bytes - seen_bytes >= BUSY_BYTES
        if self._request is not None and is_busy is not self.is_active:
            os.write(self._request, _AWAKE if is_busy else _ASLEEP)
            self.is_active = is_busy

    def close(self) -> None:
        """Let them sleep."""
        if self._request is not None:
            os.close(self._request)
            self._request, self.is_active = None, False
