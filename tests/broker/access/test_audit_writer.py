"""The writer of the audit log: bounded, in order, and patient with a disk that fails."""

import threading
from typing import Any

import pytest

from skylarkmq.broker.access.audit_sinks import Entry
from skylarkmq.broker.access.audit_writer import AuditWriter
from tests.harness.waiting import until


class MemorySink:
    """Keeps entries; `fails` makes writes fail; `gate` blocks them."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.fails = False
        self.gate = threading.Event()
        self.gate.set()
        self.attempts = 0
        self.closed = 0

    def write(self, entry: Entry) -> None:
        self.gate.wait()
        self.attempts += 1
        if self.fails:
            raise OSError(28, "No space left on device")
        self.entries.append(entry)

    def close(self) -> None:
        self.closed += 1


def writer_of(sink: MemorySink, **options: Any) -> AuditWriter:
    writer = AuditWriter(sink, lambda count: {"event": "lost", "entries": count}, retry_s=0.01, **options)
    writer.start()
    return writer


async def test_entries_are_written_in_order_and_flushed_at_the_stop() -> None:
    """The stop returns after the last entry is written, and the sink is closed."""
    sink = MemorySink()
    writer = writer_of(sink)
    for number in range(1_000):
        writer.put({"n": number})
    await writer.stop()
    assert sink.entries == [{"n": number} for number in range(1_000)]
    assert sink.closed == 1
    assert writer.statistics().written == 1_000
    await writer.stop()  # has no further effect


async def test_entries_beyond_the_queue_are_lost_counted_and_reported() -> None:
    """The queue takes its capacity, and one entry more is lost; `put` never waits."""
    sink = MemorySink()
    sink.gate.clear()
    writer = writer_of(sink, capacity=3)
    for number in range(10):
        writer.put({"n": number})
    assert (writer.statistics().waiting, writer.statistics().lost) == (3, 7)
    sink.gate.set()
    await until(lambda: writer.statistics().written == 3)
    await until(lambda: len(sink.entries) == 4)
    await writer.stop()
    assert sorted(map(str, sink.entries)) == sorted(
        map(str, [{"n": 0}, {"n": 1}, {"n": 2}, {"event": "lost", "entries": 7}])
    )


async def test_a_failed_write_is_repeated_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A full disk loses nothing while the queue has room."""
    sink = MemorySink()
    sink.fails = True
    writer = writer_of(sink)
    writer.put({"n": 1})
    writer.put({"n": 2})
    await until(lambda: sink.attempts >= 5)
    assert writer.statistics().failures >= 5
    assert caplog.text.count("audit log not written") == 1
    sink.fails = False
    await until(lambda: len(sink.entries) == 2)
    await writer.stop()
    assert sink.entries == [{"n": 1}, {"n": 2}]


async def test_a_stop_does_not_wait_for_a_disk_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """The entries that could not be written are logged as a number."""
    sink = MemorySink()
    sink.fails = True
    writer = writer_of(sink)
    writer.put({"n": 1})
    await writer.stop()
    assert "audit entries not written entries=1" in caplog.text
