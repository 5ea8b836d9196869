"""Committed offsets: which are valid, what is saved, and when."""

from pathlib import Path

import pytest

from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable, OffsetsConfig
from skylarkmq.protocol.bodies.offsets import ConsumerOffsets
from tests.harness.stores import Clock, golden_manifest, unpack_golden


def table(data: bytes | None = None) -> ConsumerOffsetTable:
    offsets = ConsumerOffsetTable(OffsetsConfig(flush_consumer_offset_interval=5000), Clock())
    offsets.load(data)
    return offsets


@pytest.fixture
def offsets() -> ConsumerOffsetTable:
    return table()


def test_a_committed_offset_is_found_by_group_topic_and_queue(offsets: ConsumerOffsetTable) -> None:
    """Each has its own; without a commit it is None; an offset may decrease."""
    offsets.commit("g", "t", 0, 5)
    offsets.commit("g", "t", 1, 7)
    offsets.commit("g", "t", 0, 3)
    assert [offsets.committed("g", "t", queue_id) for queue_id in range(3)] == [3, 7, None]
    assert offsets.committed("g", "u", 0) is offsets.committed("h", "t", 0) is None


def test_a_negative_offset_is_not_stored(offsets: ConsumerOffsetTable) -> None:
    """-1 means "unknown": it neither adds an entry nor changes one."""
    offsets.commit("g", "t", 0, -1)
    assert offsets.committed("g", "t", 0) is None
    offsets.commit("g", "t", 0, 4)
    offsets.commit("g", "t", 0, -1)
    assert offsets.committed("g", "t", 0) == 4
    assert offsets.statistics().rows == 1


def test_commits_are_ignored_until_a_reset_is_taken(offsets: ConsumerOffsetTable) -> None:
    """In its queue only; it is saved as a committed offset, not as a reset; it is taken once."""
    offsets.commit("g", "t", 0, 9)
    offsets.reset("g", "t", 0, 4)
    offsets.commit("g", "t", 0, 9)
    offsets.commit("g", "t", 1, 2)
    assert [offsets.committed("g", "t", queue_id) for queue_id in range(2)] == [4, 2]
    assert ConsumerOffsets.decode(offsets.encode()).offset_table == {"t@g": {0: 4, 1: 2}}
    assert (offsets.is_reset("g", "t", 0), offsets.is_reset("g", "t", 1), offsets.is_reset("h", "t", 0)) == (
        True, False, False,
    )  # fmt: skip
    assert [offsets.take_reset("g", "t", queue_id) for queue_id in (1, 0, 0)] == [None, 4, None]
    offsets.commit("g", "t", 0, 9)
    assert (offsets.committed("g", "t", 0), offsets.statistics().resets) == (9, 0)


def test_resets_are_removed_with_their_group_and_topic(offsets: ConsumerOffsetTable) -> None:
    """And with no other."""
    for group, topic in (("g", "t"), ("h", "t"), ("h", "u")):
        offsets.reset(group, topic, 0, 1)
    offsets.remove_topic("u")
    offsets.remove_group("g")
    assert offsets.statistics().resets == 1
    assert offsets.take_reset("h", "t", 0) == 1


def test_pull_offsets_are_separate_and_not_saved(offsets: ConsumerOffsetTable) -> None:
    """The next pull offset of a group is stored in memory only."""
    offsets.note_pull("g", "t", 0, 9)
    assert (offsets.pulled("g", "t", 0), offsets.pulled("g", "t", 1), offsets.committed("g", "t", 0)) == (9, None, None)
    assert ConsumerOffsets.decode(offsets.encode()).offset_table == {}


def test_changed_offsets_are_saved_once_per_interval(offsets: ConsumerOffsetTable) -> None:
    """`step` requests a save after a change, at most every 5 s, and not when a commit repeats the known offset."""
    saves: list[int] = []
    offsets.on_change(lambda: saves.append(now_ms))
    for now_ms, offset in ((0, None), (1000, 1), (2000, 2), (5999, 3), (6000, 3), (11_000, 3), (20_000, 4)):
        if offset is not None:
            offsets.commit("g", "t", 0, offset)
        offsets.step(now_ms)
    assert saves == [1000, 6000, 20_000]


