"""Whole records are never removed: a record that cannot continue its queue is skipped, and later ones keep offsets."""

import os
from pathlib import Path

import pytest

from skylarkmq.broker.store.fsck import Severity, check
from skylarkmq.broker.store.fsck.repair import repair
from skylarkmq.broker.store.fsck.sizes import Sizes
from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.broker.store.read.offset_by_time import Boundary
from skylarkmq.broker.store.read.queue_reads import GetStatus
from skylarkmq.protocol.disk import FILLER_UNIT, Checkpoint
from skylarkmq.protocol.record import QUEUE_OFFSET_AT
from tests.harness.store_check import findings_of
from tests.harness.stores import Clock, Opened, config_of, message, older_version, opened, records_of

TOPIC_AT = 88 + 200 + 1  # in a record of `filled`
QUEUE_ID_AT = 12
SIZE = 91 + 1 + 200
LOG = "commitlog/00000000000000000000"
QUEUE = "consumequeue/T/0/00000000000000000000"


def filled(root: Path, count: int) -> Opened:
    """Return a running store with `count` messages in one queue, 10 ms apart."""
    it = Opened(root)
    for number in range(count):
        it.clock.now_ms += 10
        it.put(message(b"%0200d" % number))
    return it


def numbers(it: Opened) -> list[int]:
    return [int(body) for body in it.bodies()]


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def snapshot(root: Path) -> dict[str, bytes]:
    files = [root / LOG, *(path for path in root.rglob("consumequeue/*/*/*") if path.is_file())]
    return {str(path): path.read_bytes() for path in files}


def problems_of(root: Path) -> list[str]:
    return [finding.what for finding in findings_of(root, config_of(root))]


def store_with_gap(root: Path) -> Opened:
    """Return a store after a crash in which message 4 of 10 has a wrong queue offset."""
    filled(root, 10).crash()
    overwrite(root / LOG, 4 * SIZE + QUEUE_OFFSET_AT, (7).to_bytes(8, "big"))
    return Opened(root)


def test_a_client_s_flags_do_not_end_the_log(tmp_path: Path) -> None:
    """A message with sysFlag 0x80 is stored like any other: a crash loses no message after it."""
    it = Opened(tmp_path, sync=False)
    it.put(message(b"%0200d" % 0), message(b"%0200d" % 1, sys_flag=0x80), message(b"%0200d" % 2, sys_flag=1 << 30 | 1))
    for number in range(3, 1_003):
        it.put(message(b"%0200d" % number))
    it.crash()
    with opened(tmp_path) as again:
        assert numbers(again) == list(range(1_003))
        assert again.recovered.skipped == 0
        flags = [record.sys_flag for record in records_of(again.store.get("T", 0, 0, 3))]
        assert flags == [0, 0, 1]


@pytest.mark.parametrize("is_cut", [False, True])
def test_records_of_older_versions_keep_their_offsets(tmp_path: Path, is_cut: bool) -> None:
    """A log with sysFlag 0x80 from an older version keeps all acknowledged messages, including that one."""
    it = Opened(tmp_path)
    it.put(message(b"%0200d" % 0))
    with older_version():
        it.put(message(b"%0200d" % 1))
    for number in range(2, 100):
        it.put(message(b"%0200d" % number))
    it.crash()
    if is_cut:
        for path in (tmp_path / QUEUE).parent.iterdir():
            path.unlink()
    again = Opened(tmp_path)
    assert numbers(again) == list(range(100))
    again.crash()
    before = snapshot(tmp_path)
    with opened(tmp_path) as third:
        assert numbers(third) == list(range(100))
    assert snapshot(tmp_path) == before


def test_a_record_that_an_older_recovery_did_not_count(tmp_path: Path) -> None:
    """If an older version gave the offset of a 0x80 record to the next message, that message keeps it."""
    it = filled(tmp_path, 3)
    with older_version():
        (uncounted,) = it.put(message(b"%0200d" % 99))
    it.crash()
    overwrite(tmp_path / LOG, uncounted.physical_offset + QUEUE_OFFSET_AT, (3).to_bytes(8, "big"))
    it = Opened(tmp_path)
    for number in (3, 4):
        it.put(message(b"%0200d" % number))
    it.crash()
    for number in (4, 5):
        overwrite(tmp_path / LOG, number * SIZE + QUEUE_OFFSET_AT, (number - 1).to_bytes(8, "big"))
    for path in (tmp_path / QUEUE).parent.iterdir():
        path.unlink()
    again = Opened(tmp_path)
    assert numbers(again) == [0, 1, 2, 3, 4]
    assert again.recovered.skipped == 1
    assert again.put(message(b"%0200d" % 5))[0].queue_offset == 5
    again.crash()
    with opened(tmp_path) as last:
        assert numbers(last) == [0, 1, 2, 3, 4, 5]


