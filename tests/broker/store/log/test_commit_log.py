"""The end of the log: batches, rolls, refusals, and the rollback of a failed write."""

import errno
from pathlib import Path

import pytest

from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.protocol.disk import offset_file_name
from skylarkmq.protocol.message_id import encode_host
from skylarkmq.protocol.record import Blank, Record, encode, iterate, parse
from tests.harness.stores import SEGMENT_BYTES, Opened, TestDisk, message, opened

OVERHEAD = 91 + 1  # a record with a topic of one byte and no properties


def log_bytes(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


def test_record_bytes(tmp_path: Path) -> None:
    """A record has the bytes that `encode` returns for the same fields, at its offset."""
    with opened(tmp_path) as it:
        it.put(message(b"one"))
        (two,) = it.put(message(b"two", tag="TagA", flag=3, sys_flag=0x301, reconsume_times=2, queue_id=5))
        assert it.store.record_at(two.physical_offset) == encode(
            topic="T",
            body=b"two",
            properties=b"TAGS\x01TagA\x02",
            queue_id=5,
            queue_offset=0,
            physical_offset=OVERHEAD + 3,
            born_timestamp=1_699_999_999_000,
            born_host=encode_host("192.168.1.10", 34567),
            store_timestamp=it.clock.now_ms,
            store_host=encode_host("127.0.0.1", 10911),
            flag=3,
            sys_flag=0x301,
            reconsume_times=2,
        )


def test_a_batch_is_one_write(tmp_path: Path) -> None:
    """One commit writes the log once and each queue once, however many messages were put."""
    with opened(tmp_path) as it:
        it.put(message())
        it.disk.writes.clear()
        it.put(*(message(queue_id=0 if number % 2 else 1) for number in range(100)))
        kinds = sorted(Path(path).parts[-2] if "commitlog" in path else "queue" for path, _, _ in it.disk.writes)
        queue_writes = [write for write in it.disk.writes if "consumequeue" in write[0]]
        assert kinds.count("commitlog") == 1
        assert sum(size for _, _, size in queue_writes) == 100 * 20
        assert len(queue_writes) <= 2 * (1 + 50 // 20)  # files have 20 units here


@pytest.mark.parametrize("has_checksum", [False, True], ids=["plain", "with checksum"])
def test_put_run_equals_single_puts(tmp_path: Path, has_checksum: bool) -> None:
    """Both write the same log, with new queues, rolls and refusals in any order."""

    def messages() -> list[Append]:
        sizes = (40_000, 10, 20_000, 20_000, 30_000, 40_000, 0, 20_000)
        return [message(bytes((n,)) * size, queue_id=n % 3, properties=b"a\x01b\x02") for n, size in enumerate(sizes)]

    logs, outcomes = [], []
    for name in ("one", "run"):
        appends = messages()
        with opened(tmp_path / name, max_message_size=30_000, enabled_append_prop_crc=has_checksum) as it:
            if name == "run":
                it.store.put_run(appends)
                it.store.commit()
            else:
                it.put(*appends)
            logs.append(log_bytes(tmp_path / name).rstrip(b"\0"))  # segments are created ahead
        outcomes.append([(append.status, append.physical_offset, append.queue_offset) for append in appends])
    assert logs[0] == logs[1]
    assert outcomes[0] == outcomes[1]
    assert {status for status, _, _ in outcomes[0]} == {PutStatus.PUT_OK, PutStatus.MESSAGE_ILLEGAL}


def test_a_refused_run_does_not_fix_the_timestamp(tmp_path: Path) -> None:
    """A message that is put after it has the time of its own put."""
    with opened(tmp_path, max_message_size=100) as it:
        it.put(message())
        it.store.put_run([message(b"x" * 101)])
        it.store.commit()
        it.clock.now_ms += 1_000
        (append,) = it.put(message())
        assert append.store_timestamp == it.clock.now_ms


def test_pending_until_written(tmp_path: Path) -> None:
    """Before the commit a message is PENDING and invisible, but has its offsets."""
    with opened(tmp_path) as it:
        append = message()
        it.store.put(append)
        assert (append.status, append.physical_offset, append.queue_offset) == (PutStatus.PENDING, 0, 0)
        assert it.store.max_physical_offset == 0
        assert not any(log_bytes(tmp_path)) if (tmp_path / "commitlog").exists() else True
        assert it.store.commit() == [append]
        assert append.status is PutStatus.PUT_OK
        assert it.store.max_physical_offset == append.size


@pytest.mark.parametrize(("left", "rolls"), [(-1, True), (0, True), (7, True), (8, False), (9, False)])
def test_blank_rule(tmp_path: Path, left: int, rolls: bool) -> None:
    """A record fits only if eight bytes remain after it; else a blank ends the segment and the next one is used."""
    with opened(tmp_path) as it:
        first = message(b"x" * 1000)
        second_size = OVERHEAD + 50
        remaining = second_size + left
        filler = message(b"x" * (SEGMENT_BYTES - remaining - 2 * OVERHEAD - 1000))
        it.put(first, filler)
        (second,) = it.put(message(b"y" * 50))
        assert second.status is PutStatus.PUT_OK
        assert second.physical_offset == (SEGMENT_BYTES if rolls else SEGMENT_BYTES - remaining)
        segment = memoryview((tmp_path / "commitlog" / offset_file_name(0)).read_bytes())
        found = parse(segment, SEGMENT_BYTES - remaining)
        assert found == Blank(remaining) if rolls else isinstance(found, Record)
        assert it.bodies()[-1] == b"y" * 50


def test_a_batch_may_fill_several_segments(tmp_path: Path) -> None:
    """A batch that does not fit into a segment rolls within the batch, as often as needed."""
    with opened(tmp_path) as it:
        bodies = [bytes([number]) * 9000 for number in range(40)]
        appends = it.put(*(message(body) for body in bodies))
        assert {append.status for append in appends} == {PutStatus.PUT_OK}
        assert it.bodies() == bodies
        assert len(list((tmp_path / "commitlog").iterdir())) >= 6


@pytest.mark.parametrize("put", ["put_batch", "put_alike"])
def test_put_batch_is_contiguous(tmp_path: Path, put: str) -> None:
    """A batch rolls as a whole and has consecutive queue offsets and one store timestamp."""
    with opened(tmp_path) as it:
        it.put(message(b"x" * (SEGMENT_BYTES - 1500)))
        batch = [message(b"b" * 400) for _ in range(5)]
        getattr(it.store, put)(batch)
        it.store.commit()
        assert [append.physical_offset for append in batch] == [SEGMENT_BYTES + 492 * number for number in range(5)]
        assert [append.queue_offset for append in batch] == [1, 2, 3, 4, 5]
        assert len({append.store_timestamp for append in batch}) == 1


@pytest.mark.parametrize("put", ["put_batch", "put_alike"])
def test_put_batch_is_all_or_nothing(tmp_path: Path, put: str) -> None:
    """One refused message refuses its whole batch."""
    with opened(tmp_path, max_message_size=1000) as it:
        batch = [message(b"fits"), message(b"x" * 1001)]
        getattr(it.store, put)(batch)
        assert [append.status for append in batch] == [PutStatus.MESSAGE_ILLEGAL] * 2
        assert it.store.commit() == []
        too_long = [message(b"x" * 900) for _ in range(80)]
        getattr(it.store, put)(too_long)
        assert too_long[0].status is PutStatus.MESSAGE_ILLEGAL


@pytest.mark.parametrize(
    ("append", "status"),
    [
        (message(b"x" * 30_000), PutStatus.PUT_OK),
        (message(b"x" * 30_001), PutStatus.MESSAGE_ILLEGAL),
        (message(properties=b"p" * 32_767), PutStatus.PUT_OK),
        (message(properties=b"p" * 32_768), PutStatus.PROPERTIES_SIZE_EXCEEDED),
        (message(topic="t" * 127), PutStatus.PUT_OK),
        (message(topic="t" * 128), PutStatus.MESSAGE_ILLEGAL),
        (message(topic="%RETRY%" + "t" * 248), PutStatus.PUT_OK),
        (message(topic="%RETRY%" + "t" * 249), PutStatus.MESSAGE_ILLEGAL),
        (message(b""), PutStatus.PUT_OK),
        (message(b"x" * 30_000, properties=b"p" * 32_767), PutStatus.PUT_OK),
    ],
)
def test_refusals(tmp_path: Path, append: Append, status: PutStatus) -> None:
    """Each limit has its own status, and the longest valid message is stored."""
    with opened(tmp_path, max_message_size=30_000) as it:
        it.put(append)
        assert append.status is status


def test_record_larger_than_a_segment(tmp_path: Path) -> None:
    """A record that fits no segment is refused instead of retried forever."""
    with opened(tmp_path) as it:
        (append,) = it.put(message(b"x" * (SEGMENT_BYTES - OVERHEAD - 7)))
        assert append.status is PutStatus.MESSAGE_ILLEGAL
        (append,) = it.put(message(b"x" * (SEGMENT_BYTES - OVERHEAD - 8)))
        assert append.status is PutStatus.PUT_OK


def test_store_timestamps_never_decrease(tmp_path: Path) -> None:
    """A clock that is set back does not set store timestamps back, not even after a restart."""
    with opened(tmp_path) as it:
        it.clock.now_ms = 5000
        (first,) = it.put(message())
        it.clock.now_ms = 4000
        (second,) = it.put(message())
        assert (first.store_timestamp, second.store_timestamp) == (5000, 5000)
    again = Opened(tmp_path)
    again.clock.now_ms = 3000
    (third,) = again.put(message())
    again.store.close()
    assert third.store_timestamp == 5000


@pytest.mark.parametrize(
    ("sys_flag", "queue_offset", "has_unit"), [(0, 1, True), (4, 0, False), (8, 1, True), (12, 0, False)]
)
def test_transaction_types(tmp_path: Path, sys_flag: int, queue_offset: int, has_unit: bool) -> None:
    """Prepared and rollback records have queue offset 0 and no unit; the others advance their queue."""
    with opened(tmp_path) as it:
        it.put(message(b"before"))
        (append,) = it.put(message(b"this", sys_flag=sys_flag))
        (after,) = it.put(message(b"after"))
        assert append.status is PutStatus.PUT_OK
        assert append.queue_offset == queue_offset
        assert after.queue_offset == 1 + has_unit
        assert it.bodies() == [b"before", *([b"this"] if has_unit else []), b"after"]


@pytest.mark.parametrize(
    ("error", "status"),
    [(errno.EIO, PutStatus.UNKNOWN_ERROR)]
    + [(number, PutStatus.SERVICE_NOT_AVAILABLE) for number in (errno.ENOSPC, errno.EROFS, errno.EDQUOT)],
)
def test_a_failed_write_rolls_back_the_batch(tmp_path: Path, error: int, status: PutStatus) -> None:
    """Nothing remains of the batch: offsets are restored, bytes cleared, and every append has an error status."""
    with opened(tmp_path) as it:
        it.put(message(b"first"), message(b"other", queue_id=1))
        failures = iter([OSError(error, "injected")])

        def refuse(call: str, path: str) -> None:
            if call == "pwrite" and "/commitlog/" in path and (failure := next(failures, None)):
                raise failure

        it.disk.refuse = refuse
        end = it.store.max_physical_offset
        failed = it.put(message(b"gone"), message(b"gone", queue_id=1), message(b"gone"))
        assert {append.status for append in failed} == {status}
        assert it.store.max_physical_offset == end
        it.store.step(it.clock.now_ms)
        (again,) = it.put(message(b"second"))
        assert (again.status, again.queue_offset, again.physical_offset) == (PutStatus.PUT_OK, 1, end)
        assert it.bodies() == [b"first", b"second"]
        assert it.bodies(queue_id=1) == [b"other"]


class TornDisk(TestDisk):
    """Writes the first half of the data for the log, then fails; at each write number in `at_calls`."""

    __test__ = False

    def __init__(self, *at_calls: int) -> None:
        super().__init__()
        self.calls = 0
        self.at_calls = at_calls

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, at: int) -> None:
        super().pwrite(fd, data, at)
        if "/commitlog/" in self.writes[-1][0]:
            self.calls += 1
            if self.calls in self.at_calls:
                super().pwrite(fd, bytes(len(data) - len(data) // 2), at + len(data) // 2)
                raise OSError(errno.ENOSPC, "short write")


def test_a_torn_write_over_a_roll_is_cleared(tmp_path: Path) -> None:
    """A batch over two segments that fails in the second leaves neither records nor a blank in the first."""
    disk = TornDisk(3)
    with opened(tmp_path, disk=disk) as it:
        it.put(message(b"first"))
        failed = it.put(*(message(b"x" * 9000) for _ in range(10)))
        assert {append.status for append in failed} == {PutStatus.SERVICE_NOT_AVAILABLE}
        assert len([found for found in iterate(log_bytes(tmp_path)) if isinstance(found, Record)]) == 1
        assert log_bytes(tmp_path).rstrip(b"\0") == it.store.record_at(0).rstrip(b"\0")  # type: ignore[union-attr]  # it is there
        it.store.step(it.clock.now_ms)
        appends = it.put(*(message(b"y" * 9000) for _ in range(10)))
        assert {append.status for append in appends} == {PutStatus.PUT_OK}
        assert it.bodies() == [b"first"] + [b"y" * 9000] * 10


def test_a_batch_that_cannot_be_cleared_makes_the_store_read_only(tmp_path: Path) -> None:
    """If the bytes of a failed write cannot be cleared, no message is accepted before a recovery."""
    disk = TornDisk(2, 3)
    it = Opened(tmp_path, disk=disk)
    it.put(message(b"first"))
    (failed,) = it.put(message(b"x" * 9000))
    assert failed.status is PutStatus.SERVICE_NOT_AVAILABLE
    it.store.step(it.clock.now_ms)
    (late,) = it.put(message(b"late"))
    assert late.status is PutStatus.SERVICE_NOT_AVAILABLE
    it.crash()
    with opened(tmp_path) as again:
        assert again.bodies() == [b"first"]
        assert again.put(message(b"second"))[0].queue_offset == 1


def test_a_message_without_a_segment_is_refused(tmp_path: Path) -> None:
    """If the next segment cannot be created the message is refused, and accepted once there is space again."""
    disk = TestDisk()

    def refuse(call: str, path: str) -> None:
        if call == "create" and "/commitlog/" in path and not path.endswith("/" + "0" * 20):
            raise OSError(errno.ENOSPC, "injected")

    disk.refuse = refuse
    with opened(tmp_path, disk=disk) as it:
        it.put(message(b"first" * 200))
        (append,) = it.put(message(b"x" * 65_000))
        (small,) = it.put(message(b"small"))
        assert (append.status, small.status) == (PutStatus.CREATE_MAPPED_FILE_FAILED, PutStatus.PUT_OK)
        assert "segment cannot be created" in it.store.flags.reasons()
        it.disk.refuse = lambda call, path: None
        (append,) = it.put(message(b"x" * 65_000))
        assert append.status is PutStatus.CREATE_MAPPED_FILE_FAILED  # no retry has run yet
        while not it.store.is_writable:
            it.clock.now_ms += 1_000
            it.store.step(it.clock.now_ms)
        (append,) = it.put(message(b"x" * 65_000))
        assert append.status is PutStatus.PUT_OK
        assert it.bodies() == [b"first" * 200, b"small", b"x" * 65_000]


def test_a_stopped_store_refuses_messages(tmp_path: Path) -> None:
    """Before the start and after the close a put gets SERVICE_NOT_AVAILABLE."""
    it = Opened(tmp_path)
    it.store.close()
    (append,) = it.put(message())
    assert append.status is PutStatus.SERVICE_NOT_AVAILABLE
