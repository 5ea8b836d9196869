"""The commands `mqbroker` and `mqnamesrv`: from arguments to a running daemon, or to one line on stderr.

Both do the same: collect the settings (file, environment, flags), print them on request, start the event loop with the
signal handlers, and turn a StartError into one line and exit code 1. Logs go to stdout, so stderr contains only the
reason why a daemon did not start.

`mqbroker store ...` inspects a store directory instead. Its module is imported on demand, since the daemon does not
need its dependencies.

The console command passes the factory of the console as the object of its context (src/skylarkmq/commands.py): the
broker imports no clients.

SIGTERM and SIGINT stop the daemon in order; a second signal ends the process at once, with exit code 1.
"""

import asyncio
import json
import logging
import os
import platform
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeVar

import typer
import uvloop
from typer.core import TyperGroup
from typer.main import get_command

from skylarkmq.broker.app import daemon
from skylarkmq.broker.app.host.addresses import own_address, pod_host
from skylarkmq.broker.app.namesrv import serve_namesrv
from skylarkmq.broker.base import page_faults
from skylarkmq.broker.base.errors import DaemonEnded, StartError
from skylarkmq.broker.base.printable import LineFormatter, printable
from skylarkmq.broker.config.keys import BROKER_KEYS, NAMESRV_KEYS
from skylarkmq.broker.config.parsing import NAMESRV_KEY, Catalogue, Given, from_environment, from_file, from_flags
from skylarkmq.broker.config.sections import EffectiveSetting, Loaded, Machine, load_broker, load_namesrv
from skylarkmq.broker.remoting.config import TlsConfig
from skylarkmq.protocol import compiled

MAY_RESTART: Final = 75
"""Exit code of a daemon that ended and may be started again at once: EX_TEMPFAIL of sysexits.h."""
NEEDS_OPERATOR: Final = 78
"""Exit code of a daemon that must not be started again before an operator has acted: EX_CONFIG of sysexits.h."""
DISTRIBUTION: Final = "skylarkmq"
LOG_FORMAT: Final = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s"
FORCE_GAP_KEY: Final = "forceGap"
ACL_DIRECTORY_KEY: Final = "aclConfigDir"
TLS_FILE_KEY: Final = "tls.config.file"

Config = TypeVar("Config")
Serve = Callable[[Loaded[Config], asyncio.Event], Awaitable[None]]

log = logging.getLogger("skylarkmq.broker")

BROKER_HELP: Final = """
Run a message broker for RocketMQ clients.

Without -n or namesrvAddr the broker runs its own name server, on port 9876.

Examples:\n
  mqbroker                                            broker and name server on 127.0.0.1, store in ./store\n
  mqbroker -c broker.conf -n ns1:9876;ns2:9876        with RocketMQ's properties file, in a cluster\n
  mqbroker --set brokerIP1=10.0.0.5                   reachable from other machines\n
  mqbroker -c broker.conf -p                          print the settings and where each value comes from\n
  mqbroker store verify ./store                       check whether a store is consistent; see also dump and repair\n
  mqbroker store backup ./backup                      copy the store of a running broker; see also restore\n
"""

NAMESRV_HELP: Final = """
Run a name server, which brokers register with and clients get routes from.

Examples:\n
  mqnamesrv                                           on port 9876 of all addresses\n
  mqnamesrv --set listenPort=9877 --set bindAddress=127.0.0.1\n
"""


def show_version(wanted: bool) -> None:
    if wanted:
        python = f"Python {platform.python_version()}"
        parts = f"{python}, uvloop {version('uvloop')}, {compiled.variant()}"
        typer.echo(f"{DISTRIBUTION} {version(DISTRIBUTION)} ({parts})")
        raise typer.Exit


ConfigFile = Annotated[
    Path | None, typer.Option("-c", "--config", metavar="FILE", help="Properties file with RocketMQ's keys.")
]
NamesrvAddr = Annotated[
    str | None, typer.Option("-n", "--namesrv", metavar="ADDR;ADDR", help="Name servers as host:port.")
]
PrintSettings = Annotated[bool, typer.Option("-p", "--print", help="Print all effective settings, and exit.")]
AsJson = Annotated[bool, typer.Option("--json", help="With -p: as JSON.")]
ForceGap = Annotated[bool, typer.Option("--force-gap", help="Start even if a file of the commit log is missing.")]
Pairs = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set one key; may be repeated.")]
Version = Annotated[
    bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print versions, and exit.")
]


class Commands(TyperGroup):
    """The subcommands of `mqbroker` by name: modules with a Typer of that name."""

    modules: ClassVar = {"store": "skylarkmq.broker.store_tool.commands"}

    def list_commands(self, _ctx: Any) -> list[str]:
        return list(self.modules)

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        module = self.modules.get(cmd_name)
        return None if module is None else get_command(getattr(import_module(module), cmd_name))


