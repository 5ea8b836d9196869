"""The layouts of timer files."""

import pytest

from skylarkmq.protocol.message import java_hash
from skylarkmq.protocol.timers import CHECK_SIZE, DELETE, NORMAL, ROLL, SLOT, TimerCheck, TimerUnit, log_blank

W = 1_700_000_000_000
WINDOW_MS = 172_800_000


def test_a_unit_has_rocketmqs_bytes() -> None:
    """The first unit of its slot, and a rolled one; `decode` reads what `encode` returns."""
    unit = TimerUnit(-1, NORMAL, W, 10_000, 4096, 168, java_hash("TopicTest"))
    assert unit.encode().hex() == (
        "00000034ffffffffffffffff000000010000018bcfe56800000027100000000000001000000000a88e9876410000000000000000"
    )
    assert unit.slot_ms == W + 10_000
    rolled = TimerUnit(-1, NORMAL | ROLL, W, WINDOW_MS // 2, 6000, 168, java_hash("TopicTest"))
    assert rolled.encode().hex() == (
        "00000034ffffffffffffffff000000030000018bcfe5680005265c000000000000001770000000a88e9876410000000000000000"
    )
    assert [TimerUnit.decode(b"x" + one.encode(), 1) for one in (unit, rolled)] == [unit, rolled]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: bytes(52),
        lambda data: b"\0\0\0\x35" + data[4:],
        lambda data: data[:12] + b"\0\0\0\x10" + data[16:],
        lambda data: data[:12] + b"\0\0\0\0" + data[16:],
        lambda data: data[:36] + b"\xff" * 4 + data[40:],
        lambda data: data[:44] + b"\1" * 8,
    ],
)
def test_invalid_units_decode_to_none(damage: object) -> None:
    """Zeros, another length, other magics, a size below 0, a reserved field that is not 0."""
    data = TimerUnit(-1, DELETE | NORMAL, W, 10_000, 4096, 168, 7).encode()
    assert callable(damage)
    assert TimerUnit.decode(damage(data)) is None


def test_slot_blank_and_check() -> None:
    """The slot of that unit, the blank at the end of a file, the check file and a truncated one."""
    time = (W + 10_000) // 1000
    assert (time % 1_209_600, SLOT.pack(time, 0, 0, 1, 0).hex()) == (
        512_010,
        "000000006553f10a000000000000000000000000000000000000000100000000",
    )
    assert log_blank(68).hex() == "000000440000000000000000cbd43194"
    check = TimerCheck(1, 2, 3, 4, 5, 6, 7)
    assert len(check.encode()) == CHECK_SIZE
    assert TimerCheck.decode(check.encode()) == check
    assert TimerCheck.decode(check.encode()[:20]) == TimerCheck(1, 2)
