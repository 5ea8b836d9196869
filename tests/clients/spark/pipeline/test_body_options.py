"""The options of bodies become a decoding; mistakes are errors with advice."""

import json
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.clients.spark.base.options import OptionError
from skylarkmq.clients.spark.decoding.encodings import AvroBodies, Decoding, ProtobufBodies
from skylarkmq.clients.spark.decoding.registry import Credentials, Registry, SchemaFiles
from skylarkmq.clients.spark.pipeline.body_options import MAX_SCHEMA_BYTES, BodyOptions, decoding_of
from tests.clients.spark.decoding.test_registry import Server, serving

SCHEMA = json.dumps({"type": "record", "name": "A", "fields": []})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.avsc", "b.avsc", "17.avsc"):
        (tmp_path / name).write_text(SCHEMA)
    (tmp_path / "a.desc").write_bytes(b"\x0a\xff")
    (tmp_path / "ddl").write_text("id BIGINT")
    return tmp_path


def test_each_encoding_has_its_options(folder: Path) -> None:
    """Schemas are texts or files; a registry is a URL or a directory."""

    def of(**given: Any) -> Decoding:
        return decoding_of(BodyOptions(**given))

    a, b = str(folder / "a.avsc"), str(folder / "b.avsc")
    assert of() == Decoding()
    assert of(json_schema="id INT") == Decoding(json="id INT")
    assert of(json_schema=f"@{folder}/ddl") == Decoding(json="id BIGINT")
    assert of(avro_schema=a) == Decoding(avro=AvroBodies(schema=(SCHEMA,)))
    assert of(avro_schema=a, avro_writer_schemas=(b, b), avro_single_object=True) == Decoding(
        avro=AvroBodies(schema=(SCHEMA,), writer_schemas=((SCHEMA,), (SCHEMA,)), is_single_object=True)
    )
    credentials = Credentials("user:secret")
    options = BodyOptions(avro_schema=a, registry="http://registry:8081/", credentials=credentials)
    assert decoding_of(options).avro == AvroBodies(
        schema=(SCHEMA,), registry=Registry("http://registry:8081", credentials)
    )
    assert "secret" not in f"{options!r} {decoding_of(options)!r}"
    assert of(avro_schema=a, registry=str(folder)).avro == AvroBodies(
        schema=(SCHEMA,), registry=SchemaFiles({17: SCHEMA})
    )
    assert of(protobuf_descriptor=f"{folder}/a.desc", protobuf_message="a.B") == Decoding(
        protobuf=ProtobufBodies(descriptor_set=b"\x0a\xff", message="a.B")
    )
    with_header = of(
        protobuf_descriptor=f"{folder}/a.desc", protobuf_message="a.B", protobuf_registry_header=True
    ).protobuf
    assert with_header == ProtobufBodies(descriptor_set=b"\x0a\xff", message="a.B", has_header=True)


def test_a_schema_may_have_a_url() -> None:
    """Credentials are sent to the registry only."""
    with serving(Server()) as server, serving(Server()) as other:
        for each in (server, other):
            each.responses["/subjects/a/versions/latest"] = (200, {"schema": SCHEMA})
            options = BodyOptions(
                avro_schema=f"{each.url}/subjects/a/versions/latest",
                registry=server.url,
                credentials=Credentials("token"),
            )
            assert decoding_of(options).avro == AvroBodies(
                schema=(SCHEMA,), registry=Registry(server.url, Credentials("token"))
            )
        assert [header for _, header in (*server.requests, *other.requests)] == ["Bearer token", None]
        with pytest.raises(OptionError, match="no schema at"):
            decoding_of(BodyOptions(avro_schema=f"{server.url}/b"))


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"json_schema": "a INT", "avro_schema": "x"}, "--json-schema and --avro-schema are both set"),
        ({"registry": "http://x"}, "--registry needs --avro-schema.* Protobuf has --protobuf-registry-header"),
        ({"protobuf_registry_header": True}, "--protobuf-registry-header needs --protobuf-descriptor"),
        ({"avro_single_object": True}, "--avro-single-object needs --avro-schema"),
        ({"avro_writer_schemas": ("a",)}, "--avro-writer-schema needs --avro-schema"),
        ({"avro_schema": "a", "registry": "x", "avro_single_object": True}, "leave out --avro-single-object"),
        ({"avro_schema": "a", "avro_writer_schemas": ("a", "b")}, "need --avro-single-object"),
        ({"protobuf_descriptor": "a"}, "go together"),
        ({"protobuf_message": "a"}, "go together"),
        ({"avro_schema": "nowhere.avsc"}, "cannot read nowhere.avsc: No such file"),
        ({"avro_schema": "a.desc"}, "not a text in UTF-8"),
        ({"avro_schema": "large"}, "it is not a schema"),
        ({"avro_schema": "ftp://x/a"}, "must be an http or https URL"),
        ({"avro_schema": "a.avsc", "registry": "a.avsc"}, "must be a URL or a directory"),
        ({"avro_schema": "a.avsc", "registry": "empty"}, "has no files ID.avsc"),
        ({"avro_schema": "a.avsc", "registry": "http://u:p@x"}, "have their own option"),
    ],
)
def test_mistakes_are_errors(folder: Path, monkeypatch: pytest.MonkeyPatch, given: Any, error: str) -> None:
    """The text names the option and the remedy."""
    monkeypatch.chdir(folder)
    (folder / "empty").mkdir()
    (folder / "large").write_bytes(b" " * (MAX_SCHEMA_BYTES + 1))
    with pytest.raises(OptionError, match=error):
        decoding_of(BodyOptions(**given))
