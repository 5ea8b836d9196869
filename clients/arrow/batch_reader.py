"""A stream of record batches as `pyarrow.RecordBatchReader`.

A reader from `RecordBatchReader.from_batches` keeps its iterator until the reader is deallocated: `close` has no effect
on it. A reader that was imported from a C stream releases the stream when it is closed. So the readers here are
exported and imported once. The batches are not copied. The generator of the batches ends, and releases its files and
connections, when it is exhausted, when the reader is closed or left as a context manager, or when nothing refers to the
reader any more.

The C stream has no exceptions of Python. An error of the generator arrives as OSError, whose text begins with the type
and the text of the original error, and ends with its traceback. So everything that may fail before the first batch is
done before the generator is made.
"""

from collections.abc import Iterator

import pyarrow as pa


def batch_reader(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    """Return a reader of the batches, which have this schema."""
    source = pa.RecordBatchReader.from_batches(schema, _with_mapped_errors(batches))
    return pa.RecordBatchReader.from_stream(source)


def _with_mapped_errors(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
