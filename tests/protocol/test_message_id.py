"""Message ids: the bytes of the worked examples in docs/reference/disk.md, and uniqueness."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylarkmq.protocol.message_id import (
    UniqueIds,
    decode_host,
    decode_offset_id,
    encode_host,
    encode_offset_id,
    encode_offset_ids,
)

NOW_MS = 1_700_000_000_000  # 2023-11-14, 1_203_200_000 ms after the start of that month
PORTS = st.integers(-(2**31), 2**31 - 1)
OFFSETS = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("ip", "port", "expected"),
    [
        ("192.168.1.10", 34567, "c0a8010a00008707"),
        ("10.0.0.1", 10911, "0a00000100002a9f"),
        ("::1", 10911, "0000000000000000000000000000000100002a9f"),
        ("::ffff:10.0.0.1", 10911, "0a00000100002a9f"),
        ("fe80::1%eth0", 1, "fe80000000000000000000000000000100000001"),
    ],
)
def test_host_bytes(ip: str, port: int, expected: str) -> None:
    """A host is the address and an int32 port; an IPv4-mapped IPv6 address becomes IPv4."""
    assert encode_host(ip, port).hex() == expected


@given(st.ip_addresses(), PORTS)
def test_hosts_round_trip(address: object, port: int) -> None:
    """The decoded form of any address and port encodes to the same bytes."""
    host = encode_host(str(address), port)
    assert encode_host(*decode_host(host)) == host


@given(st.binary(max_size=40).filter(lambda raw: len(raw) not in (8, 20)))
def test_hosts_of_other_lengths_are_rejected(raw: bytes) -> None:
    """A host of a length other than 8 or 20 raises ValueError."""
    with pytest.raises(ValueError, match="8 or 20 bytes"):
        decode_host(raw)


def test_offset_id_of_the_worked_example() -> None:
    """The id of the worked example has its digits, and decodes to its fields."""
    offset_id = encode_offset_id(encode_host("10.0.0.1", 10911), 4096)
    assert offset_id == "0A00000100002A9F0000000000001000"
    assert decode_offset_id(offset_id) == ("10.0.0.1", 10911, 4096)


def test_offset_id_of_an_ipv6_host() -> None:
    """The id for an IPv6 store host has 56 digits."""
    offset_id = encode_offset_id(encode_host("2001:db8::7", 10911), 1)
    assert len(offset_id) == 56
    assert decode_offset_id(offset_id) == ("2001:db8::7", 10911, 1)


@given(st.ip_addresses(v=4), PORTS, OFFSETS)
def test_offset_ids_round_trip(address: object, port: int, offset: int) -> None:
    """Any host and offset are decoded from their id."""
    assert decode_offset_id(encode_offset_id(encode_host(str(address), port), offset)) == (str(address), port, offset)


@given(st.ip_addresses(), PORTS, st.lists(st.integers(0, 2**63 - 1)))
def test_offset_ids_of_one_host_are_joined(address: object, port: int, offsets: list[int]) -> None:
    """The ids of several offsets are the same together as one by one."""
    host = encode_host(str(address), port)
    assert encode_offset_ids(host, offsets) == ",".join(encode_offset_id(host, offset) for offset in offsets)


@given(st.text() | st.text("0123456789ABCDEFG ", min_size=32, max_size=32))
def test_other_texts_are_rejected_as_offset_ids(text: str) -> None:
    """Any text decodes or raises ValueError."""
    try:
        ip, port, offset = decode_offset_id(text)
    except ValueError:
        return
    assert encode_offset_id(encode_host(ip, port), offset) == text.upper() or len(text) == 56


def test_unique_id_fields() -> None:
    """A unique id is ip, pid, salt, ms of the month, counter."""
    ids = UniqueIds("192.168.1.10", pid=0x1234, salt=0xDEADBEEF)
    assert ids.next(NOW_MS) == f"C0A8010A1234DEADBEEF{1_203_200_000:08X}0001"
    assert ids.next(NOW_MS + 1)[20:] == f"{1_203_200_001:08X}0002"
    assert len(UniqueIds("::1", 1, 1).next(NOW_MS)) == 56


def test_unique_ids_do_not_repeat_at_the_end_of_a_month() -> None:
    """Ids differ within a millisecond, and at the end of a year, where the time in them restarts."""
    ids = UniqueIds("10.0.0.1", 1, 1)
    new_year = 1_704_067_200_000
    made = [ids.next(now) for now in (new_year - 1, new_year - 1, new_year, new_year + 1) for _ in range(1000)]
    assert len(set(made)) == len(made)
    assert made[2000][20:28] == "00000000"
    assert made[3000][20:28] == "00000001"


def test_unique_ids_wrap_their_counter() -> None:
    """After 65,536 ids the counter restarts; the time keeps the ids distinct."""
    ids = UniqueIds("10.0.0.1", 1, 1)
    first = ids.next(NOW_MS)
    for _ in range(65_535):
        ids.next(NOW_MS)
    assert ids.next(NOW_MS) == first
    assert ids.next(NOW_MS + 1) != first


@given(st.integers(0, 4_000_000_000_000))
def test_unique_ids_have_the_same_length_at_any_time(now_ms: int) -> None:
    """The length is the same for any time."""
    assert len(UniqueIds("10.0.0.1", 1, 1).next(now_ms)) == 32
