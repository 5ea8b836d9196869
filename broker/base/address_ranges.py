"""Ranges of IP addresses: the loopback addresses, the private networks, and the networks of administrators.

Without `adminAllowedNetworks` the networks of administrators follow from the address that the daemon is bound to: the
loopback addresses always, and the private networks (RFC 1918 and fc00::/7) if that address is private. Link-local
addresses are not among them: any machine on the same wire can take one.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

Network: TypeAlias = IPv4Network | IPv6Network

LOOPBACK: Final[tuple[Network, ...]] = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
PRIVATE: Final[tuple[Network, ...]] = (
    ip_network("10.0.0.0/8"),
    ip_network("172.16.0.0/12"),
    ip_network("192.168.0.0/16"),
    ip_network("fc00::/7"),
)


def default_networks(bound: str) -> tuple[Network, ...]:
    """Return the networks of administrators of a daemon that is bound to this IP address."""
    return LOOPBACK + PRIVATE if is_within(bound, PRIVATE) else LOOPBACK


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only; False for a host name."""
    return is_within(host, LOOPBACK)


def is_within(host: str, networks: Iterable[Network]) -> bool:
    """Return whether an IP address is in one of the networks; a text that is no IP address is in none."""
    address = _address(host)
    return address is not None and any(address in network for network in networks)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """Return an address without its zone; an IPv4 address that is written as IPv6 as the IPv4 address."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address
