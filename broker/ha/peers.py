"""The nodes of a group, as `haPeers` names them: `n1=10.0.0.1:10912,n2=10.0.0.2:10912`. The first one leads."""

import re
from typing import Final

import msgspec

NODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
SEPARATORS: Final = re.compile(r"\s*[,;]\s*")


class Peer(msgspec.Struct, frozen=True):
    """A node, and the address of its HA port."""

    name: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """Return `host:port`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.name}={self.address}"


def parse_peers(text: str) -> tuple[Peer, ...]:
    """Return the peers in order; none for an empty text. Raises ValueError for others, and for a name that occurs
    twice."""
    peers = tuple(map(_parse_peer, filter(None, SEPARATORS.split(text.strip()))))
    if len({peer.name for peer in peers}) < len(peers):
        raise ValueError(text)
    return peers


def _parse_peer(text: str) -> Peer:
    name, equals, address = text.partition("=")
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_number = port.isascii() and port.isdecimal() and 0 < int(port) < 65_536
    if not (equals and colon and host and is_number and NODE.fullmatch(name)):
        raise ValueError(text)
    return Peer(name, host, int(port))
