"""The sequence of index files: keys are collected, put, rolled, searched, and opened again."""

import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skylarkmq.broker.store.index.index import BATCH_KEYS, Index
from skylarkmq.broker.store.index.search import SearchCriteria, run_now
from skylarkmq.broker.store.log.running_flags import RunningFlag, RunningFlags
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.disk import IndexLayout, index_hash
from tests.broker.store.index.matches import every_one
from tests.harness.rounds import rounds
from tests.harness.stores import Clock, TestDisk

TINY = IndexLayout(10, 8)
START = 1_700_000_000_000


class IndexedMessage(NamedTuple):
    """A message with the fields that the index reads."""

    topic: str
    properties: bytes
    sys_flag: int
    physical_offset: int
    store_timestamp: int
    keys: list[bytes] | None = None


def indexed_message(
    offset: int, keys: str = "", unique: str = "", topic: str = "T", flag: int = 0, after_ms: int = 0
) -> IndexedMessage:
    entries = {"UNIQ_KEY": unique, "TAGS": "a", "KEYS": keys}
    properties = "".join(f"{name}\x01{value}\x02" for name, value in entries.items() if value)
    return IndexedMessage(topic, properties.encode(), flag, offset, START + after_ms)


class IndexParts:
    """An index with its clock and disk."""

    def __init__(self, root: Path, layout: IndexLayout = TINY) -> None:
        self.clock = Clock(START)
        self.disk = TestDisk()
        self.flags = RunningFlags(lambda: None)
        self._root, self._layout = root, layout
        self.index = self._new()

    def _new(self) -> Index:
        return Index(self._root, self._layout, self.disk, self.clock, self.flags)

    def reopen(self, trusted_to: int | None = None) -> None:
        self.index.put_waiting()
        self.index.close()
        self.index = self._new()
        self.index.load(trusted_to=trusted_to)

    def find(self, key: str, topic: str = "T", limit: int = 99, begin: int = 0, end: int = 1 << 62) -> list[int]:
        criteria = SearchCriteria(index_hash(f"{topic}#{key}"), limit, begin, end)
        return run_now(self.index.search(criteria, lambda fd, path, at, size: os.pread(fd, size, at), every_one))

    def items(self) -> list[list[int]]:
        """Return the physical offsets of the items of each file."""
        self.index.put_waiting()
        return [[file.item(number)[1] for number in range(1, file.header.next_item)] for file in self.index.files]


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[IndexParts]:
    it = IndexParts(tmp_path)
    yield it
    it.index.close()


def test_a_message_is_found_by_unique_key_and_words_of_keys(parts: IndexParts) -> None:
    """By its unique key, and by each word of KEYS between single spaces."""
    parts.index.add(
        [
            indexed_message(0, "a  b a", "U1"),
            indexed_message(100, "b", "U2", "other"),
            indexed_message(200, unique="U3"),
        ]
    )
    assert parts.items() == [[0, 0, 0, 0, 100, 100, 200]]
    assert parts.find("U1") == [0]
    assert parts.find("a") == [0, 0]
    assert parts.find("b") == [0]
    assert parts.find("b", "other") == [100]
    assert parts.find("U3") == [200]
    assert parts.find("") == parts.find("TAGS") == []


@pytest.mark.parametrize(
    ("flag", "is_found"),
    [
        (0, True),
        (SysFlag.TRANSACTION_PREPARED, True),
        (SysFlag.TRANSACTION_COMMIT, True),
        (SysFlag.TRANSACTION_ROLLBACK, False),
    ],
)
def test_rolled_back_messages_are_not_indexed(parts: IndexParts, flag: int, is_found: bool) -> None:
    """Prepared messages are found, rolled-back ones are not."""
    parts.index.add([indexed_message(0, "k", flag=flag)])
    assert bool(parts.find("k")) is is_found


def test_a_message_is_indexed_once(parts: IndexParts) -> None:
    """Dispatching indexed messages again adds nothing, before and after a restart."""
    messages = [indexed_message(offset, "a b c", "U") for offset in (0, 100, 200)]
    parts.index.add(messages)
    before = parts.items()
    assert before == [[0, 0, 0, 0, 100, 100, 100], [100, 200, 200, 200, 200]]
    parts.index.add(messages)
    assert parts.items() == before
    parts.reopen()
    parts.index.add(messages[1:])
    assert parts.items() == before


