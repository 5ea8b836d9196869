"""Lookups of the broker's own that may meet what is not in memory: run, fetched, run again.

The counterpart of broker/processors/cold_read_retry.py for who is no request. A lookup that is wrapped here changes
nothing before it has read everything. Source: docs/architecture.md, "Hot and cold".
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.read.cold_reads import ColdRead

T = TypeVar("T")


async def when_read(store: MessageStore, lookup: Callable[[], T]) -> T:
    """What `lookup` returns, run again each time that `store` has fetched what it missed; what else it raises."""
    while True:
        try:
            return lookup()
        except ColdRead as cold:
            missed = cold
        await asyncio.shield(store.fetch(missed))