mqbroker = typer.Typer(cls=Commands, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
mqnamesrv = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@mqbroker.callback(invoke_without_command=True, help=BROKER_HELP)
def _mqbroker(
    context: typer.Context,
    config: ConfigFile = None,
    namesrv: NamesrvAddr = None,
    show: PrintSettings = False,
    as_json: AsJson = False,
    force_gap: ForceGap = False,
    pairs: Pairs = None,
    _version: Version = False,
) -> None:
    if context.invoked_subcommand is not None:
        if config or namesrv or show or as_json or force_gap or pairs:
            raise typer.BadParameter(f"put the options of {context.invoked_subcommand} after it")
        return
    named = [Given(NAMESRV_KEY, namesrv, "-n")] if namesrv else []
    named += [Given(FORCE_GAP_KEY, "true", "--force-gap")] if force_gap else []
    with one_line_on_stderr("mqbroker"):
        beside = [Given(ACL_DIRECTORY_KEY, str(config.parent), "-c")] if config else []
        given = [*beside, *gathered(config, pairs or [], BROKER_KEYS), *named]
        run_or_show(
            load_broker(given, this_machine())._replace(file=config),
            partial(daemon.serve, console_factory=context.obj),
            show,
            as_json,
        )


@mqnamesrv.command(help=NAMESRV_HELP)
def _mqnamesrv(
    config: ConfigFile = None,
    show: PrintSettings = False,
    as_json: AsJson = False,
    pairs: Pairs = None,
    _version: Version = False,
) -> None:
    with one_line_on_stderr("mqnamesrv"):
        given = gathered(config, pairs or [], NAMESRV_KEYS)
        run_or_show(load_namesrv(given, this_machine())._replace(file=config), serve_namesrv, show, as_json)


@contextmanager
def one_line_on_stderr(command: str) -> Iterator[None]:
    """Turn a StartError into one line on stderr and exit code 1, and a DaemonEnded into one with its own exit code."""
    try:
        yield
    except StartError as error:
        typer.echo(printable(f"{command}: {error}"), err=True)
        raise typer.Exit(1) from None
    except DaemonEnded as error:
        typer.echo(printable(f"{command}: {error}"), err=True)
        raise typer.Exit(MAY_RESTART if error.may_restart else NEEDS_OPERATOR) from None


# Where settings come from.


def gathered(config: Path | None, pairs: list[str], catalogue: Catalogue) -> list[Given]:
    """Return every key that was given, weakest source first."""
    in_file = list(from_file(read_file(config), str(config))) if config else []
    outside = [*from_environment(os.environ, catalogue, read_value), *from_flags(pairs)]
    return [*in_file, *in_tls_file([*in_file, *outside]), *outside]


def in_tls_file(given: list[Given]) -> Iterator[Given]:
    """Yield the keys of the file that `tls.config.file` names; RocketMQ's default file is read only if it exists."""
    named = [Path(text) for key, text, *_ in given if key == TLS_FILE_KEY]
    path = named[-1] if named else TlsConfig().config_file
    return from_file(read_file(path), str(path)) if named or path.is_file() else iter(())


def read_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def read_value(name: str) -> str:
    """Return the content of a file that an environment variable names."""
    return read_file(Path(name.strip()))


def this_machine() -> Machine:
    host_name = socket.gethostname()
    return Machine(
        host_name=host_name,
        address=own_address(),
        home=own_home(),
        resolve=resolved,
        pod_host=pod_host(os.environ, host_name, socket.getfqdn),
    )


def own_home() -> Path:
    """Return this user's home directory; `/`, as container runtimes do, for a user id without one."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def resolved(host: str) -> str:
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        problem = error.strerror
    except UnicodeError:
        problem = "a label of the name is empty or too long"
    raise StartError(f"{host!r} (brokerIP1, bindAddress or POD_IP) has no address: {problem}")


# Running.


def run_or_show(loaded: Loaded[Config], serve: Serve[Config], show: bool, as_json: bool) -> None:
    if show:
        for warning in loaded.warnings:
            typer.echo(f"warning: {warning}", err=True)
        typer.echo(json_of(loaded.effective) if as_json else table_of(loaded.effective))
        return
    configure_logging()
    raise_descriptor_limit()
    for warning in loaded.warnings:
        log.warning("setting ignored: %s", warning)
    for note in loaded.notes:
        log.info("setting without effect: %s", note)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(until_stopped(loaded, serve))


def table_of(effective: Sequence[EffectiveSetting]) -> str:
    """Return key, value and origin in columns."""
    keys, values = (max(map(len, column)) for column in zip(*((row.key, row.value) for row in effective), strict=True))
    return "\n".join(f"{row.key:{keys}}  {row.value:{values}}  {row.origin}" for row in effective)


def json_of(effective: Sequence[EffectiveSetting]) -> str:
    return json.dumps({row.key: {"value": row.value, "origin": row.origin} for row in effective}, indent=2)


def configure_logging() -> None:
    """Log to stdout, one line per record, whatever text clients have sent. Only for the daemons; an embedded broker
    uses the logging of its program."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(LineFormatter(LOG_FORMAT, datefmt="%Y-%m-%d %H:%M:%S"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    page_faults.install()


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to the hard limit, as a JVM does: connections use up a shell's 1,024 soon."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        log.info("open files allowed: %d, raised from %d", hard, soft)


async def until_stopped(loaded: Loaded[Config], serve: Serve[Config]) -> None:
    """Serve until a signal requests a stop."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal, number, stop)
    await serve(loaded, stop)


def on_signal(number: signal.Signals, stop: asyncio.Event) -> None:
    if stop.is_set():
        log.warning("stopping at once signal=%s", number.name)
        os._exit(1)
    log.info("stopping signal=%s", number.name)
    stop.set()
