"""How the bodies of a job are encoded."""

import msgspec

from skylarkmq.clients.spark.decoding.registry import Registry, SchemaFiles, Texts


class AvroBodies(msgspec.Struct, frozen=True, kw_only=True):
    """Bodies are Avro data; the columns are the fields of `schema`, a record.

    Without a registry, bodies are plain (one datum without a header, written by `schema` or by the only one of
    `writer_schemas`), or in single-object encoding (written by `schema` or one of `writer_schemas`). With a registry,
    each body has a header with the id of its writer schema.
    """

    schema: Texts
    writer_schemas: tuple[Texts, ...] = ()
    is_single_object: bool = False
    registry: Registry | SchemaFiles | None = None


class ProtobufBodies(msgspec.Struct, frozen=True, kw_only=True):
    """Bodies are messages of the type `message`, a full name; `descriptor_set` is a serialized FileDescriptorSet.

    `has_header`: each body begins with the header of a schema registry.
    """

    descriptor_set: bytes
    message: str
    has_header: bool = False


class Decoding(msgspec.Struct, frozen=True):
    """How bodies are decoded: at most one is set; `json` is Spark DDL. With none, bodies are not decoded."""

    json: str | None = None
    avro: AvroBodies | None = None
    protobuf: ProtobufBodies | None = None

    @property
    def is_on(self) -> bool:
        """Whether bodies are decoded at all."""
        return self != Decoding()