def test_missing_keys_of_a_split_message_are_added(parts: IndexParts) -> None:
    """If the file with the last keys of a message is gone, these are added again; those in the file before are not."""
    messages = [indexed_message(offset, "a b", "U", after_ms=offset) for offset in (0, 100, 200)]
    parts.index.add(messages)
    assert parts.items() == [[0, 0, 0, 100, 100, 100, 200], [200, 200]]
    parts.reopen(trusted_to=START + 200)
    assert parts.items() == [[0, 0, 0, 100, 100, 100, 200]]
    parts.index.add(messages)
    assert parts.items() == [[0, 0, 0, 100, 100, 100, 200], [200, 200]]


@pytest.mark.parametrize(
    ("trusted_to", "kept"), [(START + 99, 0), (START + 200, 1), (START + 500, 2), (START + 999, 2)]
)
def test_after_a_crash_only_files_that_the_checkpoint_covers_are_kept(
    parts: IndexParts, trusted_to: int, kept: int
) -> None:
    """Full files up to that time stay; later ones and the incomplete one are removed."""
    parts.index.add([indexed_message(offset, "a b", "U", after_ms=offset) for offset in range(0, 600, 100)])
    assert [len(items) for items in parts.items()] == [7, 7, 4]
    parts.reopen(trusted_to)
    assert len(parts.items()) == kept


def test_a_second_file_of_the_same_millisecond_is_removed(parts: IndexParts) -> None:
    """A second file that ends in the millisecond of the checkpoint was possibly never synced."""
    parts.index.add([indexed_message(offset, "a b", "U") for offset in range(0, 600, 100)])
    parts.reopen(START)
    assert [len(items) for items in parts.items()] == [7]


def test_files_are_named_after_the_local_time(parts: IndexParts, tmp_path: Path) -> None:
    """After a clock was set back the name is one above the previous name; other files stay."""
    parts.index.add([indexed_message(0, " ".join("abcdefg"))])
    parts.items()
    parts.clock.now_ms -= 3_600_000
    parts.index.add([indexed_message(100, "h")])
    parts.items()
    first, second = sorted(os.listdir(tmp_path / "index"))
    assert len(first) == 17
    assert first.endswith("000")
    assert int(second) == int(first) + 1
    (tmp_path / "index" / "notes").write_text("mine")
    parts.reopen()
    assert [len(items) for items in parts.items()] == [7, 1]
    assert (tmp_path / "index" / "notes").exists()


@pytest.mark.parametrize("damage", ["length", "header", "order", "begin", "end"])
def test_an_invalid_file_is_removed_with_all_later_ones(parts: IndexParts, tmp_path: Path, damage: str) -> None:
    """Items stay in log order."""
    parts.index.add([indexed_message(offset, "a b", "U") for offset in range(100, 900, 100)])
    assert len(parts.items()) == 4
    second = sorted((tmp_path / "index").iterdir())[1]
    if damage == "length":
        os.truncate(second, 100)
    else:
        at, data = {
            "header": (36, (1 << 20).to_bytes(4, "big")),
            "order": (16, bytes(8)),
            "begin": (23, b"\xff"),  # only the last of the 8 bytes of a field, as in a torn sector
            "end": (31, b"\xff"),
        }[damage]
        with second.open("r+b") as file:
            file.seek(at)
            file.write(data)
    parts.reopen()
    assert len(parts.items()) == 1


def test_a_search_is_limited_by_count_and_time(parts: IndexParts) -> None:
    """The newest come first, up to the limit, within the given times, which count in seconds."""
    parts.index.add([indexed_message(number, "k", after_ms=number * 1000) for number in range(20)])
    assert parts.find("k") == list(range(19, -1, -1))
    assert parts.find("k", limit=3) == [19, 18, 17]
    assert parts.find("k", limit=0) == parts.find("k", limit=-1) == []
    assert parts.find("k", begin=START + 5000, end=START + 8000) == [8, 7, 6, 5]
    assert parts.find("k", end=START - 1) == parts.find("k", begin=START + 20_000) == []


def test_a_damaged_chain_ends_the_search(parts: IndexParts, tmp_path: Path) -> None:
    """Items that link to themselves, to later items, or outside end the search."""
    parts.index.add([indexed_message(number, "k") for number in range(3)])
    parts.items()
    [path] = (tmp_path / "index").iterdir()
    for previous in (3, 2, 7, -1, 1 << 30):
        with path.open("r+b") as file:
            file.seek(TINY.item_at(2) + 16)
            file.write(previous.to_bytes(4, "big", signed=True))
        assert parts.find("k") == [2, 1]


