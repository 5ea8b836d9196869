"""Queues of other owners: light and batch queues keep every byte, whatever happens to the store around them."""

from pathlib import Path

import pytest

from skylarkmq.broker.store.files.errors import StoreError
from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.protocol.disk import FILLER_UNIT, UNIT
from tests.harness.stores import QUEUE_SEGMENT_BYTES, Opened, message, opened

LIGHT = "%LMQ%light"
FULL = FILLER_UNIT * (QUEUE_SEGMENT_BYTES // 20)
STARTED = UNIT.pack(1 << 40, 200, 0).ljust(QUEUE_SEGMENT_BYTES, b"\0")  # its record is not in the log


def put_files(root: Path, files: dict[str, bytes]) -> None:
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "files",
    [
        {f"{0:020d}": FULL, f"{QUEUE_SEGMENT_BYTES:020d}": STARTED},
        {f"{0:020d}": STARTED, f"{QUEUE_SEGMENT_BYTES:020d}": b""},
        {f"{0:020d}": STARTED, f"{QUEUE_SEGMENT_BYTES:020d}.tmp": b"x"},
        {f"{0:020d}": FULL, f"{2 * QUEUE_SEGMENT_BYTES:020d}": FULL},
        {f"{0:020d}": b"another size"},
        {"of nobody's": b"?"},
    ],
)
async def test_light_queues_keep_every_byte(tmp_path: Path, files: dict[str, bytes]) -> None:
    """No start, crash, recovery, deletion or cleanup changes a directory of light queues, in whatever state it is."""
    with opened(tmp_path) as it:
        it.put(message())
    light = tmp_path / "consumequeue" / LIGHT
    put_files(light / "0", files)
    put_files(tmp_path / "batchconsumequeue" / "B" / "0", files)
    before = contents(light), contents(tmp_path / "batchconsumequeue")
    it = Opened(tmp_path)
    it.put(*(message() for _ in range(50)))
    it.crash()
    it = Opened(tmp_path)
    assert it.recovered.removed_units == 0
    assert await it.store.delete_topic(LIGHT) == 0
    for _ in range(3):
        it.clock.now_ms += 86_400_000
        it.store.step(it.clock.now_ms)
    assert len(it.bodies()) == 51
    it.store.close()
    assert (contents(light), contents(tmp_path / "batchconsumequeue")) == before


async def test_a_valid_light_queue_is_served(tmp_path: Path) -> None:
    """A light queue that needs no cleanup has its offsets."""
    put_files(tmp_path / "consumequeue" / LIGHT / "0", {f"{0:020d}": FULL, f"{QUEUE_SEGMENT_BYTES:020d}": STARTED})
    it = Opened(tmp_path)
    assert it.store.max_offset(LIGHT, 0) == 21
    it.store.close()


def test_no_queue_is_created_for_an_invalid_name(tmp_path: Path) -> None:
    """Its path would lead elsewhere, so a message with the name is rejected before it is stored."""
    with opened(tmp_path / "store") as it:
        it.put(message())
        topics = ("../consumequeue/T", "../../x", ".", "a\0b")
        for topic, queue_id in (*((topic, 0) for topic in topics), ("T", 2**31), ("T", -1)):
            with pytest.raises(ValueError, match="invalid topic or queue id"):
                it.store.queues.make(topic, queue_id)
            if queue_id < 2**31:  # an append cannot contain a larger one
                assert it.put(message(topic=topic, queue_id=queue_id))[0].status is PutStatus.MESSAGE_ILLEGAL
        assert it.bodies() == [b"hello"]
        assert set(it.store.queues.by_key) == {("T", 0)}
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


async def test_directories_with_other_names_are_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They stay unchanged, whatever is deleted or cleaned up; one warning contains their number."""
    with opened(tmp_path) as it:
        it.put(message())
        it.must_be_consistent = False
    foreign = {f"{name}/{0:020d}": STARTED for name in ("T/007", "T/x", "T/2147483648", "a.b/0", "T T/0")}
    put_files(tmp_path / "consumequeue", foreign)
    with opened(tmp_path) as it:
        it.must_be_consistent = False
        assert set(it.store.queues.by_key) == {("T", 0)}
        assert list(it.store.manual_cleanup.topics()) == ["T"]
        await it.store.delete_topic("T")
    assert contents(tmp_path / "consumequeue") == foreign
    lines = [record.message for record in caplog.records if "not queues" in record.message]
    assert lines == ["directories that are not queues skipped count=5 first='T/007'"]


@pytest.mark.parametrize("linked", ["T", "T/1"])
def test_a_link_out_of_the_store_stops_the_start(tmp_path: Path, linked: str) -> None:
    """The error reports the link to the operator; nothing is opened behind it."""
    store, outside = tmp_path / "store", tmp_path / "outside"
    put_files(outside, {f"0/{0:020d}": STARTED, f"{0:020d}": STARTED})
    with opened(store) as it:
        it.put(message(topic="U"))
    path = store / "consumequeue" / linked
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(outside)
    with pytest.raises(StoreError, match="a symbolic link leads to"):
        Opened(store)
    assert contents(outside) == {f"0/{0:020d}": STARTED, f"{0:020d}": STARTED}


async def test_queues_by_topic_equal_queues_by_key(tmp_path: Path) -> None:
    """Also after a start, and after a topic was deleted."""
    it = Opened(tmp_path)
    it.put(*(message(topic=topic, queue_id=queue_id) for topic, queue_id in (("T", 0), ("T", 2), ("U", 0))))
    await it.store.delete_topic("U")
    it.put(message(topic="U", queue_id=1))
    it.store.close()
    it = Opened(tmp_path)
    table = it.store.queues
    by_topic = {(topic, queue_id): q for topic, queues in table.by_topic.items() for queue_id, q in queues.items()}
    assert by_topic == table.by_key
    assert (set(by_topic), it.store.queues.ids_of("T")) == ({("T", 0), ("T", 2), ("U", 1)}, [0, 2])
    it.store.close()
