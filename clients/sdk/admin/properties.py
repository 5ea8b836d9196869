"""Settings as text, a line `key=value` each: bodies of UPDATE_BROKER_CONFIG (25), GET_BROKER_CONFIG (26),
UPDATE_NAMESRV_CONFIG (318) and GET_NAMESRV_CONFIG (319).

RocketMQ's servers write values as they are, without escapes, so values are read as they are.
"""

from collections.abc import Mapping

from skylarkmq.clients.sdk.base.arguments import check_type
from skylarkmq.clients.sdk.base.errors import InvalidArgument


def encode_properties(settings: Mapping[str, str]) -> bytes:
    """Return the body. InvalidArgument if a key is empty, or a key or value has a line break."""
    for key, value in settings.items():
        check_type("key", key, str)
        check_type("value", value, str)
        if not key or "=" in key or len(f"{key}{value}x".splitlines()) > 1:
            raise InvalidArgument(f"setting {key!r}: a name without =, and a value without line breaks")
    return "".join(f"{key}={value}\n" for key, value in settings.items()).encode()


def decode_properties(body: bytes) -> dict[str, str]:
    """Return the settings in their order. ValueError if the body is no UTF-8 text."""
    pairs = (line.partition("=") for line in body.decode().splitlines() if not line.startswith("#"))
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}
