"""Source addresses of policies: IP addresses and CIDR networks, of both families.

Addresses are compared as addresses, not as texts: `::1` also matches its long form, and an IPv4 peer of an IPv6 socket
matches IPv4 networks.
"""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def is_valid(text: str) -> bool:
    """Return whether a text is an address or a network."""
    return _network(text) is not None


def contains(sources: Iterable[str], host: str) -> bool:
    """Return whether one of the sources contains the address of a peer."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any((network := _network(source)) is not None and address in network for source in sources)


@lru_cache(maxsize=1024)
def _network(text: str) -> Network | None:
    """Return the network of a text; an address is a network of one address. None if the text is neither."""
    if text.count("/") == 1 and not text.rpartition("/")[2].isdecimal():
        return None  # a netmask; RocketMQ has prefix lengths only
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
