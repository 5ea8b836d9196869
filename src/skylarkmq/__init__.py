"""Skylark: a message broker that speaks Apache RocketMQ's protocols, and a typed asyncio SDK for it.

    from skylarkmq import Message, Producer

The SDK's names are those of `skylarkmq.clients.sdk`; docs/use/sdk.md introduces them. They are loaded on first use,
because the broker and Spark's workers import this package without the SDK.

    skylarkmq.blocking    the SDK for scripts and threads
    skylarkmq.testing     the pytest plugin with the fixture `mq_broker`
    skylarkmq.clients.sdk the SDK's modules; skylarkmq.broker and skylarkmq.protocol: the daemon's
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skylarkmq.clients.sdk import *  # noqa: F403 - the names are listed there
    from skylarkmq.clients.sdk import __all__ as __all__


def __getattr__(name: str) -> object:
    sdk = import_module("skylarkmq.clients.sdk")
    if name == "__all__" or name in sdk.__all__:
        return getattr(sdk, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *import_module("skylarkmq.clients.sdk").__all__]
