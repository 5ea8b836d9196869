"""Addresses of a broker as text."""

from skylarkmq.broker.config.sections import DaemonConfig


def advertised_address(config: DaemonConfig) -> str:
    """Return the address at which clients reach the broker."""
    return address_text(config.listen.advertised_host, config.listen.port)


def address_text(host: str, port: int) -> str:
    """Return `host:port`, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
