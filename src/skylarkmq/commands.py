"""The console commands. A command whose packages are not installed says in one line which extra brings them."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


class MissingExtra(ImportError):
    """A part of Skylark needs packages that are not installed; the message names the extra that brings them."""


def load(module: str, name: str, extra: str) -> Any:
    """Return `name` of a module of ours. MissingExtra: a package that the extra brings is not installed."""
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] == "skylarkmq":
            raise
        if not isinstance(error, ModuleNotFoundError):  # it names the extra, or a package is too old
            raise MissingExtra(str(error), name=error.name) from error
        part = module.removeprefix("skylarkmq.")
        message = f"{part} needs the package {error.name}: pip install 'skylarkmq[{extra}]'"
        raise MissingExtra(message, name=error.name) from error


def mqbroker() -> None:
    """The broker."""
    _command("skylarkmq.broker.cli", "mqbroker", "broker")()


def mqnamesrv() -> None:
    """The name server."""
    _command("skylarkmq.broker.cli", "mqnamesrv", "broker")()


def mqbench() -> None:
    """The load generator."""
    _command("skylarkmq.clients.mqbench.commands", "mqbench", "bench")()


def mqspark_pipeline() -> None:
    """The pipeline from topics to Parquet."""
    _command("skylarkmq.clients.spark.pipeline.command", "main", "spark")()


def _command(module: str, name: str, extra: str) -> Callable[[], object]:
    try:
        command: Callable[[], object] = load(module, name, extra)
    except MissingExtra as error:
        sys.exit(str(error))
    return command
