"""Message ids and the host bytes inside them.

A *host* is an address in the form of the commit log: IPv4 (4 bytes) or IPv6 (16), then the port as int32: 8 or 20
bytes. An IPv4-mapped IPv6 address (`::ffff:10.0.0.1`, as a dual-stack listener reports it) is written as IPv4.

An *offset id* is the position of a record: store host + physical offset (int64), in upper-case hex, 32 or 56 digits.
Clients connect to the address in it, so it must be the advertised address.

A *unique id* (property UNIQ_KEY) identifies a message before it is stored: ip (4 or 16) + pid (2) + salt (4) + ms since
the start of the month in UTC (4) + counter (2), in upper-case hex, 32 or 56 digits. The counter wraps around. Ids
repeat only if one generator makes more than 65,536 of them within one millisecond.

Source: docs/reference/wire.md, "Message ids".
"""

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from ipaddress import IPv6Address, ip_address


def encode_host(ip: str, port: int) -> bytes:
    """Return 8 or 20 bytes. Raises ValueError if `ip` is not an address literal or `port` is not an int32."""
    return ip_bytes(ip) + port.to_bytes(4, "big", signed=True)


def decode_host(host: bytes | bytearray | memoryview) -> tuple[str, int]:
    """Return (ip, port) of 8 or 20 bytes. Raises ValueError for any other length."""
    port = int.from_bytes(host[-4:], "big", signed=True)
    if len(host) == 8:
        return f"{host[0]}.{host[1]}.{host[2]}.{host[3]}", port
    if len(host) == 20:
        return str(IPv6Address(bytes(host[:16]))), port
    raise ValueError(f"a host has 8 or 20 bytes, not {len(host)}")


@lru_cache(maxsize=4096)
def cached_host(host: bytes) -> tuple[str, int]:
    """Return the same as `decode_host`, from a cache: messages come from few hosts."""
    return decode_host(host)


def ip_bytes(ip: str) -> bytes:
    """Return the 4 or 16 bytes of an address literal, without its zone (`%eth0`). A mapped address becomes IPv4."""
    address = ip_address(ip)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.packed
    return address.packed


def encode_offset_id(host: bytes, physical_offset: int) -> str:
    """Return 32 hex digits for an IPv4 store host, 56 for an IPv6 host."""
    return f"{_hex(host)}{physical_offset & 0xFFFF_FFFF_FFFF_FFFF:016X}"


def encode_offset_ids(host: bytes, physical_offsets: Sequence[int]) -> str:
    """Return the offset ids of several records with the same store host, joined by commas."""
    count = len(physical_offsets)
    fields: list[bytes | int] = [host] * (2 * count)
    fields[1::2] = physical_offsets
    return _id_packer(len(host), count)(*fields).hex(",", len(host) + 8).upper()


@lru_cache
def _id_packer(host_size: int, count: int) -> Callable[..., bytes]:
    return struct.Struct(">" + f"{host_size}sq" * count).pack


def decode_offset_id(offset_id: str) -> tuple[str, int, int]:
    """Return (ip, port, physical offset). Raises ValueError if the text is not an offset id."""
    if len(offset_id) not in (32, 56):
        raise ValueError(f"an offset message id has 32 or 56 hex digits, not {len(offset_id)}")
    raw = bytes.fromhex(offset_id)
    if len(raw) * 2 != len(offset_id):
        raise ValueError(f"not an offset message id: {offset_id!r}")
    ip, port = decode_host(raw[:-8])
    return ip, port, int.from_bytes(raw[-8:], "big", signed=True)


class UniqueIds:
    """Makes unique ids for one process. Two generators of the same process need a different `salt`."""

    __slots__ = ("_counter", "_month_end_ms", "_month_start_ms", "_prefix")

    def __init__(self, ip: str, pid: int, salt: int) -> None:
        self._prefix = f"{ip_bytes(ip).hex().upper()}{pid & 0xFFFF:04X}{salt & 0xFFFF_FFFF:08X}"
        self._counter = 0
        self._month_start_ms = self._month_end_ms = 0

    def next(self, now_ms: int) -> str:
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._month_start_ms, self._month_end_ms = _month_around(now_ms)
        self._counter = counter = (self._counter + 1) & 0xFFFF
        return f"{self._prefix}{now_ms - self._month_start_ms:08X}{counter:04X}"

    def __repr__(self) -> str:
        return f"<UniqueIds prefix={self._prefix} counter={self._counter}>"


@lru_cache(maxsize=256)
def _hex(host: bytes) -> str:
    return host.hex().upper()


def _month_around(now_ms: int) -> tuple[int, int]:
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    start = datetime(now.year, now.month, 1, tzinfo=UTC)
    end = datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC)
    return int(start.timestamp()) * 1000, int(end.timestamp()) * 1000
