"""TLS of a client's connections, to name servers and brokers alike.

A certificate is checked twice, unless told otherwise: by who signed it (`trust_cert_path`, else the system's
authorities), and by its name, which must be the host of the address that was dialled. A client dials the name servers
that it was given and the brokers that these tell it of, mostly by IP address (`brokerIP1`): so a broker's certificate
needs that address among its subject alternative names, or clients leave `check_host_name`. Host names, not IP
addresses, are also told to the server in the handshake (SNI).

RocketMQ's Java clients check nothing by default, and never names; a broker in its test mode can be reached only so:
`TlsSettings(check_server=False)`.
"""

import ssl

from skylarkmq.clients.settings import TlsSettings


def tls_context(tls: TlsSettings | ssl.SSLContext | None) -> ssl.SSLContext | None:
    """The context to connect with; None: plain. OSError if a file cannot be read or is none of its kind."""
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
        # Without a password OpenSSL would ask the terminal for one.
        context.load_cert_chain(tls.cert_path, tls.key_path, lambda: tls.key_password or "")
    return context
