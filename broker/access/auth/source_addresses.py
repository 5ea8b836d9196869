"""Source addresses of policies: IP addresses and CIDR networks, of both families.

Addresses are compared as addresses, not as texts: `::1` also matches its long form, and an IPv4 peer of an IPv6 socket
matches IPv4 networks.
"""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

from skylarkmq.broker.base.address_ranges import Network, is_within


def is_valid(text: str) -> bool:
    """Return whether a text is an address or a network."""
    return _network(text) is not None


def contains(sources: Iterable[str], host: str) -> bool:
    """Return whether one of the sources contains the address of a peer."""
    return is_within(host, (network for source in sources if (network := _network(source)) is not None))


@lru_cache(maxsize=1024)
def _network(text: str) -> Network | None:
    """Return the network of a text; an address is a network of one address. None if the text is neither."""
    if text.count("/") == 1 and not text.rpartition("/")[2].isdecimal():
        return None  # a netmask; RocketMQ has prefix lengths only
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
