"""The state of the daemon for systemd (`Type=notify`): ready, or stopping.

systemd passes the address of a datagram socket in NOTIFY_SOCKET. Without the variable nothing is sent. Units that start
after the broker then start once it serves clients, and `systemctl start` returns at that time. The format is described
in sd_notify(3).
"""

import logging
import os
import socket
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"

log = logging.getLogger(__name__)


def notify(state: str, status: str) -> None:
    """Send a state, and a status line for `systemctl status`. A failure is logged."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # a socket without a file
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(f"{state}\nSTATUS={status}\n".encode(), address)
    except OSError as error:
        log.warning("service manager not notified state=%s error=%s", state, error)
