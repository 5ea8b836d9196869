"""Certificates for tests, made by the command `openssl`: an authority and the certificates that it issues.

    made = Certificates(directory)
    server = made.issue("server")           server.cert, server.key: PEM files
    made.authority.cert                     the certificate to trust

Skips the test if the command is not installed.
"""

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

import pytest

NEW_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
NAMES: Final = "subjectAltName=DNS:localhost,IP:127.0.0.1"


class Pair(NamedTuple):
    """A certificate and its key, as PEM files."""

    cert: Path
    key: Path


class Certificates:
    """An authority with a directory for its files."""

    def __init__(self, directory: Path, authority: str = "authority") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("the command openssl is not installed")
        self._directory = directory
        self.authority = self._pair(authority)
        self._openssl("req", "-x509", "-nodes", *NEW_KEY, "-subj", f"/CN={authority}", *self._out(self.authority))

    def issue(self, name: str, password: str | None = None) -> Pair:
        """Issue a certificate with this name for 127.0.0.1 and localhost; with a password its key is encrypted."""
        pair = self._pair(name)
        secret = ("-passout", f"pass:{password}") if password else ("-nodes",)
        signer = ("-CA", self.authority.cert, "-CAkey", self.authority.key)
        names = ("-subj", f"/CN={name}", "-addext", NAMES, "-addext", "basicConstraints=critical,CA:false")
        self._openssl("req", "-x509", *NEW_KEY, *secret, *signer, *names, *self._out(pair))
        return pair

    def client_context(self, own: Pair | None = None) -> ssl.SSLContext:
        """Return the TLS context of a client that trusts this authority."""
        context = ssl.create_default_context(cafile=self.authority.cert)
        if own is not None:
            context.load_cert_chain(*own)
        return context

    def _pair(self, name: str) -> Pair:
        return Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")

    def _out(self, pair: Pair) -> tuple[str | Path, ...]:
        return ("-days", "2", "-keyout", pair.key, "-out", pair.cert)

    def _openssl(self, *arguments: str | Path) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def unverified_context() -> ssl.SSLContext:
    """Return the TLS context of a client that accepts any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
