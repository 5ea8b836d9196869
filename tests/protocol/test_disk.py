"""Queue units, checkpoint and file names: bytes of docs/formats.md's worked examples."""

import pytest

from protocol.disk import FILLER_UNIT, UNIT, Checkpoint, offset_file_name, parse_offset_file_name


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ((4096, 166, 2598919), "0000000000001000000000a6000000000027a807"),
        ((4096, 100, -367331910), "000000000000100000000064ffffffffea1af5ba"),
        ((8192, 200, 1700000000123 + 10_000), "0000000000002000000000c80000018bcfe58f8b"),
    ],
)
def test_unit(fields: tuple[int, int, int], expected: str) -> None:
    """A unit is physical offset, size and tags code in 20 bytes."""
    assert UNIT.pack(*fields).hex() == expected
    assert UNIT.unpack(bytes.fromhex(expected)) == fields


def test_filler_unit() -> None:
    """A unit of nobody is known by its size."""
    assert FILLER_UNIT.hex() == "00000000000000007fffffff0000000000000000"


def test_checkpoint() -> None:
    """Five numbers at the head of 4096 bytes."""
    checkpoint = Checkpoint(1700000000123, 1700000000100, 1699999990000, 0, 4096)
    data = checkpoint.encode()
    assert data[:40].hex() == "0000018bcfe5687b0000018bcfe568640000018bcfe540f000000000000000000000000000001000"
    assert len(data) == 4096
    assert not any(data[40:])
    assert Checkpoint.decode(data) == checkpoint


@pytest.mark.parametrize("data", [b"", b"\0" * 10])
def test_short_checkpoint_reads_as_zeros(data: bytes) -> None:
    """A file that a cut left empty or short vouches for nothing."""
    assert Checkpoint.decode(data) == Checkpoint()


def test_file_names() -> None:
    """A segment's name is its first offset in 20 digits, and nothing else is a segment."""
    assert offset_file_name(1073741824) == "00000000001073741824"
    assert parse_offset_file_name("00000000001073741824") == 1073741824
    for name in ("0", "0000000000107374182x", "00000000001073741824.tmp", "٠" * 20):
        assert parse_offset_file_name(name) is None
