"""The registry of commands, and how one runs: options -> connection -> Admin -> the command's coroutine.

    COMMANDS = Commands()

    @COMMANDS.add("clusterList", "List cluster infos.")
    async def cluster_list(admin: Admin, cluster: ClusterName = None) -> None: ...

A command declares its own options; `-n` and `--profile` are added, and passed to a command that declares them, too. It
prints to stdout, and raises CommandFailed or a ClientError (`failures.py`).
"""

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, NamedTuple

from skylarkmq.clients.mqadmin.connection import Connection, connection_of
from skylarkmq.clients.mqadmin.options import NamesrvAddress, ProfileName
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.terminal.command_options import set_options

Command = Callable[..., Coroutine[Any, Any, None]]
"""Called with an Admin and the values of its options."""

_COMMON: Final[dict[str, Any]] = {"namesrv": NamesrvAddress, "profile": ProfileName}


class Registered(NamedTuple):
    """A command: its name, the line that describes it, the function that typer calls, and lines that use it."""

    name: str
    description: str
    run: Callable[..., None]
    examples: tuple[str, ...] = ()

    @property
    def help(self) -> str:
        """Return the text of `--help`."""
        lines = "".join(f"\n  {line}" for line in self.examples)
        return f"{self.description}\n\n\b\nExamples:{lines}" if lines else self.description


class Commands:
    """The commands of one module, in the order of their registration."""

    def __init__(self) -> None:
        self.registered: list[Registered] = []

    def add(self, name: str, description: str, *examples: str) -> Callable[[Command], Command]:
        """Register a coroutine function as a command. `config get` is the command `get` of the group `config`."""

        def decorate(command: Command) -> Command:
            self.registered.append(Registered(name, description, _runnable(command), examples))
            return command

        return decorate


async def repeated(interval_s: float | None) -> AsyncIterator[None]:
    """Yield once; with an interval, again after each pause until an interrupt."""
    yield
    while interval_s is not None:
        await asyncio.sleep(interval_s)
        yield


def _runnable(command: Command) -> Callable[..., None]:
    """Return a plain function with the options of a command and the common ones."""
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    declared = {its.name for its in own}

    def run(**values: Any) -> None:
        connection = connection_of(values["namesrv"], values["profile"], os.environ)
        chosen = {name: value for name, value in values.items() if name in declared}
        asyncio.run(_connected(command, connection, chosen))

    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in _COMMON.items()
        if name not in declared
    ]
    set_options(run, [*own, *common])
    return run


async def _connected(command: Command, connection: Connection, values: dict[str, Any]) -> None:
    async with connection.client() as client, Admin(client=client) as admin:
        await command(admin, **values)
