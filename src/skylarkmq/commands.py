"""The console commands. If packages of a command are missing, it names the extra that installs them, in one line."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


class MissingExtra(ImportError):
    """Packages that a part of Skylark needs are not installed; the message names the extra that installs them."""


def load(module: str, name: str, extra: str) -> Any:
    """Return `name` of one of our modules. Raises MissingExtra if a package of the extra is not installed."""
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
    """Run the broker, with the console as a part that it can serve."""
    _command("skylarkmq.broker.app.cli", "mqbroker", "broker")(obj=_console)


def mqnamesrv() -> None:
    """Run the name server."""
    _command("skylarkmq.broker.app.cli", "mqnamesrv", "broker")()


def mqadmin() -> None:
    """Run a command of an operator."""
    _command("skylarkmq.clients.mqadmin.app.cli", "main", "admin")()


def mqbench() -> None:
    """Run the load generator."""
    _command("skylarkmq.clients.mqbench.commands", "mqbench", "bench")()


def mqspark_pipeline() -> None:
    """Run the pipeline from topics to Parquet."""
    _command("skylarkmq.clients.spark.pipeline.command", "main", "spark")()


def mqspark_table() -> None:
    """Run the maintenance of a table."""
    _command("skylarkmq.clients.spark.tables.command", "main", "spark")()


def mqspark_archive() -> None:
    """Run the archive job."""
    _command("skylarkmq.clients.spark.archive.command", "main", "spark")()


def mqspark_replay() -> None:
    """Run the replay of archived or stored messages."""
    _command("skylarkmq.clients.spark.replay.command", "main", "spark")()


def mqspark_lag() -> None:
    """Run the sampler and the report of consumer lag."""
    _command("skylarkmq.clients.spark.jobs.lag_command", "main", "spark")()


def mqspark_dead_letters() -> None:
    """Run the triage of dead letters."""
    _command("skylarkmq.clients.spark.jobs.dead_letters_command", "main", "spark")()


def mqspark_traces() -> None:
    """Run the analytics of message traces."""
    _command("skylarkmq.clients.spark.jobs.traces_command", "main", "spark")()


def mqspark_duplicates() -> None:
    """Run the search for duplicate messages."""
    _command("skylarkmq.clients.spark.jobs.duplicates_command", "main", "spark")()


def _console(backend: Any) -> Any:
    """Return the console of a broker (`broker.ops.pages.console.ConsoleFactory`)."""
    return load("skylarkmq.clients.console.app.embedded", "embedded_console", "broker")(backend)


def _command(module: str, name: str, extra: str) -> Callable[..., object]:
    try:
        command: Callable[..., object] = load(module, name, extra)
    except MissingExtra as error:
        sys.exit(str(error))
    return command
