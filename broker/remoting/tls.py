"""TLS: which connections must use it, with which certificate, and how a new certificate is loaded.

    mode        TLS client    plain client
    disabled    closed        served
    permissive  served        served            the default, as in RocketMQ
    enforcing   served        closed

Certificate files are replaced while the process runs: `ReloadingContext` checks them periodically and makes a new
context when one has changed. Open connections keep the old one. If a file is damaged, or the key does not match its
certificate (yet), the old context stays in use, and a warning is logged once for each state of the files.

Without a certificate there is a test certificate, as in RocketMQ (`tls.test.mode.enable`): the command `openssl` makes
it on first use; it is self-signed and exists only in this process. It does not protect against man-in-the-middle
attacks, but clients that only set `tls.enable` can connect.

An SSLContext cannot request a certificate without verifying it. So `need_client_auth` has an effect only together with
`auth_client`; requiring a certificate without verification is rejected at start.

The subject of a verified client certificate is a text such as `CN=orders,O=Example`: its attributes in alphabetical
order, with `\\` before each `,`, `;` and `\\` of a value. Source: docs/reference/behaviour.md, "Accounts of client
certificates".
"""

import logging
import re
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Final, cast

import msgspec

from skylarkmq.broker.base.errors import StartError
from skylarkmq.broker.remoting.config import ClientAuth, OutboundTlsConfig, TlsConfig, TlsMode

OPENSSL_TIMEOUT_S: Final = 10.0
TEST_CERTIFICATE: Final = (
    "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
    "-keyout", "-", "-out", "-", "-days", "3650", "-subj", "/CN=skylark test",
    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
)  # fmt: skip
VERIFY_MODES: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
}
SPECIAL: Final = re.compile(r"[,;\\]")
ESCAPE: Final = r"\\\g<0>"

ATTRIBUTE_TYPES: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
"""The short names of RFC 4514; other attribute types keep OpenSSL's names, in upper case."""

log = logging.getLogger(__name__)


class TlsStatistics(msgspec.Struct, frozen=True):
    """TLS figures; counters are totals since the start."""

    mode: str
    established: int  # handshakes that succeeded
    failed: int  # handshakes that failed: rejected, invalid, aborted, too slow
    refused: int  # connections that the mode does not allow
    reloads: int
    reload_failures: int


class ReloadingContext:
    """A context that follows its files. `make` reads them and raises OSError if it fails."""

    def __init__(self, files: Iterable[Path | None], make: Callable[[], ssl.SSLContext]) -> None:
        self._files = tuple(file for file in files if file is not None)
        self._make = make
        self._seen = self._fingerprints()
        self.current = make()
        self.reloads = 0
        self.failures = 0

    def __repr__(self) -> str:
        return f"<ReloadingContext {' '.join(map(str, self._files))} reloads={self.reloads} failures={self.failures}>"

    def latest(self) -> ssl.SSLContext:
        """Return the context of the current files, or the last valid one."""
        self.reload_if_changed()
        return self.current

    def reload_if_changed(self) -> None:
        """Read the files again if one has changed."""
        fingerprints = self._fingerprints()
        if fingerprints == self._seen:
            return
        self._seen = fingerprints
        files = ",".join(map(str, self._files))
        try:
            self.current = self._make()
        except Exception as error:  # noqa: BLE001 (no content of a file may end the reloads)
            self.failures += 1
            log.warning("certificate not reloaded, the old one is kept files=%s reason=%s", files, reason_of(error))
        else:
            self.reloads += 1
            log.info("certificate reloaded files=%s", files)

    def _fingerprints(self) -> list[tuple[int, int, int] | None]:
        """Return a value that differs between two states of the files."""
        return [file_fingerprint(file) for file in self._files]


class ServerTls:
    """TLS of accepted connections, on all ports of the process. Raises StartError for an invalid configuration."""

    def __init__(self, config: TlsConfig) -> None:
        self.mode = config.mode
        self.context = None if config.mode is TlsMode.DISABLED else server_context(config)
        self.established = 0
        self.failed = 0
        self.refused = 0

    def __repr__(self) -> str:
        return f"<ServerTls {self.mode.value} established={self.established} failed={self.failed}>"

    @property
    def verifies_clients(self) -> bool:
        """Return whether certificates of clients are requested and verified."""
        return self.context is not None and self.context.current.verify_mode is not ssl.CERT_NONE

    def statistics(self) -> TlsStatistics:
        """Return the current figures."""
        return TlsStatistics(
            mode=self.mode.value,
            established=self.established,
            failed=self.failed,
            refused=self.refused,
            reloads=self.context.reloads if self.context else 0,
            reload_failures=self.context.failures if self.context else 0,
        )

    def reload_certificates(self) -> None:
        """Use a changed certificate for new connections."""
        if self.context is not None:
            self.context.reload_if_changed()

    def refusal(self, *, speaks_tls: bool) -> str | None:
        """Return why such a connection is closed, or None: the table in the module docstring."""
        if not speaks_tls:
            return "plain, and tls.server.mode is enforcing" if self.mode is TlsMode.ENFORCING else None
        if self.mode is TlsMode.DISABLED:
            return "TLS, and tls.server.mode is disabled"
        return "TLS, and there is no certificate" if self.context is None else None


# Contexts.


