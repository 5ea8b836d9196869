"""The row of index files: gathered, rolled, searched, opened again."""

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
from skylarkmq.broker.store.running_flags import RunningFlag, RunningFlags
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.disk import IndexLayout, index_hash
from tests.harness.stores import Clock, TestDisk

TINY = IndexLayout(10, 8)
START = 1_700_000_000_000


class Said(NamedTuple):
    """A message as the index sees it."""

    topic: str
    properties: bytes
    sys_flag: int
    physical_offset: int
    store_timestamp: int
    keys: list[bytes] | None = None


def said(offset: int, keys: str = "", unique: str = "", topic: str = "T", flag: int = 0, after_ms: int = 0) -> Said:
    entries = {"UNIQ_KEY": unique, "TAGS": "a", "KEYS": keys}
    properties = "".join(f"{name}\x01{value}\x02" for name, value in entries.items() if value)
    return Said(topic, properties.encode(), flag, offset, START + after_ms)


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
        wanted = SearchCriteria(index_hash(f"{topic}#{key}"), limit, begin, end)
        return run_now(self.index.search(wanted, lambda fd, path, at, size: os.pread(fd, size, at)))

    def items(self) -> list[list[int]]:
        """Physical offsets of the items of each file."""
        self.index.put_waiting()
        return [[file.item(number)[1] for number in range(1, file.header.next_item)] for file in self.index.files]


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[IndexParts]:
    it = IndexParts(tmp_path)
    yield it
    it.index.close()


def test_what_a_message_is_found_by(parts: IndexParts) -> None:
    """Its unique key, and every piece of KEYS between single spaces."""
    parts.index.add([said(0, "a  b a", "U1"), said(100, "b", "U2", "other"), said(200, unique="U3")])
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
def test_transactions(parts: IndexParts, flag: int, is_found: bool) -> None:
    """Prepared messages are found, rolled back ones are not."""
    parts.index.add([said(0, "k", flag=flag)])
    assert bool(parts.find("k")) is is_found


def test_a_message_comes_once(parts: IndexParts) -> None:
    """Dispatching again what is in adds nothing, before and after a restart."""
    messages = [said(offset, "a b c", "U") for offset in (0, 100, 200)]
    parts.index.add(messages)
    before = parts.items()
    assert before == [[0, 0, 0, 0, 100, 100, 100], [100, 200, 200, 200, 200]]
    parts.index.add(messages)
    assert parts.items() == before
    parts.reopen()
    parts.index.add(messages[1:])
    assert parts.items() == before


def test_the_rest_of_a_split_message(parts: IndexParts) -> None:
    """When the file with a message's last keys is gone, these come again, and those in the file before do not."""
    messages = [said(offset, "a b", "U", after_ms=offset) for offset in (0, 100, 200)]
    parts.index.add(messages)
    assert parts.items() == [[0, 0, 0, 100, 100, 100, 200], [200, 200]]
    parts.reopen(trusted_to=START + 200)
    assert parts.items() == [[0, 0, 0, 100, 100, 100, 200]]
    parts.index.add(messages)
    assert parts.items() == [[0, 0, 0, 100, 100, 100, 200], [200, 200]]


@pytest.mark.parametrize(
    ("trusted_to", "kept"), [(START + 99, 0), (START + 200, 1), (START + 500, 2), (START + 999, 2)]
)
def test_what_a_crash_leaves_is_trusted_as_far_as_the_checkpoint_says(
    parts: IndexParts, trusted_to: int, kept: int
) -> None:
    """Full files up to that time stay; later ones and the unfinished one go."""
    parts.index.add([said(offset, "a b", "U", after_ms=offset) for offset in range(0, 600, 100)])
    assert [len(items) for items in parts.items()] == [7, 7, 4]
    parts.reopen(trusted_to)
    assert len(parts.items()) == kept


def test_files_of_one_millisecond(parts: IndexParts) -> None:
    """A second file that ends in the millisecond of the checkpoint was perhaps never synced."""
    parts.index.add([said(offset, "a b", "U") for offset in range(0, 600, 100)])
    parts.reopen(START)
    assert [len(items) for items in parts.items()] == [7]


def test_names(parts: IndexParts, tmp_path: Path) -> None:
    """A file is named after the local time, and behind the one before if the clock went back; others stay."""
    parts.index.add([said(0, " ".join("abcdefg"))])
    parts.items()
    parts.clock.now_ms -= 3_600_000
    parts.index.add([said(100, "h")])
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
def test_a_file_that_cannot_be(parts: IndexParts, tmp_path: Path, damage: str) -> None:
    """It goes, with all behind it: items stay in the order of the log."""
    parts.index.add([said(offset, "a b", "U") for offset in range(100, 900, 100)])
    assert len(parts.items()) == 4
    second = sorted((tmp_path / "index").iterdir())[1]
    if damage == "length":
        os.truncate(second, 100)
    else:
        at, data = {
            "header": (36, (1 << 20).to_bytes(4, "big")),
            "order": (16, bytes(8)),
            "begin": (23, b"\xff"),  # of fields of 8 bytes the last ones only, as a torn sector may have them
            "end": (31, b"\xff"),
        }[damage]
        with second.open("r+b") as file:
            file.seek(at)
            file.write(data)
    parts.reopen()
    assert len(parts.items()) == 1


