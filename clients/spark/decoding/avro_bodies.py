"""Avro bodies as columns, decoded by fastavro: plain, in single-object encoding, or with the header of a registry.

    plain            datum
    single-object    C3 01, fingerprint of the writer schema (8 bytes, little-endian CRC-64-AVRO), datum
    registry         00, id of the writer schema (4 bytes, big-endian), datum

The reader schema defines the columns. A datum of another writer schema is resolved to it by Avro's rules: fields
that the writer lacks get the reader's defaults, fields that the reader lacks are skipped, numbers are promoted. Spark's
own Avro decoder is a separate jar and resolves no registry; fastavro comes with the extra `avro`.
"""

import io
import struct
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from fastavro.read import SchemaResolutionError
from pyspark.sql.types import StructType

from skylarkmq.clients.spark.decoding.avro_schema import (
    SINGLE_OBJECT,
    Writer,
    columns,
    conversion,
    marker,
    parsed,
    writer_of,
)
from skylarkmq.clients.spark.decoding.avro_values import Conversion, Convert
from skylarkmq.clients.spark.decoding.columns import DAMAGED, arrow_type, column_of
from skylarkmq.clients.spark.decoding.encodings import AvroBodies
from skylarkmq.clients.spark.decoding.registry import Registry, UnknownSchema, client_of

MALFORMED: Final = (
    EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, ArithmeticError, RecursionError,
    SchemaResolutionError,
)  # fmt: skip
"""Errors of fastavro for bytes that are not a datum of the writer schema, or do not resolve to the reader's."""

_MARKER_BYTES: Final = 10
_HEADER: Final = struct.Struct(">BI")
_NOT_A_DATUM: Final = "the body is not an Avro datum of the schema"


class AvroDecoder:
    """Decodes bodies into structs. Raises ValueError for schemas that cannot be used."""

    def __init__(self, bodies: AvroBodies) -> None:
        self._bodies = bodies
        self._kind = columns(bodies.schema)
        self._writers = _Writers(bodies)
        self._reader: Any = None
        self._conversion: Conversion | None = None

    def __repr__(self) -> str:
        return f"<AvroDecoder {self._kind.simpleString()}>"

    @property
    def kind(self) -> StructType:
        """The columns of the reader schema."""
        return self._kind

    def __getstate__(self) -> dict[str, Any]:
        """Pickle no functions: each process makes its own."""
        return self.__dict__ | {"_reader": None, "_conversion": None}

    def decode(self, bodies: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the values and the reasons; one of the two is null in each row. Raises RegistryError."""
        if self._reader is None or self._conversion is None:
            self._reader, self._conversion = parsed(self._bodies.schema), conversion(self._bodies.schema)
        options, convert = self._conversion
        read = [self._read(body, options, convert) for body in bodies.to_pylist()]
        values = [value for value, _ in read]
        reasons = [reason for _, reason in read]
        kind = arrow_type(self._kind)
        column = column_of(values, reasons, lambda some: pa.array(some, kind), "Avro datum")
        return column, pa.array(reasons, pa.string())

    def _read(self, body: bytes | None, options: Mapping[str, Any], convert: Convert | None) -> tuple[Any, str | None]:
        if body is None:
            return None, DAMAGED
        try:
            writer, start = self._writers.of(body)
        except UnknownSchema as error:
            return None, str(error)
        stream = io.BytesIO(body)
        stream.seek(start)
        try:
            value = writer.read(stream, writer.schema, self._reader, **options)
            value = value if convert is None else convert(value)
        except MALFORMED as error:
            return None, f"{_NOT_A_DATUM}: {type(error).__name__} {error}".rstrip()
        if rest := len(body) - stream.tell():
            return None, f"{_NOT_A_DATUM}: {rest} bytes remain"
        return value, None


class _Writers:
    """Finds the writer of a body."""

    def __init__(self, bodies: AvroBodies) -> None:
        self._registry = bodies.registry
        self._by_id: dict[int, Writer] = {}
        writers = [writer_of(texts) for texts in bodies.writer_schemas]
        self._by_marker: dict[bytes, Writer] = {}
        self._plain: Writer | None = None
        if bodies.is_single_object:
            self._by_marker = {marker(one.schema): one for one in (writer_of(bodies.schema), *writers)}
        elif len(writers) > 1:
            raise ValueError("plain Avro data have one writer schema: several need single-object encoding")
        else:
            self._plain = writers[0] if writers else writer_of(bodies.schema)

    def of(self, body: bytes) -> tuple[Writer, int]:
        """Return the writer, and the offset of the datum. Raises UnknownSchema, RegistryError."""
        if self._registry is not None:
            return self._registered(self._registry, body), _HEADER.size
        if self._plain is not None:
            return self._plain, 0
        if not body.startswith(SINGLE_OBJECT):
            raise UnknownSchema("the body has no marker of Avro's single-object encoding (C3 01)")
        schema = self._by_marker.get(body[:_MARKER_BYTES])
        if schema is None:
            shown = body[2:_MARKER_BYTES].hex()
            raise UnknownSchema(f"no schema has the fingerprint {shown}: add it with --avro-writer-schema")
        return schema, _MARKER_BYTES

    def _registered(self, registry: Any, body: bytes) -> Writer:
        if len(body) < _HEADER.size or body[0]:
            raise UnknownSchema("the body has no header of a schema registry (00 and an id of 4 bytes)")
        _, schema_id = _HEADER.unpack_from(body)
        schema = self._by_id.get(schema_id)
        if schema is None:
            source = client_of(registry) if isinstance(registry, Registry) else registry
            try:
                schema = self._by_id[schema_id] = writer_of(source.find(schema_id))
            except ValueError as error:
                raise UnknownSchema(f"schema {schema_id}: {error}") from error
        return schema
