"""Queues that are not ours: light and batch queues keep every byte, whatever happens to the store around them."""

from pathlib import Path

import pytest

from protocol.disk import FILLER_UNIT, UNIT
from tests.harness.stores import QUEUE_SEGMENT_BYTES, Opened, message, opened

LIGHT = "%LMQ%light"
FULL = FILLER_UNIT * (QUEUE_SEGMENT_BYTES // 20)
STARTED = UNIT.pack(1 << 40, 200, 0).ljust(QUEUE_SEGMENT_BYTES, b"\0")  # of a record that the log does not have


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
    """No start, crash, recovery, deletion or cleaning changes a directory of light queues, in whatever state it is."""
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


async def test_a_light_queue_in_order_is_there(tmp_path: Path) -> None:
    """One that needs no tidying up has its offsets."""
    put_files(tmp_path / "consumequeue" / LIGHT / "0", {f"{0:020d}": FULL, f"{QUEUE_SEGMENT_BYTES:020d}": STARTED})
    it = Opened(tmp_path)
    assert it.store.max_offset(LIGHT, 0) == 21
    it.store.close()


async def test_queues_by_topic(tmp_path: Path) -> None:
    """They are the queues by key, after a start and without those of a deleted topic too."""
    it = Opened(tmp_path)
    it.put(*(message(topic=topic, queue_id=queue_id) for topic, queue_id in (("T", 0), ("T", 2), ("U", 0))))
    await it.store.delete_topic("U")
    it.put(message(topic="U", queue_id=1))
    it.store.close()
    it = Opened(tmp_path)
    table = it.store._queues
    by_topic = {(topic, queue_id): q for topic, queues in table.by_topic.items() for queue_id, q in queues.items()}
    assert by_topic == table.by_key
    assert (set(by_topic), it.store.queue_ids("T")) == ({("T", 0), ("T", 2), ("U", 1)}, [0, 2])
    it.store.close()
