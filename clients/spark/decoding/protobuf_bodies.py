"""Protobuf bodies as columns, decoded by the library `protobuf`; each body is one message.

It may have the header of a schema registry before it (protobuf_header.py).

The type comes from a FileDescriptorSet, `protoc --include_imports --descriptor_set_out=orders.desc orders.proto`; the
imports google/protobuf/*.proto may be missing in it. Spark's own decoder is a separate jar.

Protobuf has no checksum and no type in its encoding: bytes of another type may parse, as unknown fields, and an empty
body is a message of default values.
"""

from difflib import get_close_matches
from typing import Any, Final

import pyarrow as pa
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError
from pyspark.sql.types import StructType

from skylarkmq.clients.spark.decoding.columns import DAMAGED, column_of
from skylarkmq.clients.spark.decoding.encodings import ProtobufBodies
from skylarkmq.clients.spark.decoding.protobuf_columns import Column, message_column
from skylarkmq.clients.spark.decoding.protobuf_header import Indexes, NoHeader, indexes_of, message_start

_BUNDLED: Final = {
    module.DESCRIPTOR.name: module.DESCRIPTOR.serialized_pb
    for module in (
        any_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2,
    )
}  # fmt: skip


class ProtobufDecoder:
    """Decodes bodies into structs. Raises ValueError for a descriptor set that cannot be used."""

    def __init__(self, bodies: ProtobufBodies) -> None:
        self._bodies = bodies
        column = message_column(message_class(bodies).DESCRIPTOR)
        if not isinstance(column.type, StructType):
            raise ValueError(f"the message {bodies.message} has no fields of its own")
        self._kind = column.type
        self._loaded: tuple[Any, Column, Indexes | None] | None = None

    def __repr__(self) -> str:
        return f"<ProtobufDecoder {self._bodies.message}>"

    def __getstate__(self) -> tuple[ProtobufBodies, StructType]:
        """Pickle no message class: each process makes its own."""
        return self._bodies, self._kind

    def __setstate__(self, state: tuple[ProtobufBodies, StructType]) -> None:
        self._bodies, self._kind = state
        self._loaded = None

    @property
    def kind(self) -> StructType:
        """The columns of the message type."""
        return self._kind

    def decode(self, bodies: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the values and the reasons; one of the two is null in each row."""
        if self._loaded is None:
            message = message_class(self._bodies)
            header = indexes_of(message.DESCRIPTOR) if self._bodies.has_header else None
            self._loaded = message, message_column(message.DESCRIPTOR), header
        message, column, header = self._loaded
        read = [_read(message, header, body) for body in bodies.to_pylist()]
        values = [value for value, _ in read]
        reasons = [reason for _, reason in read]
        return column_of(values, reasons, column.build, "Protobuf message"), pa.array(reasons, pa.string())


def _read(message: Any, header: Indexes | None, body: bytes | None) -> tuple[Any, str | None]:
    if body is None:
        return None, DAMAGED
    try:
        value = message.FromString(body if header is None else body[message_start(body, header) :])
    except NoHeader as error:
        return None, str(error)
    except DecodeError as error:
        return None, f"the body is not a Protobuf message of the type: {error}"
    if not value.IsInitialized():  # FindInitializationErrors crashes the process for maps (protobuf 7.36)
        return None, "the body lacks required fields of the message"
    return value, None


def message_class(bodies: ProtobufBodies) -> Any:
    """Return the class of the messages. Raises ValueError."""
    try:
        files = list(descriptor_pb2.FileDescriptorSet.FromString(bodies.descriptor_set).file)
    except DecodeError as error:
        raise ValueError(
            f"this is not a FileDescriptorSet, which protoc --descriptor_set_out writes: {error}"
        ) from error
    pool = _pool(files)
    try:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(bodies.message))
    except KeyError:
        names = [f"{file.package}.{message.name}".lstrip(".") for file in files for message in file.message_type]
        near = get_close_matches(bodies.message, names, 1, cutoff=0.0)
        hint = f"did you mean {near[0]}?" if near else "it contains no message"
        raise ValueError(f"the descriptor set has no message {bodies.message}: {hint}") from None


def _pool(files: list[Any]) -> Any:
    """Return a pool of the files, each added after its imports."""
    waiting = {file.name: file.SerializeToString() for file in files}
    imports = {file.name: list(file.dependency) for file in files}
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add(name: str) -> None:
        if name in added:
            return
        added.add(name)
        for other in imports.get(name, ()):
            add(other)
        serialized = waiting.get(name) or _BUNDLED.get(name)
        if serialized is None:
            raise ValueError(f"the descriptor set lacks the import {name}: run protoc with --include_imports")
        try:
            pool.AddSerializedFile(serialized)
        except TypeError as error:
            raise ValueError(f"the descriptor of {name} is invalid: {error}") from error

    for name in waiting:
        add(name)
    return pool
