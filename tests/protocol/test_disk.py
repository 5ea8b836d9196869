"""Queue units, index, checkpoint and file names: the bytes in docs/reference/disk.md, "Worked examples"."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylarkmq.protocol.disk import (
    FILLER_UNIT,
    UNIT,
    Checkpoint,
    IndexHeader,
    IndexLayout,
    index_hash,
    index_keys,
    offset_file_name,
    parse_index_file_name,
    parse_offset_file_name,
)
from skylarkmq.protocol.message import decode_properties


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ((4096, 166, 2598919), "0000000000001000000000a6000000000027a807"),
        ((4096, 100, -367331910), "000000000000100000000064ffffffffea1af5ba"),
        ((8192, 200, 1700000000123 + 10_000), "0000000000002000000000c80000018bcfe58f8b"),
    ],
)
def test_a_unit_has_20_bytes(fields: tuple[int, int, int], expected: str) -> None:
    """A unit is physical offset, size and tags code in 20 bytes."""
    assert UNIT.pack(*fields).hex() == expected
    assert UNIT.unpack(bytes.fromhex(expected)) == fields


def test_a_filler_unit_is_recognized_by_its_size() -> None:
    """A filler unit is recognized by its size."""
    assert FILLER_UNIT.hex() == "00000000000000007fffffff0000000000000000"


def test_a_checkpoint_has_five_numbers() -> None:
    """A checkpoint is five numbers at the beginning of 4096 bytes."""
    checkpoint = Checkpoint(1700000000123, 1700000000100, 1699999990000, 0, 4096)
    data = checkpoint.encode()
    assert data[:40].hex() == "0000018bcfe5687b0000018bcfe568640000018bcfe540f000000000000000000000000000001000"
    assert len(data) == 4096
    assert not any(data[40:])
    assert Checkpoint.decode(data) == checkpoint


@pytest.mark.parametrize("data", [b"", b"\0" * 10])
def test_short_checkpoint_reads_as_zeros(data: bytes) -> None:
    """Missing bytes of an empty or short checkpoint file count as zeros."""
    assert Checkpoint.decode(data) == Checkpoint()


def test_a_segment_is_named_by_its_first_offset() -> None:
    """A segment's name is its first offset in 20 digits; no other name is a segment."""
    assert offset_file_name(1073741824) == "00000000001073741824"
    assert parse_offset_file_name("00000000001073741824") == 1073741824
    for name in ("0", "0000000000107374182x", "00000000001073741824.tmp", "٠" * 20):
        assert parse_offset_file_name(name) is None


@pytest.mark.parametrize(
    ("properties", "keys"),
    [
        ("KEYS\x01k1\x02UNIQ_KEY\x01U\x02TAGS\x01a\x02", ["U", "k1"]),
        ("TAGS\x01a\x02UNIQ_KEY\x01U\x02KEYS\x01k1 k2  k1", ["U", "k1", "k2", "k1"]),
        ("UNIQ_KEY\x01U\x02TAGS\x01a\x02", ["U"]),
        ("UNIQ_KEY\x01U", ["U"]),
        ("KEYS\x01k1", ["k1"]),
        ("KEYS\x01 \x02", []),
        ("KEYS\x01\x02UNIQ_KEY\x01\x02", []),
        ("KEYS\x01old\x02KEYS\x01\x02", ["old"]),
        ("KEYS\x01old\x02KEYS\x01new\x02", ["new"]),
        ("MYKEYS\x01no\x02UNIQ_KEYS\x01no\x02A\x01KEYS\x01no\x02", []),
        ("KEYS\x01a\x01b\x02", ["a\x01b"]),
        ("KEYS\x01订单\x02", ["订单"]),
        ("", []),
    ],
)
def test_index_keys_are_the_unique_key_and_the_words_of_keys(properties: str, keys: list[str]) -> None:
    """The unique key comes first, then the words of KEYS, in whatever order and form the properties are."""
    assert [key.decode() for key in index_keys(properties.encode())] == keys


@given(st.text("UNIQ_KEYS\x01\x02 a", max_size=40))
def test_index_keys_of_any_text_are_those_of_its_properties(properties: str) -> None:
    """The index keys of any property string are those of its decoded properties."""
    values = decode_properties(properties)
    pieces = filter(None, values.get("KEYS", "").split(" "))
    assert [key.decode() for key in index_keys(properties.encode())] == [
        *filter(None, [values.get("UNIQ_KEY")]),
        *pieces,
    ]


def test_index_layout_has_rocketmqs_sizes() -> None:
    """A file of RocketMQ's sizes, and its header of 40 bytes, in which a next item of 0 counts as 1."""
    layout = IndexLayout(5_000_000, 20_000_000)
    assert (layout.size, layout.slot_at(988410), layout.item_at(1)) == (420_000_040, 3953680, 20000060)
    header = IndexHeader(1700000000123, 1700000000123, 4096, 4096, 2, 3)
    assert header.encode().hex() == "0000018bcfe5687b0000018bcfe5687b000000000000100000000000000010000000000200000003"
    assert IndexHeader.decode(header.encode()) == header
    assert IndexHeader.decode(bytes(40)).next_item == 1


def test_index_hashes_are_not_negative() -> None:
    """Hashes are never negative; a file name is 17 digits."""
    assert index_hash("TopicTest#k1") == 2746024
    assert index_hash("TopicTest") == 1902610879
    assert index_hash("polygenelubricants") == 0
    assert parse_index_file_name("20261121010820050") == 20261121010820050
    for name in ("2026112101082005", "20261121010820050.tmp", "2026112101082005x"):
        assert parse_index_file_name(name) is None
