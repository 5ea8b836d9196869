"""Compares the stores of a replicated group after both brokers have stopped."""

import struct
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Final

from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.protocol.bodies.topic import TopicConfigSerializeWrapper
from skylarkmq.protocol.codes import is_reserved_topic
from tests.harness.store_check import assert_consistent
from tests.harness.stores import config_of
from tests.interop.replication_nodes import SIZES

UNIT: Final = struct.Struct(">qiq")
FILLER: Final = 0x7FFFFFFF
MAX_TAGS_HASH: Final = 2**31 - 1


def compare(master: Path, slave: Path, ours: Path, end: int) -> None:
    """Raise AssertionError if the log up to `end` or the queues differ, or `ours`, one of the two, is damaged."""
    compare_logs(master, slave, end)
    topics = TopicConfigSerializeWrapper.decode((ours / "config" / "topics.json").read_bytes()).topic_config_table
    units, other = dict(queue_units(master, topics)), dict(queue_units(slave, topics))
    assert units.keys() == other.keys(), units.keys() ^ other.keys()
    for queue, expected in units.items():
        offsets = expected.keys() | other[queue].keys()
        different = [at for at in offsets if differ(expected.get(at), other[queue].get(at))]
        assert not different, f"{queue}: {len(different)} units differ, first {min(different)}"
    assert_consistent(ours, store_config(ours), may_begin_again=True)


def differ(unit: bytes | None, other: bytes | None) -> bool:
    """Return whether two units differ.

    RocketMQ 4.9 recovers after a kill before it has parsed its delay levels. So units of delayed messages that it
    restores then have the hash of the tag in place of the delivery time, and those messages are delivered at once.
    """
    if unit == other or unit is None or other is None:
        return unit != other
    a, b = UNIT.unpack(unit), UNIT.unpack(other)
    return a[:2] != b[:2] or min(a[2], b[2]) > MAX_TAGS_HASH or max(a[2], b[2]) <= MAX_TAGS_HASH


def compare_logs(master: Path, slave: Path, end: int) -> None:
    """Raise AssertionError unless both logs have the same bytes from the copy's begin to `end`."""
    size = SIZES["mappedFileSizeCommitLog"]
    for copy in sorted((slave / "commitlog").iterdir()):
        begin = int(copy.name)
        count = min(max(end - begin, 0), size)
        original = (master / "commitlog" / copy.name).read_bytes()[:count]
        assert original == copy.read_bytes()[:count], f"{copy.name} differs"


def queue_units(root: Path, topics: Container[str]) -> Iterator[tuple[tuple[str, int], dict[int, bytes]]]:
    """Yield the units of each queue that has any, by offset; only of RocketMQ's own topics and of `topics`.

    A start of RocketMQ after a kill makes the queues of deleted topics again, from the log."""
    for topic in sorted((root / "consumequeue").iterdir()):
        for queue in topic.iterdir() if topic.name in topics or is_reserved_topic(topic.name) else ():
            units = dict(units_of(queue))
            if units:
                yield (topic.name, int(queue.name)), units


def units_of(queue: Path) -> Iterator[tuple[int, bytes]]:
    for file in sorted(queue.iterdir()):
        data = file.read_bytes()
        for at in range(0, len(data) - UNIT.size + 1, UNIT.size):
            _, size, _ = UNIT.unpack_from(data, at)
            if 0 < size < FILLER:
                yield (int(file.name) + at) // UNIT.size, data[at : at + UNIT.size]


def store_config(root: Path) -> StoreConfig:
    """Return the settings that open such a store."""
    return config_of(
        root,
        mapped_file_size_commit_log=SIZES["mappedFileSizeCommitLog"],
        mapped_file_size_consume_queue=SIZES["mappedFileSizeConsumeQueue"],
        max_hash_slot_num=SIZES["maxHashSlotNum"],
        max_index_num=SIZES["maxIndexNum"],
    )
