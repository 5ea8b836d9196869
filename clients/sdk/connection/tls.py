"""TLS of a client's connections, to name servers and brokers.

By default a server's certificate is checked twice: its issuer (`trust_cert_path`, or the system's authorities), and its
name, which must be the host of the address that the client connects to. A client connects to the configured name
servers and to the brokers in their responses, mostly by IP address (`brokerIP1`). So a broker's certificate needs that
address among its subject alternative names, or clients disable `check_host_name`. Host names, but not IP addresses, are
sent to the server in the handshake (SNI).

RocketMQ's Java clients check neither issuer nor name by default. A broker in test mode accepts only such clients:
`TlsSettings(check_server=False)`.
"""

import ssl

from skylarkmq.clients.sdk.base.settings import TlsSettings


def tls_context(tls: TlsSettings | ssl.SSLContext | None) -> ssl.SSLContext | None:
    """Return the context of a client's connections; None: no TLS. OSError if a file cannot be read or is invalid."""
    if tls is None or isinstance(tls, ssl.SSLContext):
        return tls
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.check_server and tls.check_host_name
    context.verify_mode = ssl.CERT_REQUIRED if tls.check_server else ssl.CERT_NONE
    if tls.trust_cert_path is not None:
        context.load_verify_locations(tls.trust_cert_path)
    elif tls.check_server:
        context.load_default_certs()
    if tls.cert_path is not None:
        # Without a password function OpenSSL would prompt on the terminal.
        context.load_cert_chain(tls.cert_path, tls.key_path, lambda: tls.key_password or "")
    return context
