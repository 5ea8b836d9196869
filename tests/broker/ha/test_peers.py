"""The setting `haPeers`."""

import pytest

from skylarkmq.broker.ha.peers import Peer, parse_peers


def test_peers_are_read_in_order_and_shown_as_they_are_written() -> None:
    """Separated by ',' or ';'; host names, IPv4 and IPv6."""
    peers = parse_peers("n2=10.0.0.2:10912, a.b-c=broker.example:1;n1=[::1]:65535")
    assert peers == (Peer("n2", "10.0.0.2", 10912), Peer("a.b-c", "broker.example", 1), Peer("n1", "::1", 65535))
    assert parse_peers(";".join(map(str, peers))) == peers
    assert parse_peers("") == ()


@pytest.mark.parametrize(
    "text", ["n1", "n1=", "n1=host", "n1=:1", "n1=h:0", "n1=h:65536", "=h:1", "n 1=h:1", "n1=h:1,n1=h:2", "n1=h:١"]
)
def test_other_texts_are_refused(text: str) -> None:
    """A peer has a name of its own, a host and a port."""
    with pytest.raises(ValueError, match=r".*"):
        parse_peers(text)
