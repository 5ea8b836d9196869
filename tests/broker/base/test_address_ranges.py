"""Ranges of IP addresses: which networks administrators have by default, and which addresses are in them."""

import pytest

from skylarkmq.broker.base.address_ranges import LOOPBACK, PRIVATE, default_networks, is_loopback, is_within


@pytest.mark.parametrize(
    ("bound", "has_private"),
    [
        ("127.0.0.1", False),
        ("::1", False),
        ("9.255.255.255", False),
        ("10.0.0.0", True),
        ("10.255.255.255", True),
        ("11.0.0.0", False),
        ("172.15.255.255", False),
        ("172.16.0.0", True),
        ("172.31.255.255", True),
        ("172.32.0.0", False),
        ("192.167.255.255", False),
        ("192.168.0.1", True),
        ("192.169.0.0", False),
        ("fbff::1", False),
        ("fc00::1", True),
        ("fdff::1", True),
        ("fe80::1", False),
        ("169.254.1.1", False),
        ("203.0.113.7", False),
        ("ns.example", False),
    ],
)
def test_private_networks_are_permitted_if_the_daemon_has_a_private_address(bound: str, has_private: bool) -> None:
    """RFC 1918 and fc00::/7, at their edges; link-local and public addresses permit the loopback only."""
    assert default_networks(bound) == (LOOPBACK + PRIVATE if has_private else LOOPBACK)


def test_an_address_may_be_written_in_several_ways() -> None:
    """An IPv4 address as IPv6, as sockets for both return it, and an address with its zone."""
    assert is_within("::ffff:10.1.2.3", PRIVATE)
    assert not is_within("::ffff:11.1.2.3", PRIVATE)
    assert is_within("fd00::1%eth0", PRIVATE)
    assert is_loopback("::ffff:127.0.0.1")


@pytest.mark.parametrize("text", ["", "localhost", "10.0.0", "10.0.0.0/8", "?"])
def test_a_text_that_is_no_address_is_in_no_network(text: str) -> None:
    """It is refused instead of guessed."""
    assert not is_within(text, LOOPBACK + PRIVATE)