def test_a_gap_is_skipped_by_every_read(tmp_path: Path) -> None:
    """Gets and the search by time skip the gap; restarts do not change it; verify reports it."""
    it = store_with_gap(tmp_path)
    assert (it.recovered.records, it.recovered.skipped) == (10, 1)
    assert numbers(it) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    result = it.store.get("T", 0, 4, 1)
    assert (result.status, result.next_begin_offset) == (GetStatus.FOUND, 6)
    nothing = it.store.get("T", 0, 4, 1, lambda code: False)
    assert nothing.status is GetStatus.NO_MATCHED_MESSAGE
    assert nothing.next_begin_offset > 4
    start = Clock().now_ms
    for number in (0, 1, 2, 3, 5, 6, 7, 8, 9):
        assert it.store.offset_by_time("T", 0, start + 10 * (number + 1)) == number
        assert it.store.offset_by_time("T", 0, start + 10 * (number + 1), Boundary.UPPER) == number
    assert it.store.offset_by_time("T", 0, start + 50) == 5
    assert it.store.offset_by_time("T", 0, start + 50, Boundary.UPPER) == 3
    assert (tmp_path / QUEUE).read_bytes()[80:100] == FILLER_UNIT
    it.crash()
    before = snapshot(tmp_path)
    again = Opened(tmp_path)
    assert numbers(again) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert snapshot(tmp_path) == before
    again.store.close()
    with opened(tmp_path) as clean:
        assert numbers(clean) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
        assert clean.put(message(b"%0200d" % 10))[0].queue_offset == 10
    problems = problems_of(tmp_path)
    assert any("T-0@4" in what and "filler units" in what for what in problems), problems
    assert any(f"record {4 * SIZE} ('T'-0) gets no queue unit" in what for what in problems), problems


def test_repair_applies_the_rule_of_recovery(tmp_path: Path) -> None:
    """`store repair` builds the same queues as recovery."""
    it = store_with_gap(tmp_path)
    it.put(message(b"%0200d" % 10))
    it.store.close()
    before = (tmp_path / QUEUE).read_bytes()
    repair(tmp_path, Sizes.of(tmp_path), delay_levels=[1_000], now_ms=Clock().now_ms)
    assert (tmp_path / QUEUE).read_bytes() == before
    assert not [one for one in check(tmp_path) if one.severity is Severity.DAMAGE]


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (TOPIC_AT, b"/"),
        (TOPIC_AT, b"\0"),
        (TOPIC_AT, b"\xff"),
        (TOPIC_AT, b" "),
        (QUEUE_ID_AT, b"\xff\xff\xff\xff"),
        (QUEUE_OFFSET_AT, b"\x7f" + b"\xff" * 7),
        (QUEUE_OFFSET_AT, b"\xff" * 8),
        (QUEUE_OFFSET_AT, (3).to_bytes(8, "big")),
        (QUEUE_OFFSET_AT, (12).to_bytes(8, "big")),
        (QUEUE_OFFSET_AT, bytes(8)),
    ],
)
def test_the_head_of_a_whole_record_never_ends_the_log(tmp_path: Path, at: int, data: bytes) -> None:
    """With any topic, queue and queue offset in a record, later records stay, and no file is created for it."""
    filled(tmp_path, 20).crash()
    overwrite(tmp_path / LOG, 10 * SIZE + at, data)
    for path in (tmp_path / QUEUE).parent.iterdir():
        path.unlink()
    again = Opened(tmp_path)
    assert (again.recovered.records, again.recovered.skipped) == (20, 1)
    assert numbers(again) == [number for number in range(20) if number != 10]
    assert again.put(message(b"%0200d" % 20))[0].queue_offset == 20
    assert os.listdir(tmp_path / "consumequeue") == ["T"]
    assert sum(path.stat().st_blocks for path in tmp_path.rglob("consumequeue/**/*")) < 1 << 10
    again.crash()
    before = snapshot(tmp_path)
    third = Opened(tmp_path)
    assert numbers(third) == [number for number in range(21) if number != 10]
    assert snapshot(tmp_path) == before
    third.store.close()
    assert any("gets no queue unit" in what for what in problems_of(tmp_path))


