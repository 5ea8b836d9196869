"""One index file: the worked examples in docs/reference/disk.md, and equal bytes for single keys and batches."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.index.entries import Entries
from skylarkmq.broker.store.index.file import FEW_KEYS, IndexFile
from skylarkmq.broker.store.index.hashing import hash_keys, int64_array
from skylarkmq.protocol.disk import IndexHeader, IndexLayout, index_hash

FULL_SIZE = IndexLayout(5_000_000, 20_000_000)
SMALL = IndexLayout(10, 200)
UNIQ = b"TopicTest#C0A8010A0001000000000001"
K1 = b"TopicTest#k1"


@contextmanager
def new_file(path: Path, layout: IndexLayout = SMALL, before: IndexHeader | None = None) -> Iterator[IndexFile]:
    file = IndexFile.create(str(path), layout, before, Disk())
    try:
        yield file
    finally:
        file.close()


def put(file: IndexFile, keys: list[bytes], offsets: list[int], timestamps: list[int]) -> int:
    return file.put(Entries(hash_keys(keys), int64_array(offsets), int64_array(timestamps)))


def at(file: IndexFile, begin: int, size: int) -> str:
    return os.pread(file.fd, size, begin).hex(" ", 4)


def test_the_first_message_has_rocketmqs_bytes(tmp_path: Path) -> None:
    """Header, slots and items are at RocketMQ's positions; a later message with the same key links to the first."""
    with new_file(tmp_path / "index", FULL_SIZE) as file:
        put(file, [UNIQ, K1], [4096, 4096], [1700000000123] * 2)
        header = "0000018bcfe5687b0000018bcfe5687b000000000000100000000000000010000000000200000003"
        assert at(file, 0, 40).replace(" ", "") == header
        assert at(file, 3953680, 4) == "00000001"
        assert at(file, 10984136, 4) == "00000002"
        assert at(file, 20000060, 20) == "030a057a 00000000 00001000 00000000 00000000"
        assert at(file, 20000080, 20) == "0029e6a8 00000000 00001000 00000000 00000000"
        put(file, [K1], [9000], [1700000007123])
        assert at(file, 20000100, 20) == "0029e6a8 00000000 00002328 00000007 00000002"
        assert at(file, 10984136, 4) == "00000003"
        assert os.fstat(file.fd).st_size == 420_000_040
        assert os.fstat(file.fd).st_blocks * 512 < 64 << 20


@pytest.mark.parametrize("keys", [1, FEW_KEYS + 1])
def test_a_rolled_file_counts_seconds_from_the_previous_file(tmp_path: Path, keys: int) -> None:
    """The seconds of item 1 count from the end of the previous file, although the header then begins with its time."""
    before = IndexHeader(end_timestamp=1700000000000, end_offset=9000)
    with new_file(tmp_path / "index", FULL_SIZE, before) as file:
        put(file, [b"x"] * keys, [9500] * keys, [1700000007123] * keys)
        begin = "0000018bcfe583d30000018bcfe583d3000000000000251c000000000000251c00000001"
        assert at(file, 0, 36).replace(" ", "") == begin
        assert at(file, FULL_SIZE.item_at(1), 20) == "00000078 00000000 0000251c 00000007 00000000"
        if keys > 1:
            assert at(file, FULL_SIZE.item_at(2), 20) == "00000078 00000000 0000251c 00000000 00000001"


KEYS = st.lists(
    st.tuples(
        st.one_of(st.sampled_from(["a", "b", "polygenelubricants"]), st.text(max_size=80)),
        st.integers(0, 100_000),
    ),
    max_size=120,
)


@given(KEYS, st.integers(1, 12), st.sampled_from([0, 1_700_000_000_000]), st.data())
def test_a_batch_of_keys_writes_the_same_bytes_as_single_keys(
    tmp_path_factory: pytest.TempPathFactory, keys: list[tuple[str, int]], slots: int, time: int, data: st.DataObject
) -> None:
    """With any split into batches, and any shared slots, the file is the same."""
    layout = IndexLayout(slots, 100)
    before = IndexHeader(end_timestamp=time, end_offset=1)
    names = [key.encode("utf-8", "replace") for key, _ in keys]
    offsets = list(range(2, len(keys) + 2))
    times = [time + later for _, later in keys]
    directory = tmp_path_factory.mktemp("index")
    with new_file(directory / "one", layout, before) as one, new_file(directory / "many", layout, before) as many:
        taken = 0
        while taken < min(len(keys), 99):
            put(one, names[taken : taken + 1], offsets[taken : taken + 1], times[taken : taken + 1])
            taken += 1
        done = 0
        while done < taken:
            end = done + data.draw(st.integers(1, len(keys) - done))
            done += put(many, names[done:end], offsets[done:end], times[done:end])
        assert (done, one.is_full) == (taken, many.is_full)
        assert one.header == many.header
        assert (directory / "one").read_bytes() == (directory / "many").read_bytes()


@given(st.lists(st.one_of(st.text(max_size=70), st.text("az#0\0", max_size=300)), min_size=1, max_size=40))
def test_hashes_of_many_keys_equal_java_hashes(texts: list[str]) -> None:
    """For ASCII and other keys, short and long."""
    keys = [text.encode("utf-8", "replace") for text in texts]
    assert hash_keys(keys).tolist() == [index_hash(key.decode()) for key in keys]


def test_a_hash_without_absolute_value_is_0() -> None:
    """The smallest integer has no absolute value."""
    assert hash_keys([b"polygenelubricants", b"a"]).tolist() == [0, 97]


def test_invalid_slots_count_as_empty(tmp_path: Path) -> None:
    """A slot with the number of a future item, or a negative one, counts as empty, for single keys and batches."""
    for count in (1, FEW_KEYS + 2):
        with new_file(tmp_path / "index") as file:
            put(file, [b"a"], [1], [1])
            for slot in range(SMALL.slots):
                value = -5 if slot % 2 else 190
                os.pwrite(file.fd, value.to_bytes(4, "big", signed=True), SMALL.slot_at(slot))
            put(file, [b"%d" % number for number in range(count)], [2] * count, [1] * count)
            assert {file.item(number)[3] for number in range(2, count + 2)} <= {0, *range(2, count + 2)}


def test_a_full_file_accepts_no_keys(tmp_path: Path) -> None:
    """The remaining keys are left for the next file."""
    with new_file(tmp_path / "index") as file:
        assert put(file, [b"k"] * 300, [7] * 300, [9] * 300) == 199
        assert file.is_full
        assert file.header == IndexHeader(9, 9, 7, 7, 1, 200)


def test_a_reader_finishes_on_a_removed_file(tmp_path: Path) -> None:
    """The descriptor stays open as long as there is a reader."""
    with new_file(tmp_path / "index") as file:
        put(file, [b"k"], [7], [9])
        file.hold()
        file.remove()
        assert not (tmp_path / "index").exists()
        assert file.item(1)[1] == 7
        file.release()
        assert file.fd == -1
