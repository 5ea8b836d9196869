"""Units that are read several at a time, to find the record of each."""

from pathlib import Path

import pytest

from skylarkmq.broker.store.read import unit_window
from tests.harness.stores import message, opened


def test_a_record_is_found_by_its_unit(tmp_path: Path) -> None:
    """Only by its own unit: other offsets, and units that do not exist, give none."""
    with opened(tmp_path) as it:
        first, second = (it.put(message(body))[0] for body in (b"first", b"second"))
        found = it.store.record_of_unit("T", 0, 1, second.physical_offset)
        assert found is not None
        assert bytes(found.body) == b"second"
        for topic, queue_id, offset in (("T", 0, 0), ("T", 0, 2), ("T", 0, -1), ("T", 1, 1), ("U", 0, 1)):
            assert it.store.record_of_unit(topic, queue_id, offset, second.physical_offset) is None
        assert it.store.record_of_unit("T", 0, 1, first.physical_offset) is None


def test_a_message_that_is_not_visible_yet_is_found(tmp_path: Path) -> None:
    """Its unit exists once it is dispatched, which the lookup does."""
    with opened(tmp_path) as it:
        it.put(message(b"before"))
        later = message(b"later")
        it.store.put(later)
        it.store.write()
        assert it.store.record_of_unit("T", 0, later.queue_offset, later.physical_offset) is not None


def test_requests_in_the_order_of_a_queue_share_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if another queue is asked about in between, each time the queue changes one read is needed."""
    monkeypatch.setattr(unit_window, "WINDOW", 4)
    with opened(tmp_path) as it:
        places = [it.put(message(b"%d" % n, queue_id=n % 2))[0].physical_offset for n in range(16)]
        queue = it.store.queues.get("T", 0)
        assert queue is not None
        reads: list[int] = []
        read = type(queue).read_nowait

        def counted(self: object, offset: int, *args: object) -> object:
            reads.append(offset)
            return read(self, offset, *args)  # type: ignore[arg-type]

        monkeypatch.setattr(type(queue), "read_nowait", counted)
        for offset in range(8):
            assert it.store.record_of_unit("T", 0, offset, places[2 * offset]) is not None
        assert reads == [0, 4]
        assert it.store.record_of_unit("T", 1, 0, places[1]) is not None
        assert it.store.record_of_unit("T", 0, 0, places[0]) is not None
        assert reads == [0, 4, 0, 0]
