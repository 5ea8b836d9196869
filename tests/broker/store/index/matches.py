"""What a search of the index compares, for tests of the index alone."""

from collections.abc import Generator

from skylarkmq.broker.store.files.cold_reads import ColdRead


def every_one(_offset: int) -> Generator[ColdRead | None, None, bool]:
    """Match every message, without a read of the log."""
    yield from ()
    return True
