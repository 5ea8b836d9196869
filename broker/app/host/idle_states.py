"""Idle states: processors are kept awake while messages are sent and received.

An idle processor of a virtual machine is returned to the host, and waking it takes 30 to 60 µs. A message pays this
several times: when it arrives, when the disk is done, when its producer gets the response. That is more than the
broker's own work. Linux lets idle processors poll instead while a process requests it (PM QoS, /dev/cpu_dma_latency).
The polling uses CPU time of the host; no process here is charged for it.

So the broker makes the request while bytes arrive, and withdraws it within 0.2 s afterwards. It does so only on a guest
whose idle processors halt by the `haltpoll` driver, and with few processors, since all of them are kept awake. The
idle states of other machines are left to their operators. If the process ends, in whatever way, the kernel drops the
request.

Source: docs/decisions/0010-awake-cpus.md.
"""

import logging
import os
import sys
from pathlib import Path
from typing import Final

from skylarkmq.broker.remoting.busy_polling import ReceivedBytes

MOST_CPUS: Final = 8
BUSY_BYTES: Final = 64 * 1024  # received between two steps: about 600 messages of 1 KiB per second

_DEVICE: Final = Path("/dev/cpu_dma_latency")
_DRIVER: Final = Path("/sys/devices/system/cpu/cpuidle/current_driver")
_AWAKE: Final = (0).to_bytes(4, sys.byteorder)  # the maximum wake-up latency, in µs
_ASLEEP: Final = (2_000_000_000).to_bytes(4, sys.byteorder)  # the kernel's default

log = logging.getLogger(__name__)


def open_request() -> int | None:
    """Return the descriptor of the request; None if it would have no effect, or is not permitted."""
    try:
        driver = _DRIVER.read_text().strip()
    except OSError:
        return None
    if driver != "haltpoll" or (os.cpu_count() or 1) > MOST_CPUS:
        return None
    try:
        request = os.open(_DEVICE, os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        log.info("idle processors are not kept awake under load device=%s error=%s", _DEVICE, error.strerror)
        return None
    log.info("idle processors are kept awake under load device=%s", _DEVICE)
    return request


class IdleStateInhibitor:
    """Keeps processors awake through a descriptor of `open_request`, which it closes; None: it does nothing."""

    def __init__(self, request: int | None, reads: ReceivedBytes) -> None:
        self._request = request
        self._reads = reads
        self._seen_bytes = reads.received_bytes
        self.is_active = False

    def __repr__(self) -> str:
        return f"<IdleStateInhibitor is_active={self.is_active}>"

    def step(self) -> None:
        """Update the request according to the received bytes; called ten times a second."""
        seen_bytes, self._seen_bytes = self._seen_bytes, self._reads.received_bytes
        is_busy = self._seen_bytes - seen_bytes >= BUSY_BYTES
        if self._request is not None and is_busy is not self.is_active:
            os.write(self._request, _AWAKE if is_busy else _ASLEEP)
            self.is_active = is_busy

    def close(self) -> None:
        """Withdraw the request."""
        if self._request is not None:
            os.close(self._request)
            self._request, self.is_active = None, False
