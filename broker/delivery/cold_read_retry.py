"""Retry of the broker's own lookups after a cold read: run the lookup, fetch the missing bytes, run it again.

broker/processors/cold_read_retry.py does the same for requests. A lookup must read everything before it changes
anything. Source: docs/architecture.md, "Hot and cold".
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from skylarkmq.broker.store.cold_reads import ColdRead
from skylarkmq.broker.store.message_store import MessageStore

T = TypeVar("T")


async def with_cold_read_retry(store: MessageStore, lookup: Callable[[], T]) -> T:
    """Return the result of `lookup`, run again after each ColdRead once `store` has fetched the missing bytes."""
    while True:
        try:
            return lookup()
        except ColdRead as cold:
            missed = cold
        await asyncio.shield(store.fetch(missed))
