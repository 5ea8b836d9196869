"""The files of a replay's directory."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skylarkmq.clients.spark.replay import journal
from skylarkmq.clients.spark.replay.errors import JournalError
from skylarkmq.clients.spark.replay.journal import MAP_SCHEMA, Journal, Recorded, Saved, Stream
from skylarkmq.clients.spark.replay.targets import Targets
from skylarkmq.protocol.bodies.message_queue import MessageQueue

OLD, NEW = MessageQueue("Orders", "old", 3), MessageQueue("Again", "new", 1)
STREAM = Stream(OLD, "Again")
TARGETS = Targets(to_topic="Again")


def opened(directory: Path, targets: Targets = TARGETS, **definition: object) -> Journal:
    return Journal.open(directory, Saved("r1", 1, definition), targets)


def copies(*offsets: int, first: int, held: MessageQueue = NEW) -> Recorded:
    ids = [f"id{offset}" for offset in offsets]
    return Recorded(STREAM, NEW, held, offsets, ids, first, [f"N{one}" for one in ids], 1000 + first)


def test_a_journal_continues_where_its_files_end(tmp_path: Path) -> None:
    """Rows that were recorded but not written are not known; the queue is."""
    first = opened(tmp_path)
    first.assign(STREAM, NEW, NEW, 7)
    first.record(copies(0, 4, first=7))
    first.write(first.take())
    first.record(copies(5, first=12))
    assert (first.sent, first.ends, first.rows) == ({STREAM: 5}, {NEW: 13}, 3)
    first.close()
    again = opened(tmp_path)
    assert (again.queues, again.sent, again.ends, again.rows) == ({STREAM: NEW}, {STREAM: 4}, {NEW: 9}, 2)
    again.record(copies(5, first=12))
    again.write(again.take())
    again.close()
    table = pq.read_table(again.map_directory)
    assert table.schema.equals(MAP_SCHEMA)
    assert table.column("newQueueOffset").to_pylist() == [7, 8, 12]
    assert table.column("newMsgId").to_pylist() == ["Nid0", "Nid4", "Nid5"]


def test_delayed_copies_are_known_by_the_queue_of_their_level(tmp_path: Path) -> None:
    """Their offset in the new queue is null."""
    delayed = Targets(to_topic="Again", delay_level=2)
    held = delayed.held_in(NEW)
    first = opened(tmp_path, delayed)
    first.assign(STREAM, NEW, held, 100)
    first.record(copies(0, 4, first=100, held=held))
    first.write(first.take())
    first.close()
    again = opened(tmp_path, delayed)
    assert (again.sent, again.ends) == ({STREAM: 4}, {held: 102})
    assert pq.read_table(again.map_directory).column("newQueueOffset").null_count == 2
    again.close()


def test_no_file_of_the_map_follows_a_missing_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed write all later ones raise its error; what was not written is found in the queues."""
    publish = journal._publish

    def full_disk(path: Path, content: bytes | pa.Buffer) -> None:
        monkeypatch.setattr(journal, "_publish", publish)
        raise OSError(28, "No space left on device")

    made = opened(tmp_path)
    made.record(copies(0, first=7))
    monkeypatch.setattr(journal, "_publish", full_disk)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            made.write(made.take())
        made.record(copies(1, first=8))
    assert list(made.map_directory.iterdir()) == []
    made.close()


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    """It is not taken for a new replay, which would send all messages again; nor is a map without it."""
    opened(tmp_path).close()
    for text in ("{", '{"x":' + "[" * 100_000):
        (tmp_path / "replay.json").write_text(text)
        with pytest.raises(JournalError, match=r"replay\.json is damaged"):
            opened(tmp_path)
    (tmp_path / "replay.json").unlink()
    (tmp_path / "map" / "00000001.parquet").write_bytes(b"")
    with pytest.raises(JournalError, match=r"has a map but no replay\.json"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"), [("00000001", "00000001.parquet is damaged"), ("copy", "copy.parquet is not a file of the map")]
)
def test_a_file_of_the_map_that_cannot_be_read_is_named(tmp_path: Path, name: str, text: str) -> None:
    """A replay without it would send its messages again."""
    opened(tmp_path).close()
    (tmp_path / "map" / f"{name}.parquet").write_bytes(b"no parquet")
    with pytest.raises(JournalError, match=text):
        opened(tmp_path)


def test_only_one_process_runs_a_replay_and_only_with_its_definition(tmp_path: Path) -> None:
    """A second process is refused; so is a resume with another selection."""
    first = opened(tmp_path, source="here", key=None)
    with pytest.raises(JournalError, match="another process runs the replay"):
        opened(tmp_path, source="here", key=None)
    first.close()
    with pytest.raises(JournalError, match=r"other arguments \(key\)"):
        opened(tmp_path, source="here", key="k")
    opened(tmp_path, source="here", key=None).close()
