"""TLS: who has to speak it, with which certificate, and what a new certificate changes.

    mode        TLS client    plain client
    disabled    closed        served
    permissive  served        served            the default, as in RocketMQ
    enforcing   served        closed

Certificates are files that somebody replaces: `ReloadingContext` looks at them now and then, and makes a new context
when one has changed. Connections that stand keep the old one; a file that is damaged, or a key that does not fit its
certificate (yet), leaves the old one in place and is told in the log, once for each state of the files.

Without a certificate there is one for tests, as in RocketMQ (`tls.test.mode.enable`): made when it is first needed by
the command `openssl`, signed by itself, gone with the process. It keeps nobody from listening in who can come between;
but a client that is set to `tls.enable` and nothing else is served.

An SSLContext cannot ask for a certificate and then not look at it, so `need_client_auth` only means something together
with `auth_client`; to require one that nobody checks is refused at the start.
"""

import logging
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.broker.errors import StartError
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

log = logging.getLogger(__name__)


class TlsStatistics(msgspec.Struct, frozen=True):
    """TLS at one moment; counters are totals since the start."""

    mode: str
    established: int  # handshakes that succeeded
    failed: int  # handshakes that did not: refused, garbage, given up, too slow
    refused: int  # connections of a kind that the mode does not allow
    reloads: int
    reload_failures: int


class ReloadingContext:
    """A context that follows its files. `make` reads them; OSError says why it cannot."""

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
        """The context of the files as they are now, or of the last that could be used."""
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
        except OSError as error:
            self.failures += 1
            log.warning("certificate not reloaded, the former one stays files=%s reason=%s", files, reason_of(error))
        else:
            self.reloads += 1
            log.info("certificate reloaded files=%s", files)

    def _fingerprints(self) -> list[tuple[int, int, int] | None]:
        """What tells one state of the files from another."""
        return [file_fingerprint(file) for file in self._files]


class ServerTls:
    """TLS of the connections that we accept, on all ports of the process. StartError for what cannot be."""

    def __init__(self, config: TlsConfig) -> None:
        self.mode = config.mode
        self.context = None if config.mode is TlsMode.DISABLED else server_context(config)
        self.established = 0
        self.failed = 0
        self.refused = 0

    def __repr__(self) -> str:
        return f"<ServerTls {self.mode.value} established={self.established} failed={self.failed}>"

    def statistics(self) -> TlsStatistics:
        """The figures now."""
        return TlsStatistics(
            mode=self.mode.value,
            established=self.established,
            failed=self.failed,
            refused=self.refused,
            reloads=self.context.reloads if self.context else 0,
            reload_failures=self.context.failures if self.context else 0,
        )

    def reload_certificates(self) -> None:
        """Have new connections get a new certificate, if there is one."""
        if self.context is not None:
            self.context.reload_if_changed()

    def refusal(self, *, speaks_tls: bool) -> str | None:
        """Why such a connection is closed, or None: the table above."""
        if not speaks_tls:
            return "plain, and tls.server.mode is enforcing" if self.mode is TlsMode.ENFORCING else None
        if self.mode is TlsMode.DISABLED:
            return "TLS, and tls.server.mode is disabled"
        return "TLS, and there is no certificate" if self.context is None else None


# Contexts.


def server_context(config: TlsConfig) -> ReloadingContext | None:
    """What accepted connections get; None if there is no certificate and nobody insists on one."""
    check_pair("server", config.cert_path, config.key_path)
    verifies = config.trust_cert_path is not None if config.auth_client is None else config.auth_client
    if config.need_client_auth is ClientAuth.REQUIRE and not verifies:
        raise StartError(
            "tls.server.need.client.auth=require: expected with tls.server.authClient=true, "
            "a certificate that nobody checks proves nothing"
        )
    tests = config.cert_path is None if config.test_mode is None else config.test_mode
    if not tests and config.cert_path is None:
        raise StartError("tls.test.mode.enable=false: expected with tls.server.certPath and tls.server.keyPath")
    try:
        pem = self_signed() if tests else None
    except OSError as error:
        if config.mode is TlsMode.ENFORCING:
            raise StartError(f"tls.server.mode=enforcing: no test certificate: {error}") from None
        log.info("no TLS, for want of a test certificate reason=%s", error)
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
    """What connections that we open get, in a process with this server mode; None: they are plain.

    Names in certificates are not compared with addresses, as RocketMQ does not: who has a certificate of a trusted
    authority is trusted.
    """
    if not config.is_on(mode):
        return None
    check_pair("client", config.cert_path, config.key_path)
    verifies = config.trust_cert_path is not None if config.auth_server is None else config.auth_server

    def make() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED if verifies else ssl.CERT_NONE
        if verifies:
            load_trust(context, config.trust_cert_path, ssl.Purpose.SERVER_AUTH)
        if config.cert_path is not None:
            load_own(context, config.cert_path, config.key_path, config.key_password)
        return context

    return reloading_context("client", [config.cert_path, config.key_path, config.trust_cert_path], make)


def reloading_context(side: str, files: list[Path | None], make: Callable[[], ssl.SSLContext]) -> ReloadingContext:
    """A context of these files; StartError if they will not do."""
    try:
        return ReloadingContext(files, make)
    except OSError as error:
        raise StartError(f"tls.{side}.certPath, keyPath, trustCertPath: {reason_of(error)}") from None


def check_pair(side: str, cert_path: Path | None, key_path: Path | None) -> None:
    """A certificate goes with its key."""
    if (cert_path is None) != (key_path is None):
        given, lacking = ("certPath", "keyPath") if key_path is None else ("keyPath", "certPath")
        raise StartError(f"tls.{side}.{given}={cert_path or key_path}: expected with tls.{side}.{lacking}")


def load_own(context: ssl.SSLContext, cert_path: Path | None, key_path: Path | None, password: str | None) -> None:
    """Read our certificate and its key; OSError names the files."""
    assert cert_path is not None  # checked with its key when the configuration was read
    assert key_path is not None
    for path in (cert_path, key_path):
        path.open("rb").close()  # whose error names the file, which ssl's does not
    try:
        context.load_cert_chain(cert_path, key_path, lambda: password or "")  # without one it would ask the terminal
    except ssl.SSLError as error:
        raise OSError(f"{cert_path} with {key_path}: {reason_of(error)}") from error


def load_trust(context: ssl.SSLContext, trust_cert_path: Path | None, purpose: ssl.Purpose) -> None:
    """Read the authorities; OSError names the file."""
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
    """A key and its certificate as PEM, one for the process; OSError if they cannot be made."""
    try:
        made = subprocess.run(TEST_CERTIFICATE, check=True, capture_output=True, timeout=OPENSSL_TIMEOUT_S)
    except subprocess.SubprocessError as error:
        raise OSError(f"the command openssl failed: {error}") from error
    return made.stdout


def load_pem(context: ssl.SSLContext, pem: bytes) -> None:
    """Read key and certificate from memory, by way of a file that nobody else may read."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)


def file_fingerprint(file: Path) -> tuple[int, int, int] | None:
    """What changes with a file's content; None if it cannot be seen."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def reason_of(error: BaseException) -> str:
    """An error without OpenSSL's places in its own source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    if isinstance(error, ssl.SSLError):
        return "not PEM, or damaged"
    return str(error) or type(error).__name__
