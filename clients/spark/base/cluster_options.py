"""The options of every format that connects to brokers: name servers, credentials and TLS.

A table of options includes `CLUSTER_ROWS` and assembles its values with `cluster_fields`; its struct extends
clients.arrow.topic.options.ClusterOptions.
"""

from collections.abc import Mapping
from typing import Any, Final

from skylarkmq.clients.sdk.base.settings import TlsSettings
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.clients.spark.base.options import Option, flag, secret, text


def addresses(value: str) -> str:
    """Return the `host:port` addresses joined by semicolons. Input may use semicolons or commas."""
    parts = [part.strip() for part in value.replace(",", ";").split(";") if part.strip()]
    if not parts or not all(part.rpartition(":")[0] and part.rpartition(":")[2].isdigit() for part in parts):
        raise ValueError("host:port, or host:port;host:port")
    return ";".join(parts)


def cluster_fields(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with the fields `credentials` and `tls` in place of the fields of CLUSTER_ROWS.

    A trust or client certificate turns TLS on. Raises ValueError if one of the two keys is missing.
    """
    given = {name: values.pop(name, None) for name in _CREDENTIALS}
    if (given["access_key"] is None) != (given["secret_key"] is None):
        raise ValueError("accessKey and secretKey go together: give both or neither")
    tls = {field: values.pop(name) for name, field in _TLS.items() if name in values}
    is_on = values.pop("tls_enable", False) or "trust_cert_path" in tls or "cert_path" in tls
    return values | {
        "credentials": None if given["access_key"] is None else Credentials(**given),
        "tls": TlsSettings(**tls) if is_on else None,
    }


_CREDENTIALS: Final = ("access_key", "secret_key", "security_token")
_TLS: Final = {
    "tls_trust": "trust_cert_path",
    "tls_check_server": "check_server",
    "tls_check_host_name": "check_host_name",
    "tls_certificate": "cert_path",
    "tls_key": "key_path",
    "tls_key_password": "key_password",
}

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
    Option("tls.enable", "tls_enable", "use TLS and check the server's certificate", flag, "false"),
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


def of_cluster(options: Mapping[str, str]) -> dict[str, str]:
    """Return the source's options for the connection to the cluster: name servers, credentials, TLS."""
    names = {name.lower() for row in CLUSTER_ROWS for name in row.names}
    return {name: value for name, value in options.items() if name.lower() in names}
