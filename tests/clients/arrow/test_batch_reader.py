"""Readers over generators: their end, their errors, and their release."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from skylarkmq.clients.arrow.batch_reader import batch_reader

SCHEMA = pa.schema([("n", pa.int64())])


def numbers(ended: list[str], error: Exception | None = None) -> Iterator[pa.RecordBatch]:
    """Yield three batches, then raise the error; record the end."""
    try:
        for number in range(3):
            yield pa.record_batch([[number]], schema=SCHEMA)
        if error is not None:
            raise error
    finally:
        ended.append("ended")


def test_all_batches_are_returned() -> None:
    """The generator has ended when the last batch was returned."""
    ended: list[str] = []
    reader = batch_reader(SCHEMA, numbers(ended))
    assert [batch["n"][0].as_py() for batch in reader] == [0, 1, 2]
    assert ended
    assert list(reader) == []


def test_the_generator_ends_with_the_reader() -> None:
    """Closed, left, collected, or consumed in part by another library through the C interface."""
    ended: list[str] = []
    closed = batch_reader(SCHEMA, numbers(ended))
    closed.read_next_batch()
    closed.close()
    assert len(ended) == 1
    with batch_reader(SCHEMA, numbers(ended)) as left:
        left.read_next_batch()
    assert len(ended) == 2
    collected = batch_reader(SCHEMA, numbers(ended))
    collected.read_next_batch()
    del collected
    assert len(ended) == 3
    stream = pa.RecordBatchReader.from_stream(batch_reader(SCHEMA, numbers(ended)))
    stream.read_next_batch()
    del stream
    assert len(ended) == 4


def test_an_error_of_the_generator_is_an_os_error() -> None:
    """It comes after the batches before it; the text has the type of the error. An unused reader is released, too."""
    ended: list[str] = []
    reader = batch_reader(SCHEMA, numbers(ended, LookupError("no more: do this")))
    for _ in range(3):
        reader.read_next_batch()
    with pytest.raises(OSError, match=r"^IOError: LookupError: no more: do this"):
        reader.read_next_batch()
    assert ended
    batch_reader(SCHEMA, numbers(ended)).close()
    assert len(ended) == 1
