"""Options of producers; those of every object are in clients/sdk/connection/options.py."""

from collections.abc import Callable
from typing import Any

from skylarkmq.clients.sdk.base.settings import ProducerSettings
from skylarkmq.clients.sdk.connection.options import StandaloneOptions, TracedOptions
from skylarkmq.clients.sdk.messages.compression import Compression

Serializer = Callable[[Any], bytes]
"""Returns the body for a value."""


class ProducerOptions(TracedOptions, total=False):
    """Options of `Producer` and `TransactionProducer`."""

    settings: ProducerSettings | None  # limits and times
    compression: Compression | None  # codec of large bodies, "zlib", "lz4" or "zstd"; default: "zlib"; None: never
    serializer: Serializer | None  # makes the bodies of `Producer.message`; default: bodies are bytes


class StandaloneProducerOptions(StandaloneOptions, ProducerOptions, total=False):
    """Options of a producer that is made without `connect`."""