def server_context(config: TlsConfig) -> ReloadingContext | None:
    """Return the context of accepted connections; None if there is no certificate and none is required."""
    check_pair("server", config.cert_path, config.key_path)
    verifies = config.verifies_clients
    if config.need_client_auth is ClientAuth.REQUIRE and not verifies:
        raise StartError(
            "tls.server.need.client.auth=require: expected with tls.server.authClient=true, "
            "an unverified certificate proves nothing"
        )
    tests = config.cert_path is None if config.test_mode is None else config.test_mode
    if not tests and config.cert_path is None:
        raise StartError("tls.test.mode.enable=false: expected with tls.server.certPath and tls.server.keyPath")
    try:
        pem = self_signed() if tests else None
    except OSError as error:
        if config.mode is TlsMode.ENFORCING:
            raise StartError(f"tls.server.mode=enforcing: no test certificate: {error}") from None
        log.info("no TLS, no test certificate reason=%s", error)
        return None

    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.options |= ssl.OP_NO_RENEGOTIATION
        if pem is None:
            load_own(context, config.cert_path, config.key_path, config.key_password)
        else:
            load_pem(context, pem)
        if verifies:
            context.verify_mode = VERIFY_MODES[config.need_client_auth]
            load_trust(context, config.trust_cert_path, ssl.Purpose.CLIENT_AUTH)
        return context

    files = [config.trust_cert_path] if tests else [config.cert_path, config.key_path, config.trust_cert_path]
    log.info("tls mode=%s certificate=%s", config.mode.value, "for tests" if tests else config.cert_path)
    return reloading_context("server", files, make)


def client_context(config: OutboundTlsConfig, mode: TlsMode) -> ReloadingContext | None:
    """Return the context of outbound connections in a process with this server mode; None: they are plain.

    Host names in certificates are not compared with addresses, as in RocketMQ: any certificate of a trusted authority
    is accepted.
    """
    if not config.is_on(mode):
        return None
    check_pair("client", config.cert_path, config.key_path)

    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED if config.verifies_servers else ssl.CERT_NONE
        if config.verifies_servers:
            load_trust(context, config.trust_cert_path, ssl.Purpose.SERVER_AUTH)
        if config.cert_path is not None:
            load_own(context, config.cert_path, config.key_path, config.key_password)
        return context

    return reloading_context("client", [config.cert_path, config.key_path, config.trust_cert_path], make)


def reloading_context(side: str, files: list[Path | None], make: Callable[[], ssl.SSLContext]) -> ReloadingContext:
    """Return a context of these files. Raises StartError if they are invalid."""
    try:
        return ReloadingContext(files, make)
    except OSError as error:
        raise StartError(f"tls.{side}.certPath, keyPath, trustCertPath: {reason_of(error)}") from None


def check_pair(side: str, cert_path: Path | None, key_path: Path | None) -> None:
    """Check that certificate and key are set together. Raises StartError otherwise."""
    if (cert_path is None) != (key_path is None):
        given, lacking = ("certPath", "keyPath") if key_path is None else ("keyPath", "certPath")
        raise StartError(f"tls.{side}.{given}={cert_path or key_path}: expected with tls.{side}.{lacking}")


def load_own(context: ssl.SSLContext, cert_path: Path | None, key_path: Path | None, password: str | None) -> None:
    """Load our certificate and its key. Raises OSError with the file names."""
    assert cert_path is not None  # checked when the configuration was read
    assert key_path is not None
    for path in (cert_path, key_path):
        path.open("rb").close()  # its error names the file; the error of ssl does not
    try:
        context.load_cert_chain(cert_path, key_path, lambda: password or "")  # else it prompts
    except ssl.SSLError as error:
        raise OSError(f"{cert_path} with {key_path}: {reason_of(error)}") from error


def load_trust(context: ssl.SSLContext, trust_cert_path: Path | None, purpose: ssl.Purpose) -> None:
    """Load the trusted authorities. Raises OSError with the file name."""
    if trust_cert_path is None:
        context.load_default_certs(purpose)
        return
    trust_cert_path.open("rb").close()
    try:
        context.load_verify_locations(trust_cert_path)
    except ssl.SSLError as error:
        raise OSError(f"{trust_cert_path}: {reason_of(error)}") from error


@cache
def self_signed() -> bytes:
    """Return a key and its certificate as PEM, the same for the whole process. Raises OSError if `openssl` fails."""
    try:
        made = subprocess.run(TEST_CERTIFICATE, check=True, capture_output=True, timeout=OPENSSL_TIMEOUT_S)
    except subprocess.SubprocessError as error:
        raise OSError(f"the command openssl failed: {error}") from error
    return made.stdout


def load_pem(context: ssl.SSLContext, pem: bytes) -> None:
    """Load key and certificate from memory, through a file that only this user can read."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)


def verified_subject(engine: ssl.SSLObject) -> str | None:
    """Return the subject of the peer's verified certificate, or None."""
    certificate = engine.getpeercert()
    if not certificate:
        return None
    names = cast(tuple[tuple[tuple[str, str], ...], ...], certificate.get("subject", ()))
    return ",".join(
        sorted(
            f"{ATTRIBUTE_TYPES.get(kind, kind).upper()}={re.sub(SPECIAL, ESCAPE, value)}"
            for name in names
            for kind, value in name
        )
    )


def file_fingerprint(file: Path) -> tuple[int, int, int] | None:
    """Return a value that changes with the file's content; None if the file cannot be accessed."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def reason_of(error: BaseException) -> str:
    """Return an error's text without OpenSSL's source locations."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    if isinstance(error, ssl.SSLError):
        return "not PEM, or damaged"
    return str(error) or type(error).__name__