def test_the_last_record_of_a_queue_counts_if_its_unit_exists(tmp_path: Path) -> None:
    """A single message after a gap has no follower, but its unit shows that it was dispatched."""
    filled(tmp_path, 6).crash()
    overwrite(tmp_path / LOG, 4 * SIZE + QUEUE_OFFSET_AT, (2).to_bytes(8, "big"))
    again = Opened(tmp_path)
    assert numbers(again) == [0, 1, 2, 3, 5]
    again.crash()
    with opened(tmp_path) as third:
        assert numbers(third) == [0, 1, 2, 3, 5]
        assert third.put(message(b"%0200d" % 6))[0].queue_offset == 6


def test_an_undecided_record_at_the_end_stays_skipped(tmp_path: Path) -> None:
    """A record with a torn offset at a queue's end is skipped, also after the next message has taken its offset."""
    filled(tmp_path, 6).crash()
    overwrite(tmp_path / LOG, 5 * SIZE + QUEUE_OFFSET_AT, (7).to_bytes(8, "big"))
    again = Opened(tmp_path)
    assert numbers(again) == [0, 1, 2, 3, 4]
    assert again.put(message(b"%0200d" % 6))[0].queue_offset == 5
    again.crash()
    with opened(tmp_path) as third:
        assert numbers(third) == [0, 1, 2, 3, 4, 6]
        assert third.recovered.skipped == 1


def test_units_before_the_scan_are_rebuilt(tmp_path: Path) -> None:
    """A scan that begins after lost units starts over earlier, in steps that double, and skips no record."""
    it = filled(tmp_path, 2_500)
    it.crash()
    for path in (tmp_path / QUEUE).parent.iterdir():
        path.unlink()
    (tmp_path / "checkpoint").write_bytes(Checkpoint(1 << 50, 1 << 50).encode())  # it covers too much
    again = Opened(tmp_path)
    assert numbers(again) == list(range(2_500))
    assert again.recovered.skipped == 0
    again.crash()


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "a/b"},
        {"topic": ".."},
        {"topic": "x" * 128},
        {"topic": ""},
        {"topic": "T\0"},
        {"queue_id": -1},
    ],
)
def test_invalid_topics_and_queue_ids_are_refused(tmp_path: Path, change: dict[str, str | int]) -> None:
    """Every kind of put refuses an invalid topic or queue id, and that message only."""
    with opened(tmp_path) as it:
        bad = message(**{"topic": "T", "queue_id": 0} | change)  # type: ignore[arg-type]  # one of both
        good = message(b"good")
        it.store.put(bad)
        it.store.put_run([bad, good])
        it.store.put_batch([message(**{"topic": "T", "queue_id": 0} | change)])  # type: ignore[arg-type]
        it.store.put_alike([message(**{"topic": "T", "queue_id": 0} | change)])  # type: ignore[arg-type]
        it.store.commit()
        assert (bad.status, good.status) == (PutStatus.MESSAGE_ILLEGAL, PutStatus.PUT_OK)
        assert it.bodies() == [b"good"]
        assert os.listdir(tmp_path / "consumequeue") == ["T"]


def test_a_store_that_an_older_recovery_has_truncated(tmp_path: Path) -> None:
    """`store verify` reports committed offsets above the queue's end; `store repair` works."""
    it = filled(tmp_path, 10)
    it.store.close()
    overwrite(tmp_path / LOG, 6 * SIZE, bytes(4 * SIZE))
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{"0":9},"T@h":{"0":6}}}')
    repair(tmp_path, Sizes.of(tmp_path), delay_levels=[1_000], now_ms=Clock().now_ms)
    problems = problems_of(tmp_path)
    assert [what for what in problems if "has committed" in what] == [
        "group 'g' has committed 9 of 'T'-0, which ends at 6"
    ]
    assert any("covers the log" in what for what in problems), problems
    again = Opened(tmp_path)
    assert numbers(again) == [0, 1, 2, 3, 4, 5]
    assert again.put(message(b"%0200d" % 6))[0].queue_offset == 6
    again.crash()
