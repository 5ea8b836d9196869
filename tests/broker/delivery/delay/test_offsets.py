"""The progress of delivery of delay levels, and which part of it is saved."""

import json
from pathlib import Path

from skylarkmq.broker.delivery.delay.offsets import DelayOffsetTable
from skylarkmq.broker.metadata.saver import Saver
from skylarkmq.protocol.bodies.offsets import DelayOffsets
from tests.harness.stores import Clock


def table(interval_ms: int = 10_000) -> DelayOffsetTable:
    return DelayOffsetTable(interval_ms, Clock(1_000))


def test_a_new_store_begins_at_0() -> None:
    """Without a file there are no offsets."""
    offsets = table()
    offsets.load(None)
    assert (offsets.next_of(1), offsets.encode()) == (
        0,
        b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"offsetTable":{}}',
    )


def test_files_of_both_versions_of_rocketmq_are_read() -> None:
    """4.9 writes no version; level numbers have no quotes."""
    offsets = table()
    offsets.load(b'{\n\t"offsetTable":{1:3,2:1,3:2\n\t}\n}')
    assert dict(offsets.table()) == {1: 3, 2: 1, 3: 2}
    offsets.load(b'{"dataVersion":{"counter":5,"stateVersion":0,"timestamp":9},"offsetTable":{17:4}}')
    assert (dict(offsets.table()), offsets.version.counter) == ({17: 4}, 5)


def test_the_file_has_rocketmqs_format() -> None:
    """Level numbers without quotes, in order, under a new version."""
    offsets = table()
    for level in (10, 2):
        offsets.advance(level, level * 3, 100)
    offsets.settle(100)
    text = offsets.encode()
    assert text == b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1000},"offsetTable":{2:6,10:30}}'
    assert offsets.encode() == text
    assert DelayOffsets.decode(text).offset_table == {2: 6, 10: 30}


def test_the_file_contains_only_flushed_progress() -> None:
    """Deliveries after the flushed end are saved later; GET_ALL_DELAY_OFFSET (45) returns current offsets."""
    offsets = table()
    offsets.advance(1, 1, 100)
    offsets.advance(2, 5, 150)
    offsets.advance(1, 3, 200)
    for flushed, settled in ((99, {}), (150, {1: 1, 2: 5}), (199, {1: 1, 2: 5}), (200, {1: 3, 2: 5})):
        offsets.settle(flushed)
        assert offsets.statistics().settled == settled
    assert offsets.statistics().unsettled == 0
    offsets.advance(1, 4, 300)
    assert DelayOffsets.decode(offsets.encode_now()).offset_table == {1: 4, 2: 5}
    assert DelayOffsets.decode(offsets.encode()).offset_table == {1: 3, 2: 5}
    assert repr(offsets) == "<DelayOffsetTable {1: 4, 2: 5} unsettled=1>"


def test_offsets_are_saved_once_per_interval() -> None:
    """As long as offsets change."""
    offsets = table(interval_ms=100)
    asked: list[int] = []
    offsets.on_change(lambda: asked.append(1))
    offsets.step(0, 1_000)
    assert not asked
    offsets.advance(1, 1, 10)
    offsets.step(50, 1_000)
    offsets.advance(1, 2, 10)
    offsets.step(149, 1_000)
    assert len(asked) == 1
    offsets.step(150, 1_000)
    offsets.step(500, 1_000)
    assert len(asked) == 2
    offsets.save_every(1_000)
    offsets.advance(1, 3, 10)
    offsets.step(600, 1_000)
    offsets.advance(1, 4, 10)
    offsets.step(1_599, 1_000)
    assert len(asked) == 3
    offsets.step(1_600, 1_000)
    assert len(asked) == 4


async def test_a_saver_stores_the_table(tmp_path: Path) -> None:
    """As any other table, through a restart."""
    path = tmp_path / "config" / "delayOffset.json"
    offsets = table()
    saver = Saver.open(offsets, path, DelayOffsets.decode)
    offsets.advance(3, 7, 10)
    offsets.step(10, 10)
    await saver.close()
    again = table()
    await Saver.open(again, path, DelayOffsets.decode).close()
    assert (again.next_of(3), again.version.counter) == (7, 1)
    assert json.loads(path.read_bytes().replace(b"{3:", b'{"3":'))["offsetTable"] == {"3": 7}
