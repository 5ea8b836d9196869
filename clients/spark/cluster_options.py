"""The options of every format that connects to brokers: name servers, credentials and TLS.

A table of options includes `CLUSTER_ROWS`, and its struct extends `ClusterOptions`.
"""

from typing import Final

import msgspec

from skylarkmq.clients.connection.signing import Credentials
from skylarkmq.clients.settings import ClientSettings, TlsSettings
from skylarkmq.clients.spark.options import Option, Secret, flag, secret, text


def addresses(value: str) -> str:
    """Return the `host:port` addresses joined by semicolons. Input may use semicolons or commas."""
    parts = [part.strip() for part in value.replace(",", ";").split(";") if part.strip()]
    if not parts or not all(part.rpartition(":")[0] and part.rpartition(":")[2].isdigit() for part in parts):
        raise ValueError("host:port, or host:port;host:port")
    return ";".join(parts)


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a cluster. Without keys, requests are not signed; without TLS, they are not encrypted."""

    name_server: str
    access_key: Secret | None = None
    secret_key: Secret | None = None
    security_token: Secret | None = None
    tls: bool = False
    tls_trust: str | None = None
    tls_check_server: bool = True
    tls_check_host_name: bool = True
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_key_password: Secret | None = None

    def __post_init__(self) -> None:
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("accessKey and secretKey go together: give both or neither")

    def client_settings(self) -> ClientSettings:
        """Return the SDK settings that these options stand for."""
        return ClientSettings(tls=self.tls_settings(), credentials=self.credentials())

    def credentials(self) -> Credentials | None:
        """Return the credentials that sign requests; None: requests are not signed."""
        if self.access_key is None or self.secret_key is None:
            return None
        token = None if self.security_token is None else self.security_token.text
        return Credentials(self.access_key.text, self.secret_key.text, token)

    def tls_settings(self) -> TlsSettings | None:
        """Return the TLS settings; None: no TLS. A trust or client certificate turns TLS on."""
        if not (self.tls or self.tls_trust or self.tls_certificate):
            return None
        password = None if self.tls_key_password is None else self.tls_key_password.text
        return TlsSettings(
            trust_cert_path=self.tls_trust,
            check_server=self.tls_check_server,
            check_host_name=self.tls_check_host_name,
            cert_path=self.tls_certificate,
            key_path=self.tls_key,
            key_password=password,
        )


CLUSTER_ROWS: Final = (
    Option(
        "nameServer",
        "name_server",
        "addresses of the name servers: `host:port;host:port`",
        addresses,
        aliases=("namesrvAddr",),
    ),
    Option("accessKey", "access_key", "access key for brokers with access control; never printed", secret),
    Option("secretKey", "secret_key", "key that signs requests; never printed", secret),
    Option("securityToken", "security_token", "token of temporary keys; never printed", secret),
    Option("tls.enable", "tls", "use TLS and check the server's certificate", flag, "false"),
    Option(
        "tls.trustCertPath",
        "tls_trust",
        "PEM file of the authorities that sign server certificates",
        text,
        default_text="the system's",
    ),
    Option("tls.checkServer", "tls_check_server", "false: do not check the server's certificate", flag, "true"),
    Option(
        "tls.checkHostName",
        "tls_check_host_name",
        "also check that the certificate is for the address of the connection",
        flag,
        "true",
    ),
    Option("tls.certPath", "tls_certificate", "PEM file of the client certificate, for servers that require one", text),
    Option(
        "tls.keyPath",
        "tls_key",
        "PEM file of the key of the client certificate",
        text,
        default_text="in the certificate's file",
    ),
    Option("tls.keyPassword", "tls_key_password", "password of that key; never printed", secret),
)
