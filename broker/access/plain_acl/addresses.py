"""White addresses: patterns of the addresses of clients.

    1.2.3.4, 2001:db8::1            one address
    *, *.*.*.*, *:*:*:*:*:*:*:*     every address
    1.2.*.*, 1.2.3-9.*              a range in one position of an IPv4 address
    2001::1:5-9, 2001::1:5-9:*      the same in the last or the next to last position of an IPv6 address
    1.2.3.{4,5}, 2001:db8::{4,5}    some values of the last position
    1.2.3.4,2001:db8::1             a list of addresses
    (blank)                         no address

As in RocketMQ, positions after the first range are not compared: 1.2.*.7 permits 1.2.3.4, too. `::` directly before a
range stands for a single 0: 2001::5-9 permits 2001:0:5::1. An IPv4 address that an IPv6 socket reports (::ffff:1.2.3.4)
counts as IPv4.

A pattern that RocketMQ accepts and that could never match, or fails each time it is compared, is an error here.

Source: docs/reference/behaviour.md, "Access control of RocketMQ 4.9".
"""

import ipaddress
import re
from collections.abc import Callable, Iterator
from typing import Final

from skylarkmq.broker.access.plain_acl.errors import AclError

Address = tuple[int, ...]
"""An address as numbers: 4 of an IPv4 address, 8 of an IPv6 address; none if a host is not an IP address."""

Pattern = Callable[[Address], bool]
"""Returns whether an address is permitted."""

EVERY: Final = frozenset(("*", "*.*.*.*", "*:*:*:*:*:*:*:*"))
V4_LENGTH: Final = 4
V6_LENGTH: Final = 8
V4_MOST: Final = 255
V6_MOST: Final = 0xFFFF
V4_BASE: Final = 10
V6_BASE: Final = 16
NUMBER: Final = {V4_BASE: re.compile("[0-9]{1,3}"), V6_BASE: re.compile("[0-9A-Fa-f]{1,4}")}
"""A number in one position, by its base."""


def no_address(_address: Address) -> bool:
    """Return False: the pattern of a blank text."""
    return False


def every_address(_address: Address) -> bool:
    """Return True: the pattern `*`."""
    return True


def address_of(host: str) -> Address:
    """Return the numbers of an IP address; none if the host is something else."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return ()
    if isinstance(address, ipaddress.IPv4Address):
        return tuple(address.packed)
    if address.ipv4_mapped is not None:
        return tuple(address.ipv4_mapped.packed)
    packed = address.packed
    return tuple(int.from_bytes(packed[at : at + 2]) for at in range(0, len(packed), 2))


def pattern_of(text: str | None) -> Pattern:
    """Return the pattern of a text. Raises AclError for another format."""
    if text is None or not text.strip():
        return no_address
    if text in EVERY:
        return every_address
    if text.endswith("}"):
        return frozenset(map(_single, _choices(text))).__contains__
    if "," in text:
        return frozenset(_single(part) for part in text.split(",") if part).__contains__
    if "*" in text or "-" in text:
        return _v6_range(text) if ":" in text else _v4_range(text)
    return frozenset((_single(text),)).__contains__


def _single(text: str) -> Address:
    address = address_of(text)
    if not address or "%" in text:
        raise AclError(f"Netaddress examine Exception netaddress is {text}")
    return address


def _choices(text: str) -> Iterator[str]:
    """Yield the addresses of 1.2.3.{4,5}."""
    separator = ":" if ":" in text else "."
    parts = [part for part in text.split(separator) if part]
    if separator == "." and len(parts) < V4_LENGTH:
        raise AclError("MultipleRemoteAddressStrategy has got a/some wrong format IP(s) ")
    if not parts[-1].startswith("{"):
        raise AclError("MultipleRemoteAddressStrategy netaddress examine scope Exception netaddress")
    head = text[: text.index("{")]
    return (head + value for value in parts[-1][1:-1].split(",") if value)


# --- ranges -----------------------------------------------------------------------------------------------------------


def _v4_range(text: str) -> Pattern:
    parts = [part.strip() for part in text.split(".") if part]
    at = next((at for at in range(1, len(parts)) if _is_range(parts[at])), None)
    if len(parts) != V4_LENGTH or at is None:
        raise _out_of_scope(text)
    low, high = _bounds(parts[at], V4_BASE, V4_MOST)
    head = tuple(_number(part, V4_BASE, V4_MOST, text) for part in parts[:at])
    return _range(head, low, high, V4_LENGTH)


def _v6_range(text: str) -> Pattern:
    has_asterisk, has_minus = "*" in text, "-" in text
    if has_asterisk and text.index("*") != len(text) - 1:
        raise _out_of_scope(text)
    ranges = 2 if has_asterisk and has_minus else 1
    head_text, *last = text.rsplit(":", ranges)
    groups = [group for group in text.split(":") if group]
    at = next((at for at in range(1, len(groups)) if _is_range(groups[at])), None)
    if at is None or len(last) != ranges or groups[at] != last[0]:
        raise _out_of_scope(text)
    low, high = _bounds(last[0], V6_BASE, V6_MOST)
    head = _expanded(head_text, V6_LENGTH - ranges, text)
    if len(head) >= V6_LENGTH:
        raise _out_of_scope(text)
    return _range(head, low, high, V6_LENGTH)


def _range(head: Address, low: int, high: int, length: int) -> Pattern:
    at = len(head)
    return lambda address: len(address) == length and address[:at] == head and low <= address[at] <= high


def _is_range(part: str) -> bool:
    return part == "*" or "-" in part


def _bounds(part: str, base: int, most: int) -> tuple[int, int]:
    if part == "*":
        return 0, most
    numbers = [number for number in part.split("-") if number]
    if part.startswith("-") or len(numbers) < 2 or not all(map(NUMBER[base].fullmatch, numbers[:2])):
        raise AclError(f"RangeRemoteAddressStrategy netaddress examine scope Exception value {part} ")
    low, high = int(numbers[0], base), int(numbers[1], base)
    if not low <= high <= most:
        raise AclError(f"RangeRemoteAddressStrategy netaddress examine scope Exception start is {low} , end is {high}")
    return low, high


def _expanded(head: str, length: int, text: str) -> Address:
    """Return the groups before a range; `::` stands for as many zeros as `length` groups need."""
    missing = length - head.count(":")
    if missing > 0:
        head = head.replace("::", ":" * (missing + 1))
    return tuple(_number(group or "0", V6_BASE, V6_MOST, text) for group in head.split(":"))


def _number(part: str, base: int, most: int, text: str) -> int:
    if not NUMBER[base].fullmatch(part) or int(part, base) > most:
        raise _out_of_scope(text)
    return int(part, base)


def _out_of_scope(text: str) -> AclError:
    return AclError(f"Netaddress examine scope Exception netaddress is {text}")
