"""Skylark: a message broker that speaks Apache RocketMQ's protocols, and a typed asyncio SDK for it.

    from skylarkmq import Message, Producer

docs/use/sdk.md introduces the SDK. Its names are loaded on first use, because the broker and Spark's workers import
this package without the SDK.

    skylarkmq.blocking      the SDK for scripts and threads
    skylarkmq.options       the options of `connect` and of the classes, as types
    skylarkmq.allocation    the rules by which the members of a group share queues
    skylarkmq.hooks         callbacks about sends, handler calls and connections
    skylarkmq.metrics       the hooks for Prometheus
    skylarkmq.tracing       the hooks for OpenTelemetry
    skylarkmq.admin_types   the types that `Admin` takes and returns
    skylarkmq.testing       the pytest plugin with the fixture `mq_broker`
    skylarkmq.arrow         topics and store directories as Arrow record batches
    skylarkmq.spark         formats for Spark; skylarkmq.spark_jobs and skylarkmq.spark_replay: the jobs from Python

All other modules of the SDK belong to the implementation, and may change at any time.
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
