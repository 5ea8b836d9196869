"""A peer of a leader's replication port that may send anything. It blocks, and knows the secret of the test group.

with HostilePeer(port) as peer:
    peer.prove()                        # the handshake of the cluster secret
    peer.send(hello(node="n9"))
    peer.until_closed()                 # what the leader sent
"""

import socket
from typing import Any, Final, Self

from skylarkmq.broker.ha.core.epochs import EpochHistory
from skylarkmq.broker.ha.core.messages import Hello, Refused, Welcome
from skylarkmq.broker.ha.link.frames import PREFACE, Frame, FrameReader, encode
from skylarkmq.broker.ha.link.handshake import Handshake
from tests.ha.linked_group import SECRET
from tests.harness.ports import LOOPBACK

SEGMENT_BYTES: Final = 1 << 20
"""The size of segments that tests.harness.daemon sets."""
LIMIT_S: Final = 120.0


def hello(**fields: Any) -> Hello:
    """Return the HELLO of n3 with an empty store."""
    given: dict[str, Any] = {
        "group": "broker-a",
        "node": "n3",
        "store_id": "a-hostile-store",
        "promised": 0,
        "epochs": EpochHistory(),
        "start": 0,
        "end": 0,
        "format": 1,
        "segment_bytes": SEGMENT_BYTES,
    }
    return Hello(**given | fields)


class HostilePeer:
    """One connection."""

    def __init__(self, port: int, receive_buffer_bytes: int = 0) -> None:
        self.socket = socket.socket()
        self.socket.settimeout(LIMIT_S)
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.connect((LOOPBACK, port))
        self._reader = FrameReader()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def prove(self, secret: str = SECRET) -> None:
        """Send the preface, and prove this secret. Raises HandshakeError if the leader refuses it."""
        handshake = Handshake(secret.encode(), connects=True)
        self.socket.sendall(PREFACE + b"".join(map(encode, handshake.begin())))
        while not handshake.done:
            for frame in self._reader.feed(self.socket.recv(1 << 16)):
                self.send(*handshake.receive(frame))

    def send(self, *frames: Frame) -> None:
        """Send frames."""
        self.socket.sendall(b"".join(map(encode, frames)))

    def receive(self) -> list[Frame]:
        """Return at least one frame."""
        frames: list[Frame] = []
        while not frames:
            data = self.socket.recv(1 << 16)
            assert data, "the leader closed the connection"
            frames += self._reader.feed(data)
        return frames

    def welcome(self) -> Welcome:
        """Return the WELCOME."""
        [welcome, *_] = self.receive()
        assert isinstance(welcome, Welcome), welcome
        return welcome

    def until_closed(self) -> list[Frame]:
        """Return what the leader sent until it closed the connection."""
        frames: list[Frame] = []
        try:
            while data := self.socket.recv(1 << 16):
                frames += self._reader.feed(data)
        except ConnectionResetError:
            pass  # the leader had unread bytes when it closed
        return frames

    def refusal(self) -> str:
        """Return the reason with which the leader refused this peer before it closed the connection."""
        return "".join(frame.reason for frame in self.until_closed() if isinstance(frame, Refused))
