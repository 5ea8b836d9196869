"""Avro schemas by id: from a schema registry (Confluent's API, which Apicurio and Karapace also serve), or from files.

    GET {url}/schemas/ids/{id}                          {"schema": "...", "references": [{name, subject, version}, ...]}
    GET {url}/subjects/{subject}/versions/{version}     the same, for references

A worker process requests a schema once and keeps it: a registry never changes the schema of an id. An id that the
registry does not have is requested again after UNKNOWN_S. A request may take TIMEOUT_S. If the registry does not
respond, or responds with 429 or 5xx, the request is repeated for RETRY_S, and then the task fails: messages are not bad
because a registry is down. So does a response that no registry sends: the URL is wrong, or a proxy responds.
Credentials are sent only to the host of the URL: redirects are refused.
"""

import base64
import http.client
import json
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

import msgspec

TIMEOUT_S: Final = 10.0
RETRY_S: Final = 60.0
UNKNOWN_S: Final = 60.0
FIRST_PAUSE_S: Final = 0.5
MAX_RESPONSE_BYTES: Final = 4 << 20
MAX_UNKNOWN: Final = 65_536  # ids
MAX_REFERENCES: Final = 256  # of a schema, direct and indirect
MAX_ID: Final = 0x7FFF_FFFF  # ids are Java's int

NOT_FOUND: Final = frozenset({40401, 40402, 40403})
"""Error codes of a registry for an unknown subject, version or schema."""

Texts = tuple[str, ...]
"""A schema as JSON texts: the schemas that it refers to come first, itself last."""


class RegistryError(Exception):
    """The registry cannot be used: not a property of the message; the text names the URL and the remedy."""


class _Unavailable(RegistryError):
    """The registry does not respond now."""


class UnknownSchema(Exception):
    """No Avro schema has this id."""


class Credentials(msgspec.Struct, frozen=True):
    """`user:password`, or a bearer token, which contains no colon. Never printed."""

    text: str

    def __repr__(self) -> str:
        return "<credentials>"

    def authorization(self) -> str:
        """Return the value of the header Authorization."""
        if ":" in self.text:
            return "Basic " + base64.b64encode(self.text.encode()).decode()
        return f"Bearer {self.text}"


class Registry(msgspec.Struct, frozen=True):
    """A schema registry."""

    url: str
    credentials: Credentials | None = None


class SchemaFiles(msgspec.Struct, frozen=True):
    """The Avro schemas by id, as JSON."""

    by_id: Mapping[int, str]

    def find(self, schema_id: int) -> Texts:
        """Return the schema. Raises UnknownSchema."""
        text = self.by_id.get(schema_id)
        if text is None:
            raise UnknownSchema(f"there is no file {schema_id}.avsc")
        return (text,)


def url_of(text: str) -> str:
    """Return the URL of a registry or schema without a final slash. Raises ValueError."""
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("an http or https URL")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL without user and password: they have their own option")
    return text.rstrip("/")


@lru_cache(maxsize=16)
def client_of(registry: Registry) -> "RegistryClient":
    """Return this process's client of a registry."""
    return RegistryClient(registry)


