"""The options of `mqspark-pipeline` that describe bodies, and the decoding that they stand for.

    --json-schema                                     JSON
    --avro-schema                                     Avro: one datum of the schema, without a header
    --avro-schema --avro-writer-schema                    the same, written by another schema
    --avro-schema --avro-single-object                    in single-object encoding
    --avro-schema --registry                              with the header of a schema registry
    --protobuf-descriptor --protobuf-message          Protobuf: one message, without a header
    --protobuf-... --protobuf-registry-header             with the header of a schema registry

Schemas are read when the pipeline starts; a schema that changed is used after the next start. Schemas of writers come
from the registry while the pipeline runs. `--registry` may also be a directory of files `<id>.avsc`, which is read at
the start.
"""

from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from skylarkmq.clients.spark.base.options import OptionError
from skylarkmq.clients.spark.decoding.encodings import AvroBodies, Decoding, ProtobufBodies
from skylarkmq.clients.spark.decoding.registry import (
    Credentials,
    Registry,
    RegistryClient,
    RegistryError,
    SchemaFiles,
    Texts,
    UnknownSchema,
    url_of,
)

CREDENTIALS_VARIABLE: Final = "SKYLARK_REGISTRY_CREDENTIALS"
AVRO_FILES: Final = "*.avsc"
MAX_SCHEMA_BYTES: Final = 4 << 20

JsonSchema = Annotated[
    str | None, typer.Option("--json-schema", help="Bodies are JSON objects: their fields as Spark DDL, or @FILE.")
]
AvroSchema = Annotated[
    str | None,
    typer.Option("--avro-schema", metavar="FILE|URL", help="Bodies are Avro data; this schema defines the columns."),
]
AvroWriterSchema = Annotated[
    list[str] | None,
    typer.Option(
        "--avro-writer-schema",
        metavar="FILE|URL",
        help="The schema of the bodies, if it is not --avro-schema; repeatable with --avro-single-object.",
    ),
]
AvroSingleObject = Annotated[
    bool, typer.Option("--avro-single-object", help="Bodies begin with C3 01 and the fingerprint of their schema.")
]
RegistryPlace = Annotated[
    str | None,
    typer.Option(
        "--registry",
        metavar="URL|DIRECTORY",
        help="Bodies begin with 00 and the id of their schema in this schema registry, or in files ID.avsc.",
    ),
]
RegistryCredentials = Annotated[
    str | None,
    typer.Option(
        "--registry-credentials",
        metavar="USER:PASSWORD|TOKEN",
        envvar=CREDENTIALS_VARIABLE,
        show_default=False,
        help="Credentials of the schema registry; the environment is safer than the command line.",
    ),
]
ProtobufDescriptor = Annotated[
    str | None,
    typer.Option(
        "--protobuf-descriptor",
        metavar="FILE",
        help="Bodies are Protobuf messages; the output of protoc --include_imports --descriptor_set_out.",
    ),
]
ProtobufMessage = Annotated[
    str | None, typer.Option("--protobuf-message", metavar="NAME", help="The full name of the message type.")
]


ProtobufRegistryHeader = Annotated[
    bool,
    typer.Option(
        "--protobuf-registry-header",
        help="Bodies begin with 00, the id of a schema, and the indexes of the message in it.",
    ),
]


class BodyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The given options."""

    json_schema: str | None = None
    avro_schema: str | None = None
    avro_writer_schemas: tuple[str, ...] = ()
    avro_single_object: bool = False
    registry: str | None = None
    credentials: Credentials | None = None
    protobuf_descriptor: str | None = None
    protobuf_message: str | None = None
    protobuf_registry_header: bool = False


def decoding_of(given: BodyOptions) -> Decoding:
    """Return the decoding; at most one encoding may be given. Raises OptionError."""
    named = {
        "--json-schema": given.json_schema,
        "--avro-schema": given.avro_schema,
        "--protobuf-descriptor": given.protobuf_descriptor,
    }
    encodings = [name for name, value in named.items() if value is not None]
    if len(encodings) > 1:
        raise OptionError(f"{' and '.join(encodings)} are both set: choose one")
    _require(given)
    if given.json_schema is not None:
        text = given.json_schema
        return Decoding(json=_text(text[1:]) if text.startswith("@") else text)
    if given.avro_schema is not None:
        return Decoding(avro=_avro(given, given.avro_schema))
    if given.protobuf_descriptor is not None and given.protobuf_message is not None:
        descriptor = _bytes(given.protobuf_descriptor)
        return Decoding(
            protobuf=ProtobufBodies(
                descriptor_set=descriptor,
                message=given.protobuf_message,
                has_header=given.protobuf_registry_header,
            )
        )
    return Decoding()


def _require(given: BodyOptions) -> None:
    """Raises OptionError if an option lacks the one that it belongs to."""
    if given.avro_schema is None:
        for name, value in {
            "--avro-writer-schema": given.avro_writer_schemas,
            "--avro-single-object": given.avro_single_object,
            "--registry": given.registry,
        }.items():
            if value:
                hint = "; Protobuf has --protobuf-registry-header" if name == "--registry" else ""
                raise OptionError(f"{name} needs --avro-schema, which names the columns{hint}")
    if given.registry is not None and (given.avro_single_object or given.avro_writer_schemas):
        raise OptionError(
            "--registry determines the schemas of the bodies: leave out --avro-single-object and --avro-writer-schema"
        )
    if len(given.avro_writer_schemas) > 1 and not given.avro_single_object:
        raise OptionError(
            "several --avro-writer-schema need --avro-single-object: nothing else identifies the schema of a body"
        )
    if (given.protobuf_descriptor is None) != (given.protobuf_message is None):
        raise OptionError("--protobuf-descriptor and --protobuf-message go together: set both")
    if given.protobuf_registry_header and given.protobuf_descriptor is None:
        raise OptionError("--protobuf-registry-header needs --protobuf-descriptor and --protobuf-message")


def _avro(given: BodyOptions, schema: str) -> AvroBodies:
    return AvroBodies(
        schema=_schema(schema, given),
        writer_schemas=tuple(_schema(place, given) for place in given.avro_writer_schemas),
        is_single_object=given.avro_single_object,
        registry=None if given.registry is None else _registry(given.registry, given.credentials),
    )


def _registry(place: str, credentials: Credentials | None) -> Registry | SchemaFiles:
    if "://" in place:
        return Registry(_url(place, "--registry"), credentials)
    if not Path(place).is_dir():
        raise OptionError(f"--registry must be a URL or a directory with files ID.avsc, not {place}")
    files = [path for path in sorted(Path(place).glob(AVRO_FILES)) if path.stem.isdigit()]
    if not files:
        raise OptionError(f"--registry {place} has no files ID.avsc, such as 17.avsc")
    return SchemaFiles({int(path.stem): _text(str(path)) for path in files})


def _schema(place: str, given: BodyOptions) -> Texts:
    """Return the schema of a file or URL; credentials are sent only to the registry itself."""
    if "://" not in place:
        return (_text(place),)
    url = _url(place, "the URL of a schema")
    base = url.partition("/subjects/")[0].partition("/schemas/")[0]
    is_registry = given.registry is not None and given.registry.rstrip("/") == base
    try:
        return RegistryClient(Registry(base, given.credentials if is_registry else None)).at(url)
    except (RegistryError, UnknownSchema) as error:
        raise OptionError(str(error)) from error


def _url(text: str, what: str) -> str:
    try:
        return url_of(text)
    except ValueError as error:
        raise OptionError(f"{what} must be {error}") from error


def _text(path: str) -> str:
    try:
        return _bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise OptionError(f"{path} is not a text in UTF-8: {error}") from error


def _bytes(path: str) -> bytes:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror or error}") from None
    if len(content) > MAX_SCHEMA_BYTES:
        raise OptionError(f"{path} is longer than {MAX_SCHEMA_BYTES} bytes: it is not a schema")
    return content
