"""The selector: the figures of its parts."""

import msgspec

from tests.harness.echo_server import ECHO, EchoServer
from tests.harness.raw import frame
from tests.harness.raw_peer import RawPeer


async def test_statistics_add_up(server: EchoServer, peer: RawPeer) -> None:
    """Bytes are counted as they pass."""
    peer.send(request := frame({"code": ECHO, "opaque": 1}))
    response = await peer.receive_raw()
    figures = server.selector.statistics()
    assert (figures.received_bytes, figures.sent_bytes) == (len(request), len(response))
    assert msgspec.structs.asdict(figures) | {"received_bytes": 0, "sent_bytes": 0} == {
        "connections": 1, "accepted": 1, "refused": 0, "closed_idle": 0, "closed_unread": 0, "protocol_errors": 0,
        "paused": 0, "held": 0, "backlog_bytes": 0, "received_bytes": 0, "sent_bytes": 0,
    }  # fmt: skip
    assert repr(server.selector) == "<Selector 1 connections>"