def test_the_file_contains_all_offsets_committed_before_the_encoding(offsets: ConsumerOffsetTable) -> None:
    """Numeric keys without quotes, in order; also rows that have not changed since the last encoding."""
    offsets.commit("g", "t", 10, 5)
    offsets.commit("g", "t", 2, 6)
    offsets.commit("h", 'q"', 0, 1)
    first = offsets.encode()
    assert b'"offsetTable":{' in first
    assert b'"t@g":{2:6,10:5}' in first
    offsets.commit("g", "t", 2, 7)
    again = table(offsets.encode())
    assert again.table() == offsets.table() == {"t@g": {10: 5, 2: 7}, 'q"@h': {0: 1}}
    assert again.version == offsets.version
    assert offsets.version.counter == 2


def test_an_unchanged_table_encodes_to_the_same_bytes(offsets: ConsumerOffsetTable) -> None:
    """So such a save changes nothing."""
    offsets.commit("g", "t", 0, 5)
    assert offsets.encode() == offsets.encode()


def test_offsets_are_removed_with_their_topic(offsets: ConsumerOffsetTable) -> None:
    """Of every group; topics with the same prefix stay, and so does the retry topic of a group with that name."""
    for topic in ("t", "t2", "%RETRY%t"):
        offsets.commit("g", topic, 0, 5)
        offsets.commit("h", topic, 0, 5)
    offsets.encode()
    offsets.commit("g", "t", 1, 5)
    offsets.note_pull("g", "t", 1, 9)
    offsets.remove_topic("t")
    assert offsets.pulled("g", "t", 1) is None
    assert set(offsets.table()) == {"t2@g", "t2@h", "%RETRY%t@g", "%RETRY%t@h"}
    assert table(offsets.encode()).table() == offsets.table()


def test_the_file_of_4_9_8_is_read_and_written_back(tmp_path: Path) -> None:
    """RocketMQ's own consumerOffset.json loads with every offset, and our encoding of it is equal."""
    data = (unpack_golden("4.9.8", tmp_path) / "config" / "consumerOffset.json").read_bytes()
    rows = golden_manifest("4.9.8")["config"]["consumerOffset.json"]["offsetTable"]
    expected = {key: {int(queue_id): offset for queue_id, offset in row.items()} for key, row in rows.items()}
    assert table(data).table() == table(table(data).encode()).table() == expected


def test_rows_are_found_by_group_and_by_topic() -> None:
    """Rows from the file and later ones, until the topic or the group is deleted."""
    it = table()
    it.load(b'{"offsetTable":{"A@g":{0:1},"B@x@g":{0:2}}}')
    it.commit("g", "C", 1, 5)
    it.commit("h", "A", 0, 1)
    assert it.topics_of("g") == ["A", "B@x", "C"]
    assert it.groups_of("A") == ["g", "h"]
    it.remove_topic("A")
    assert (it.topics_of("g"), it.topics_of("h"), it.groups_of("A")) == (["B@x", "C"], [], [])
    it.note_pull("g", "C", 0, 9)
    it.remove_group("g")
    assert (it.groups_of("C"), it.pulled("g", "C", 0), it.committed("g", "C", 1)) == ([], None, None)
    assert ConsumerOffsets.decode(it.encode()).offset_table == {}


def test_the_table_for_slaves_has_the_topics_of_each_group() -> None:
    """The response to GET_ALL_CONSUMER_OFFSET (43); readers of the file ignore the addition."""
    it = table()
    it.commit("g", "A", 0, 1)
    it.commit("g", "B", 0, 2)
    body = ConsumerOffsets.decode(it.encode_with_groups())
    assert body.group_topic_map == {"g": ["A", "B"]}
    assert body.offset_table == {"A@g": {0: 1}, "B@g": {0: 2}}
    assert ConsumerOffsets.decode(table().encode_with_groups()).offset_table == {}