def test_limits_of_a_search(parts: IndexParts) -> None:
    """The newest come first, as many as asked for, within the times asked for, which count in seconds."""
    parts.index.add([said(number, "k", after_ms=number * 1000) for number in range(20)])
    assert parts.find("k") == list(range(19, -1, -1))
    assert parts.find("k", limit=3) == [19, 18, 17]
    assert parts.find("k", limit=0) == parts.find("k", limit=-1) == []
    assert parts.find("k", begin=START + 5000, end=START + 8000) == [8, 7, 6, 5]
    assert parts.find("k", end=START - 1) == parts.find("k", begin=START + 20_000) == []


def test_a_damaged_chain_ends(parts: IndexParts, tmp_path: Path) -> None:
    """Items that lead to themselves, forward, or nowhere end the search."""
    parts.index.add([said(number, "k") for number in range(3)])
    parts.items()
    [path] = (tmp_path / "index").iterdir()
    for previous in (3, 2, 7, -1, 1 << 30):
        with path.open("r+b") as file:
            file.seek(TINY.item_at(2) + 16)
            file.write(previous.to_bytes(4, "big", signed=True))
        assert parts.find("k") == [2, 1]


def test_a_batch_leaves_when_it_is_whole(tmp_path: Path) -> None:
    """Keys wait until there are enough; without a loop `step` puts the rest."""
    parts = IndexParts(tmp_path, IndexLayout(100, 2_000))
    parts.index.add([said(number, unique=f"U{number}") for number in range(BATCH_KEYS - 1)])
    assert parts.index.waiting == BATCH_KEYS - 1
    parts.index.add([said(BATCH_KEYS, "k")])
    assert parts.index.waiting == 0
    parts.index.add([said(BATCH_KEYS + 1, "k")])
    parts.index.step()
    assert parts.index.waiting == 0
    assert parts.index.statistics().keys == BATCH_KEYS + 1
    parts.index.close()


def test_full_files_are_synced_behind_the_log(parts: IndexParts) -> None:
    """They are given to the flusher once, and not before the messages that they speak of are on disk."""
    parts.index.add([said(offset, "a b", "U") for offset in range(0, 900, 100)])
    assert len(parts.items()) == 4
    assert parts.index.take_full(200) == []
    assert parts.index.take_full(401) == parts.index.files[:2]
    assert parts.index.take_all(10_000) == parts.index.files[2:]
    assert parts.index.take_full(10_000) == []


def test_old_files_go_with_the_log(parts: IndexParts) -> None:
    """Those whose newest message is gone are removed, never the last one."""
    parts.index.add([said(offset, "a b", "U") for offset in range(0, 900, 100)])
    assert [items[-1] for items in parts.items()] == [200, 400, 600, 800]
    files = list(parts.index.files)
    assert parts.index.take_before(400) == files[:1]
    assert parts.index.take_before(10_000) == files[1:3]
    assert all(file.is_removed for file in files[:3])
    assert parts.find("U") == [800, 700]
    assert parts.index.last_update == (START, 800)


def test_three_failures_refuse_messages(parts: IndexParts) -> None:
    """One a second; what waits is put by the first attempt that succeeds, and messages are taken again."""

    def refuse(call: str, path: str) -> None:
        if "/index/" in path:
            raise OSError(28, "No space left on device")

    parts.disk.refuse = refuse
    parts.index.add([said(0, "k")])
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


@settings(deadline=None)
@given(STEPS, st.integers(1, 12), st.integers(2, 20))
def test_the_index_is_a_dict_of_lists(
    steps: Sequence[tuple[list[tuple[list[str], int, bool]], str]], slots: int, items: int
) -> None:
    """Whatever is added, rolled, repeated and opened again: a key leads to its messages, newest first."""
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
                messages.append(said(offset, " ".join(keys), flag=flag, after_ms=after_ms))
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


def test_rolling_in_the_middle_of_a_message(tmp_path: Path) -> None:
    """Of 20 items 19 are used: the seventh message of three keys has its first in one file, the others in the next."""
    parts = IndexParts(tmp_path, IndexLayout(100, 20))
    parts.index.add([said(number, "a b", "U") for number in range(1, 9)])
    first, second = parts.items()
    assert (len(first), first[-2:], second) == (19, [6, 7], [7, 7, 8, 8, 8])
    assert parts.find("U") == list(range(8, 0, -1))
    parts.index.close()
