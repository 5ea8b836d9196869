"""The broker's own lookups that meet cold bytes."""

import asyncio
from pathlib import Path

import pytest

from skylarkmq.broker.delivery.cold_read_retry import looked_up
from skylarkmq.broker.store.files.cold_reads import ColdRead, Range
from tests.harness.stores import message, opened


async def test_a_lookup_is_run_again_after_each_cold_read(tmp_path: Path) -> None:
    """The missing bytes are fetched before each further run."""
    with opened(tmp_path, loop=asyncio.get_running_loop()) as it:
        it.put(message(b"one"))
        path = str(next((tmp_path / "commitlog").iterdir()))
        missing = [Range(path, 0, 10), Range(path, 10, 10)]

        def lookup() -> str:
            if missing:
                raise ColdRead(missing.pop(0))
            return "found"

        assert await looked_up(it.store, lookup) == "found"
        assert it.store.statistics().reader.cold.fetched == 2


async def test_a_lookup_in_memory_does_not_wait(tmp_path: Path) -> None:
    """Exceptions other than ColdRead are raised."""
    with opened(tmp_path) as it:
        assert await looked_up(it.store, lambda: it.store.max_offset("T", 0)) is None
        with pytest.raises(ZeroDivisionError):
            await looked_up(it.store, lambda: 1 // 0)