class RegistryClient:
    """Requests schemas, and keeps them. Time is in seconds."""

    def __init__(
        self,
        registry: Registry,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._sleep = sleep
        self._opener: OpenerDirector = build_opener(_NoRedirects)
        self._known: dict[int, Texts] = {}
        self._unknown: dict[int, tuple[float, str]] = {}

    def __repr__(self) -> str:
        return f"<RegistryClient {self._registry.url} {len(self._known)} schemas>"

    def find(self, schema_id: int) -> Texts:
        """Return the schema of an id. Raises UnknownSchema, RegistryError."""
        if (texts := self._known.get(schema_id)) is not None:
            return texts
        until, reason = self._unknown.get(schema_id, (0.0, ""))
        if self._clock() < until:
            raise UnknownSchema(reason)
        try:
            texts = self._request_schema(schema_id)
        except UnknownSchema as error:
            if len(self._unknown) >= MAX_UNKNOWN:
                self._unknown.clear()
            self._unknown[schema_id] = (self._clock() + UNKNOWN_S, str(error))
            raise
        self._known[schema_id] = texts
        return texts

    def at(self, url: str) -> Texts:
        """Return the schema at a URL: an Avro schema, or a registry's response. Raises UnknownSchema, RegistryError."""
        found = self._get(url)
        if found is None:
            raise UnknownSchema(f"there is no schema at {url}")
        if isinstance(found, Mapping) and isinstance(found.get("schema"), str):
            return self._with_references(found, url)
        return (json.dumps(found),)

    # --- requests ---------------------------------------------------------------------------------

    def _request_schema(self, schema_id: int) -> Texts:
        found = self._get(f"{self._registry.url}/schemas/ids/{schema_id}") if schema_id <= MAX_ID else None
        if found is None:
            raise UnknownSchema(f"the schema registry has no schema {schema_id}")
        return self._with_references(found, f"schema {schema_id}")

    def _with_references(self, found: Any, what: str) -> Texts:
        """Return the texts of a response, depth first, each subject and version once."""
        texts: dict[tuple[str, int], str] = {}

        def collect(response: Any, key: tuple[str, int]) -> None:
            if key in texts:
                return
            if len(texts) > MAX_REFERENCES:
                raise UnknownSchema(f"{what} refers to more than {MAX_REFERENCES} schemas")
            text, references = _checked(response, what, self._registry.url)
            texts[key] = text
            for reference in references:
                inner = reference["subject"], reference["version"]
                collect(self._reference(inner, what), inner)
            texts[key] = texts.pop(key)  # after the schemas that it refers to

        collect(found, ("", 0))
        return tuple(texts.values())

    def _reference(self, key: tuple[str, int], what: str) -> Any:
        subject, version = key
        found = self._get(f"{self._registry.url}/subjects/{quote(subject, safe='')}/versions/{version}")
        if found is None:
            raise UnknownSchema(f"{what} refers to version {version} of {subject}, which the schema registry lacks")
        return found

    def _get(self, url: str) -> Any:
        """Return the decoded JSON; None if the registry does not have it. Repeats the request for RETRY_S."""
        deadline = self._clock() + RETRY_S
        pause = FIRST_PAUSE_S
        while True:
            try:
                return self._get_once(url)
            except _Unavailable as error:
                if self._clock() + pause > deadline:
                    raise RegistryError(f"{error}; repeated for {RETRY_S:.0f} s") from error
                self._sleep(pause)
                pause *= 2

    def _get_once(self, url: str) -> Any:
        request = Request(url, headers={"Accept": "application/vnd.schemaregistry.v1+json, application/json"})
        if self._registry.credentials is not None:
            request.add_unredirected_header("Authorization", self._registry.credentials.authorization())
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                return _json(response.read(MAX_RESPONSE_BYTES + 1), url)
        except HTTPError as error:
            with error:
                return _refused(error, url)
        except (URLError, OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise _Unavailable(f"the schema registry at {url} does not respond: {reason}") from error


class _NoRedirects(HTTPRedirectHandler):
    """Turns a redirect into an HTTPError."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Refuse."""


def _refused(error: HTTPError, url: str) -> None:
    """Return None if the registry lacks the schema. Raises RegistryError otherwise."""
    what = f"the schema registry responds with {error.code} {error.reason} to {url}"
    if error.code == HTTPStatus.TOO_MANY_REQUESTS or error.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise _Unavailable(what) from error
    if error.code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        raise RegistryError(f"{what}: check --registry-credentials") from error
    if error.code == HTTPStatus.NOT_FOUND:
        try:
            body = json.loads(error.read(MAX_RESPONSE_BYTES))
        except (ValueError, RecursionError):
            body = None
        if isinstance(body, Mapping) and body.get("error_code") in NOT_FOUND:
            return
    raise RegistryError(f"{what}, which is not a registry's response: check --registry") from error


def _json(body: bytes, url: str) -> Any:
    if len(body) > MAX_RESPONSE_BYTES:
        raise RegistryError(f"the response of {url} is longer than {MAX_RESPONSE_BYTES} bytes")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RegistryError(f"the response of {url} is not JSON: check --registry") from error


def _checked(response: Any, what: str, url: str) -> tuple[str, list[Mapping[str, Any]]]:
    """Return the schema and the references of a response. Raises UnknownSchema for a schema that is not Avro."""
    text = response.get("schema") if isinstance(response, Mapping) else None
    if not isinstance(text, str):
        raise RegistryError(f"the response of {url} for {what} has no schema: check --registry")
    kind = response.get("schemaType") or "AVRO"
    if kind != "AVRO":
        raise UnknownSchema(f"{what} of the schema registry is {kind}, not Avro")
    references = response.get("references") or []
    if not isinstance(references, list) or not all(map(_is_reference, references)):
        raise RegistryError(f"the response of {url} for {what} has invalid references: check --registry")
    return text, references


def _is_reference(found: Any) -> bool:
    return isinstance(found, Mapping) and isinstance(found.get("subject"), str) and type(found.get("version")) is int
