"""Arrow arrays of values that are scattered over one buffer: bodies, topics, properties and their values.

A variable-length Arrow array consists of bytes and offsets; each value ends where the next one begins. With the offsets
`begin 0, end 0, begin 1, end 1, ...`, an array over the whole buffer alternates between wanted values and the bytes
between them. Taking every second value makes Arrow copy each wanted value once, and nothing else.

`pa.array`, `pa.scalar` and `to_numpy` import pandas first, if it is installed, which takes half a second of CPU. So do
functions of `pyarrow.compute` with a Python value among their arguments. The functions here do not.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skylarkmq.protocol.record import Buffer

MAX_BUFFER_BYTES: Final = 2**31 - 1
"""Maximum size of a buffer: Arrow's offsets are int32."""
_INLINE_BYTES: Final = 12  # a view contains shorter values


def take_slices(
    data: pa.Buffer,
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    kind: pa.DataType,
    is_there: NDArray[np.bool_] | None = None,
) -> pa.Array:
    """Return `data[begins[i]:ends[i]]` as an array of `kind` (binary or string), null where `is_there` is false.

    The slices must ascend without overlap, including those of nulls. UTF-8 is not validated.
    """
    if data.size > MAX_BUFFER_BYTES:
        raise ValueError(f"a buffer of {data.size} bytes is too large, the maximum is {MAX_BUFFER_BYTES}")
    count = len(begins)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[:-1:2] = begins
    offsets[1::2] = ends
    offsets[-1] = offsets[-2] if count else 0
    laid_over = pa.Array.from_buffers(kind, 2 * count, [None, pa.py_buffer(offsets), data])
    taken = laid_over.take(array_of(np.arange(0, 2 * count, 2)))
    return taken if is_there is None else with_nulls(taken, is_there)


def slice_views(data: Buffer, begins: NDArray[np.int64], sizes: NDArray[np.int64]) -> pa.Array:
    """Return `data[begins[i]:begins[i] + sizes[i]]` as views, in any order.

    Values of more than 12 bytes are not copied: the array is valid as long as the data does not change.
    """
    views = np.zeros((len(begins), 4), np.int32)  # size; then up to 12 bytes, or the first 4, number of buffer, begin
    views[:, 0] = sizes
    is_long = sizes > _INLINE_BYTES
    long, short = np.flatnonzero(is_long), np.flatnonzero(~is_long)
    if len(long):
        at_each_byte = np.ndarray((len(data) - 3,), np.int32, data, strides=(1,))
        views[long, 1] = at_each_byte[begins[long]]
        views[long, 3] = begins[long]
    if len(short):
        raw = np.frombuffer(data, np.uint8)
        places = np.arange(_INLINE_BYTES)
        found = raw[np.minimum(begins[short, None] + places, len(raw) - 1)]
        views.view(np.uint8)[short, 4:] = np.where(places < sizes[short, None], found, 0)
    return pa.Array.from_buffers(pa.binary_view(), len(views), [None, pa.py_buffer(views), pa.py_buffer(data)])


def with_nulls(array: pa.Array, is_there: NDArray[np.bool_]) -> pa.Array:
    """Return the same values (of an array at offset 0 without nulls), null where `is_there` is false."""
    if is_there.all():
        return array
    validity = pa.py_buffer(np.packbits(is_there, bitorder="little"))
    return pa.Array.from_buffers(array.type, len(array), [validity, *array.buffers()[1:]])


def content(array: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Return the bytes of a binary or string array, and its offsets (one more than values), which begin at 0 if the
    array does."""
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4) if len(array) else np.zeros(1, np.int32)
    raw = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    return raw[: bounds[-1]], bounds


def numbers(array: pa.Array) -> NDArray[Any]:
    """Return the values of an array of numbers without nulls."""
    data = array.buffers()[1]
    kind = array.type.to_pandas_dtype()
    if not len(array):
        return np.empty(0, kind)
    return np.frombuffer(data, kind, len(array), array.offset * array.type.bit_width // 8)


def truths(array: pa.Array) -> NDArray[np.bool_]:
    """Return the values of an array of booleans without nulls."""
    if not len(array):
        return np.empty(0, np.bool_)
    bits = np.frombuffer(array.buffers()[1], np.uint8)
    return np.unpackbits(bits, count=array.offset + len(array), bitorder="little")[array.offset :].view(np.bool_)


def array_of(values: NDArray[Any]) -> pa.Array:
    """Return numbers as an array of the same type."""
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, data])


def booleans(values: NDArray[np.bool_]) -> pa.Array:
    """Return the values as an array."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))])


def repeated(text: str | None, count: int) -> pa.Array:
    """Return a string array with the text, or null, `count` times."""
    if text is None:
        return pa.nulls(count, pa.string())
    value = text.encode()
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(value))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(value * count)])


def strings(texts: Sequence[str]) -> pa.Array:
    """Return a few strings as an array."""
    return binaries([text.encode() for text in texts]).view(pa.string())


def binaries(values: Sequence[bytes]) -> pa.Array:
    """Return a few values as an array of binary."""
    offsets = np.cumsum([0, *map(len, values)], dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    )
