"""The client of a schema registry against a server: caching, references, credentials, and two kinds of failures."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from skylarkmq.clients.spark.decoding.registry import (
    MAX_RESPONSE_BYTES,
    RETRY_S,
    UNKNOWN_S,
    Credentials,
    Registry,
    RegistryClient,
    RegistryError,
    UnknownSchema,
    url_of,
)
from tests.harness.ports import free_ports

RECORD = json.dumps({"type": "record", "name": "A", "fields": []})
UNKNOWN = (404, {"error_code": 40403, "message": "Schema not found"})


class Server:
    """A registry: the response of each path, or a list of responses one after the other; and the requests."""

    def __init__(self) -> None:
        self.responses: dict[str, Any] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.url = ""

    def respond(self, path: str) -> tuple[int, Any]:
        found = self.responses.get(path, UNKNOWN)
        code, content = found.pop(0) if isinstance(found, list) else found
        return code, content


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Server()) as made:
        yield made


@contextmanager
def serving(made: Server) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.requests.append((self.path, self.headers["Authorization"]))
            code, content = made.respond(self.path)
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(code)
            if code == 302:
                self.send_header("Location", f"{made.url}/elsewhere")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


class Clock:
    """Time that passes only while the client sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def client(server: Server, clock: Clock | None = None, credentials: str | None = None) -> RegistryClient:
    clock = clock or Clock()
    access = None if credentials is None else Credentials(credentials)
    return RegistryClient(Registry(server.url, access), clock, clock.sleep)


def test_a_schema_is_requested_once(server: Server) -> None:
    """Later bodies use the first response."""
    server.responses["/schemas/ids/7"] = (200, {"schema": RECORD})
    registry = client(server)
    assert [registry.find(7), registry.find(7)] == [(RECORD,), (RECORD,)]
    assert server.requests == [("/schemas/ids/7", None)]


def test_an_unknown_id_is_a_property_of_the_message(server: Server) -> None:
    """It is requested again only after a while; ids beyond Java's int are not requested."""
    clock = Clock()
    registry = client(server, clock)
    for seconds in (0, UNKNOWN_S - 1):
        clock.now = seconds
        with pytest.raises(UnknownSchema, match="has no schema 7"):
            registry.find(7)
    with pytest.raises(UnknownSchema):
        registry.find(0x8000_0000)
    assert len(server.requests) == 1
    server.responses["/schemas/ids/7"] = (200, {"schema": RECORD, "schemaType": "PROTOBUF"})
    clock.now = UNKNOWN_S
    with pytest.raises(UnknownSchema, match="is PROTOBUF, not Avro"):
        registry.find(7)


def test_references_come_first(server: Server) -> None:
    """Depth first, each once; also for a schema by URL."""
    b = {"name": "B", "subject": "b/x", "version": 1}
    c = {"name": "C", "subject": "c", "version": 2}
    server.responses = {
        "/schemas/ids/7": (200, {"schema": "A", "references": [b, c]}),
        "/subjects/b%2Fx/versions/1": (200, {"schema": "B", "references": [c]}),
        "/subjects/c/versions/2": (200, {"schema": "C"}),
        "/subjects/a/versions/latest": (200, {"schema": "A", "id": 7, "references": [c]}),
        "/plain.avsc": (200, {"type": "record"}),
    }
    registry = client(server)
    assert registry.find(7) == ("C", "B", "A")
    assert registry.at(f"{server.url}/subjects/a/versions/latest") == ("C", "A")
    assert registry.at(f"{server.url}/plain.avsc") == ('{"type": "record"}',)
    with pytest.raises(UnknownSchema, match="no schema at"):
        registry.at(f"{server.url}/other.avsc")
    server.responses["/subjects/c/versions/2"] = UNKNOWN
    with pytest.raises(UnknownSchema, match="refers to version 2 of c"):
        client(server).find(7)


@pytest.mark.parametrize(
    ("credentials", "header"), [("user:pass:word", "Basic dXNlcjpwYXNzOndvcmQ="), ("abc.def", "Bearer abc.def")]
)
def test_credentials_are_sent_and_never_printed(server: Server, credentials: str, header: str) -> None:
    """User and password as Basic, a token as Bearer."""
    server.responses["/schemas/ids/7"] = (403, {})
    registry = client(server, credentials=credentials)
    with pytest.raises(RegistryError, match="check --registry-credentials") as caught:
        registry.find(7)
    assert server.requests == [("/schemas/ids/7", header)]
    shown = f"{caught.value} {registry!r} {Registry('http://x', Credentials(credentials))!r} {Credentials(credentials)}"
    assert credentials not in shown


def test_redirects_are_refused(server: Server) -> None:
    """Another host must not get the credentials."""
    server.responses["/schemas/ids/7"] = (302, b"")
    with pytest.raises(RegistryError, match="302"):
        client(server, credentials="a:b").find(7)
    assert len(server.requests) == 1


def test_a_registry_that_fails_is_asked_again(server: Server) -> None:
    """With growing pauses; then the task fails, and no message is bad."""
    clock = Clock()
    server.responses["/schemas/ids/7"] = [(503, b""), (429, b""), (200, {"schema": RECORD})]
    assert client(server, clock).find(7) == (RECORD,)
    assert clock.now == 1.5
    server.responses["/schemas/ids/8"] = (500, b"")
    with pytest.raises(RegistryError, match=r"500 .*; repeated for 60 s"):
        client(server, clock).find(8)
    assert clock.now - 1.5 <= RETRY_S


def test_a_registry_that_does_not_listen_fails_the_task() -> None:
    """The error names the URL."""
    server = Server()
    server.url = f"http://127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(RegistryError, match=f"at {server.url}/schemas/ids/7 does not respond"):
        client(server).find(7)


@pytest.mark.parametrize(
    "response",
    [
        (404, b"<html>"),
        (404, {"error_code": 404}),
        (400, b""),
        (200, b"<html>"),
        (200, {"no": "schema"}),
        (200, {"schema": RECORD, "references": 1}),
        (200, {"schema": RECORD, "references": [{"subject": "b", "version": "x"}]}),
        (200, {"schema": RECORD, "references": [{"version": 1}]}),
        (200, b'{"schema": ' + b"7" * 5_000 + b"}"),
        (200, b"[" * 1_000_000),
        (404, b"[" * 1_000_000),
        (200, b" " * (MAX_RESPONSE_BYTES + 1)),
    ],
)
def test_responses_that_no_registry_sends_fail_the_task(server: Server, response: tuple[int, Any]) -> None:
    """A wrong URL must not make all messages bad."""
    server.responses["/schemas/ids/7"] = response
    with pytest.raises(RegistryError, match=r"check --registry|is longer than"):
        client(server).find(7)


def test_urls_are_checked() -> None:
    """HTTP and HTTPS, without credentials."""
    assert url_of("https://registry:8081/") == "https://registry:8081"
    for wrong in ("ftp://registry", "registry:8081", "http://", "http://u:p@registry"):
        with pytest.raises(ValueError, match="URL"):
            url_of(wrong)