def test_keys_are_put_when_a_batch_is_complete(tmp_path: Path) -> None:
    """Keys wait for a complete batch; without a loop `step` puts the rest."""
    parts = IndexParts(tmp_path, IndexLayout(100, 2_000))
    parts.index.add([indexed_message(number, unique=f"U{number}") for number in range(BATCH_KEYS - 1)])
    assert parts.index.waiting == BATCH_KEYS - 1
    parts.index.add([indexed_message(BATCH_KEYS, "k")])
    assert parts.index.waiting == 0
    parts.index.add([indexed_message(BATCH_KEYS + 1, "k")])
    parts.index.step()
    assert parts.index.waiting == 0
    assert parts.index.statistics().keys == BATCH_KEYS + 1
    parts.index.close()


def test_full_files_are_synced_after_the_log(parts: IndexParts) -> None:
    """The flusher gets them once, and not before their messages are on disk."""
    parts.index.add([indexed_message(offset, "a b", "U") for offset in range(0, 900, 100)])
    assert len(parts.items()) == 4
    assert parts.index.take_full(200) == []
    assert parts.index.take_full(401) == parts.index.files[:2]
    assert parts.index.take_all(10_000) == parts.index.files[2:]
    assert parts.index.take_full(10_000) == []


def test_old_files_are_removed_with_the_log(parts: IndexParts) -> None:
    """Files whose newest message is deleted are removed, except for the last one."""
    parts.index.add([indexed_message(offset, "a b", "U") for offset in range(0, 900, 100)])
    assert [items[-1] for items in parts.items()] == [200, 400, 600, 800]
    files = list(parts.index.files)
    assert parts.index.take_before(400) == files[:1]
    assert parts.index.take_before(10_000) == files[1:3]
    assert all(file.is_removed for file in files[:3])
    assert parts.find("U") == [800, 700]
    assert parts.index.last_update == (START, 800)


def test_three_failures_reject_messages(parts: IndexParts) -> None:
    """There is one attempt a second; the first success puts the waiting keys, and messages are accepted again."""

    def refuse(call: str, path: str) -> None:
        if "/index/" in path:
            raise OSError(28, "No space left on device")

    parts.disk.refuse = refuse
    parts.index.add([indexed_message(0, "k")])
    for failures in (1, 2, 3):
        parts.index.step()
        parts.index.step()
        assert parts.index.statistics().failures == failures
        assert (RunningFlag.INDEX_ERROR in parts.flags) is (failures == 3)
        parts.clock.now_ms += 1000
    parts.disk.refuse = lambda call, path: None
    parts.index.step()
    assert RunningFlag.INDEX_ERROR not in parts.flags
    assert parts.find("k") == [0]


MESSAGES = st.lists(
    st.tuples(st.lists(st.sampled_from("abcdef"), max_size=4), st.integers(0, 3_000), st.booleans()), max_size=30
)
STEPS = st.lists(st.tuples(MESSAGES, st.sampled_from(["stay", "reopen", "again"])), max_size=8)


@settings(max_examples=rounds(100))
@given(STEPS, st.integers(1, 12), st.integers(2, 20))
def test_the_index_equals_a_dict_of_lists(
    steps: Sequence[tuple[list[tuple[list[str], int, bool]], str]], slots: int, items: int
) -> None:
    """With any sequence of adding, rolling, repeating and opening again, a key leads to its messages, newest first."""
    with tempfile.TemporaryDirectory() as directory:
        parts = IndexParts(Path(directory), IndexLayout(slots, items))
        model: defaultdict[str, list[int]] = defaultdict(list)
        offset, after_ms = 0, 0
        for batch, then in steps:
            messages = []
            for keys, pause, is_rolled_back in batch:
                offset += 10
                after_ms += pause
                flag = SysFlag.TRANSACTION_ROLLBACK if is_rolled_back else 0
                messages.append(indexed_message(offset, " ".join(keys), flag=flag, after_ms=after_ms))
                for key in keys if not is_rolled_back else ():
                    model[key].insert(0, offset)
            parts.index.add(messages)
            if then == "again":
                parts.index.add(messages[len(messages) // 2 :])
            if then == "reopen":
                parts.reopen()
            for key in "abcdef":
                assert parts.find(key, limit=1 << 20) == model[key]
        parts.index.close()


def test_keys_of_a_message_may_be_in_two_files(tmp_path: Path) -> None:
    """Of 20 items 19 are used: the seventh message of three keys has its first in one file, the others in the next."""
    parts = IndexParts(tmp_path, IndexLayout(100, 20))
    parts.index.add([indexed_message(number, "a b", "U") for number in range(1, 9)])
    first, second = parts.items()
    assert (len(first), first[-2:], second) == (19, [6, 7], [7, 7, 8, 8, 8])
    assert parts.find("U") == list(range(8, 0, -1))
    parts.index.close()
