"""White addresses: every form of RocketMQ 4.9, and the texts of its errors.

The expected values follow from RocketMQ 4.9.8: RemoteAddressStrategyFactory and AclUtils.
"""

import pytest

from skylarkmq.broker.access.plain_acl.addresses import address_of, pattern_of
from skylarkmq.broker.access.plain_acl.errors import AclError


@pytest.mark.parametrize(
    ("pattern", "permitted", "refused"),
    [
        ("1.2.3.4", ["1.2.3.4", "::ffff:1.2.3.4"], ["1.2.3.5", "::1"]),
        ("*", ["1.2.3.4", "::1"], []),
        ("*.*.*.*", ["1.2.3.4", "::1"], []),
        ("*:*:*:*:*:*:*:*", ["1.2.3.4", "::1"], []),
        ("", [], ["1.2.3.4", "::1"]),
        ("  ", [], ["1.2.3.4", "::1"]),
        ("1.2.*.*", ["1.2.0.0", "1.2.255.255"], ["1.3.0.0", "::1"]),
        ("1.2.3.*", ["1.2.3.0", "1.2.3.255"], ["1.2.4.0", "11.2.3.4"]),
        ("1.*.*.*", ["1.0.0.0", "1.255.3.4"], ["2.0.0.0"]),
        ("1.2.3-9.*", ["1.2.3.0", "1.2.9.255"], ["1.2.2.1", "1.2.10.1"]),
        ("1.2.3.5-7", ["1.2.3.5", "1.2.3.7"], ["1.2.3.4", "1.2.3.8"]),
        ("1.2-4.*.*", ["1.2.9.9", "1.4.9.9"], ["1.5.9.9", "1.1.9.9"]),
        ("1.2.*.7", ["1.2.3.7", "1.2.3.8"], ["1.3.3.7"]),
        ("1.2.3-9.7", ["1.2.3.8"], ["1.2.2.7"]),
        ("1.2. 3-9 .*", ["1.2.5.1"], ["1.2.2.1"]),
        ("1.2.3.0-0", ["1.2.3.0"], ["1.2.3.1"]),
        ("1.2.3.{4,5}", ["1.2.3.4", "1.2.3.5"], ["1.2.3.6"]),
        ("1.2.3.{4}", ["1.2.3.4"], ["1.2.3.5"]),
        ("1.2.3.4,1.2.3.5", ["1.2.3.4", "1.2.3.5"], ["1.2.3.6"]),
        ("1.2.3.4,,", ["1.2.3.4"], ["1.2.3.5"]),
        ("1.2.3.4,2001:db8::1", ["1.2.3.4", "2001:DB8:0:0:0:0:0:1"], ["2001:db8::2"]),
        ("2001:db8::1", ["2001:db8::1", "2001:0DB8:0:0::1"], ["2001:db8::2", "1.2.3.4"]),
        ("2001:db8::{1,a}", ["2001:db8::1", "2001:db8::A"], ["2001:db8::2"]),
        ("2001:db8::5-9", ["2001:db8:0:5::", "2001:db8:0:9::1"], ["2001:db8::5", "2001:db8:0:a::"]),
        ("2001:db8::1:5-9", ["2001:db8::1:5", "2001:db8::1:9"], ["2001:db8::1:4", "2001:db8::1:a"]),
        ("2001:db8::*", ["2001:db8::", "2001:db8:0:7::1"], ["2001:db9::"]),
        ("2::ac5:78:1-200:*", ["2::ac5:78:1:0", "2::ac5:78:200:ffff"], ["2::ac5:78:201:0", "2::ac5:79:1:0"]),
        ("2::ac5:78:1-200", ["2::ac5:78:1", "2::ac5:78:200"], ["2::ac5:78:201", "2::ac5:78:0"]),
        ("5::7:6:1-200:*", ["5::7:6:1:7"], ["5::7:6:201:7"]),
        ("1:2:*", ["1:2:3::", "1:2::9"], ["1:3::"]),
    ],
)
def test_a_pattern_permits_its_addresses_only(pattern: str, permitted: list[str], refused: list[str]) -> None:
    """As RocketMQ compares them; positions after the first range are not compared."""
    matches = pattern_of(pattern)
    assert [host for host in permitted if not matches(address_of(host))] == []
    assert [host for host in refused if matches(address_of(host))] == []


def test_no_pattern_but_every_address_permits_a_host_without_an_address() -> None:
    """A connection whose peer has no IP address matches neither a range nor a list."""
    hosts = [pattern for pattern in ("", "1.2.3.4", "1.*.*.*", "1.2.3.{4,5}", "1::*") if pattern_of(pattern)(())]
    assert hosts == []
    assert pattern_of("*")(address_of("a-host"))


ONE = "Netaddress examine Exception netaddress is "
SCOPE = "Netaddress examine scope Exception netaddress is "
RANGE = "RangeRemoteAddressStrategy netaddress examine scope Exception "
MULTIPLE = "MultipleRemoteAddressStrategy "


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("a-host", SCOPE + "a-host"),
        ("host", ONE + "host"),
        ("1.2.3", ONE + "1.2.3"),
        ("1.2.3.256", ONE + "1.2.3.256"),
        ("1.2.3.04", ONE + "1.2.3.04"),
        ("fe80::1%eth0", ONE + "fe80::1%eth0"),
        ("1.2.3.4, 1.2.3.5", ONE + " 1.2.3.5"),
        ("1.2.3.4,1.2.3.*", ONE + "1.2.3.*"),
        ("1.2.*", SCOPE + "1.2.*"),
        ("*.2.3.4", SCOPE + "*.2.3.4"),
        ("1-3.2.3.4", SCOPE + "1-3.2.3.4"),
        ("1.2.3*.4", SCOPE + "1.2.3*.4"),
        ("1.256.3.*", SCOPE + "1.256.3.*"),
        ("1.x.3.*", SCOPE + "1.x.3.*"),
        ("1.2.3.-5", RANGE + "value -5 "),
        ("1.2.3.5-", RANGE + "value 5- "),
        ("1.2.3.a-b", RANGE + "value a-b "),
        ("1.2.9-3.*", RANGE + "start is 9 , end is 3"),
        ("1.2.3.0-256", RANGE + "start is 0 , end is 256"),
        ("1.2.{3,4}", MULTIPLE + "has got a/some wrong format IP(s) "),
        ("1.2.3.4}", MULTIPLE + "netaddress examine scope Exception netaddress"),
        ("1::4}", MULTIPLE + "netaddress examine scope Exception netaddress"),
        ("1.2.3.{4,300}", ONE + "1.2.3.300"),
        ("1::*:2", SCOPE + "1::*:2"),
        ("1::1-2:3", SCOPE + "1::1-2:3"),
        ("::*", SCOPE + "::*"),
        ("::1-5", SCOPE + "::1-5"),
        ("1::9-3", RANGE + "start is 9 , end is 3"),
        ("1:2:3:4:5:6:7:8:*", SCOPE + "1:2:3:4:5:6:7:8:*"),
        ("12345::*", SCOPE + "12345::*"),
    ],
)
def test_another_format_is_an_error(pattern: str, text: str) -> None:
    """With RocketMQ's text, where RocketMQ has one of its own."""
    with pytest.raises(AclError) as raised:
        pattern_of(pattern)
    assert str(raised.value) == text
