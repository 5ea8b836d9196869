"""The nodes of a group, as `haPeers` names them: `n1=10.0.0.1:10912,n2=10.0.0.2:10912`."""

import re
from typing import Final, NamedTuple

NODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Peer(NamedTuple):
    """Where a node's HA port is."""

    host: str
    port: int

    @property
    def address(self) -> str:
        """Return `host:port`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_peers(text: str) -> dict[str, Peer]:
    """Return the peers by name, in order. Raises ValueError for other texts, and for a name that occurs twice."""
    peers: dict[str, Peer] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        node, equals, address = part.partition("=")
        host, colon, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        is_number = port.isascii() and port.isdecimal() and 0 < int(port) < 65_536
        if not (equals and colon and host and is_number and NODE.fullmatch(node)) or node in peers:
            raise ValueError(text)
        peers[node] = Peer(host, int(port))
    return peers
