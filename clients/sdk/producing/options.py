"""Options of producers; those of every object are in clients/sdk/connection/options.py."""

from collections.abc import Callable
from typing import Any

from skylarkmq.clients.sdk.base.field_docstrings import explained
from skylarkmq.clients.sdk.base.settings import ProducerSettings
from skylarkmq.clients.sdk.connection.options import StandaloneOptions, TracedOptions
from skylarkmq.clients.sdk.messages.compression import Compression

Serializer = Callable[[Any], bytes]
"""Returns the body for a value."""


@explained
class ProducerOptions(TracedOptions, total=False):
    """Options of `Producer` and `TransactionProducer`."""

    settings: ProducerSettings | None
    """Limits and times of the producer. Default: `ProducerSettings()`."""
    compression: Compression | None
    """Codec of large bodies: `"zlib"`, `"lz4"` or `"zstd"`; None: bodies are never compressed. Default: `"zlib"`."""
    serializer: Serializer | None
    """Makes the bodies of `Producer.message` from values. Default: bodies are bytes."""


@explained
class StandaloneProducerOptions(StandaloneOptions, ProducerOptions, total=False):
    """Options of a producer that is made without `connect`."""
