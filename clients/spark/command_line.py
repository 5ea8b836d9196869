"""The parts that all `mqspark-` commands share: options, checks of arguments and cluster, errors, exit codes.

    with reporting("mqspark-x"):               errors become a line on stderr and an exit code
        settings = key_values(conf or [])
        check_cluster(options, topics)
        spark = started("mqspark-x", settings, master)      clients/spark/session.py
        ...

Exit codes: 0 done; 1 failed; 2 not started: a wrong argument, no cluster, no topic.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Final

import typer
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from skylarkmq.clients.arrow.topic.options import ClusterOptions
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.base.background_loop import run
from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.clients.spark.base.options import OptionError

FAILED: Final = 1
NOT_STARTED: Final = 2
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_THEIR_ERROR: Final = re.compile(
    r"^(?:skylarkmq\.[\w.]+|\w+(?:Error|Exception)|: [\w.$]+): (.+)$",  # ours, Python's, Java's in the format of py4j
    re.MULTILINE,
)

NameServer = Annotated[str, typer.Option("-n", "--name-server", metavar="ADDR;ADDR", help="Name servers, host:port.")]
Given = Annotated[list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="Any option of the source.")]
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark.")]
Master = Annotated[str | None, typer.Option("--master", help="Spark's master; default: spark-submit's, or local[*].")]


class NotStarted(Exception):
    """The command cannot start; the text describes the cause and the remedy."""


class Failed(Exception):
    """The command failed after it had started; the text describes the cause and the remedy."""


# Errors.


@contextmanager
def reporting(command: str) -> Iterator[None]:
    """End the command with one line on stderr and its exit code if the body raises an error that a user can cause.

    NotStarted and OptionError: 2. Failed, errors of Spark, of the cluster and of files: 1. Others are raised unchanged.
    """
    try:
        yield
    except (NotStarted, OptionError) as error:
        typer.echo(f"{command}: {error}", err=True)
        raise typer.Exit(NOT_STARTED) from None
    except (Failed, PySparkException, Py4JError, ClientError, OSError) as error:
        typer.echo(f"{command}: {error_summary(str(error))}", err=True)
        raise typer.Exit(FAILED) from None


def error_summary(error: str) -> str:
    """Return the line of a long error that names the cause: the last Python error in it, if there is one."""
    found = _THEIR_ERROR.findall(error)
    return found[-1] if found else next(iter(error.strip().splitlines()), "")


# Arguments.


def read(path: str) -> str:
    """Return a file's text. Raises NotStarted."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotStarted(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def size(text: str, option: str) -> int:
    """Return the bytes of a size such as `256m`; errors name the option. Raises NotStarted."""
    found = re.fullmatch(r"(\d+)([kmg]?)b?", text.strip().lower())
    if found is None or not int(found[1]):
        raise NotStarted(f"{option} must be a size such as 256m, not {text!r}")
    return int(found[1]) * _UNITS[found[2]]


def key_values(given: Sequence[str]) -> dict[str, str]:
    """Parse KEY=VALUE texts. Raises NotStarted."""
    wrong = [text for text in given if "=" not in text]
    if wrong:
        raise NotStarted(f"{wrong[0]!r} must be KEY=VALUE")
    return {name: value for name, _, value in (text.partition("=") for text in given)}


# The cluster.


def check_cluster(options: ClusterOptions, topics: Iterable[str] = (), advice: str | None = None) -> None:
    """Raises NotStarted unless a name server responds and has routes for the topics.

    `advice` for a missing topic; None: the name of a similar one, or to create it.
    """

    async def known_topics() -> list[str]:
        async with Client(options.name_server, options.client_settings()) as client, Admin(client=client) as admin:
            return await admin.topics()

    try:
        known = run(known_topics())
    except (ClientError, OSError, ValueError) as error:
        raise NotStarted(
            f"no name server responds at {options.name_server}: {error} Check --name-server and that it runs."
        ) from error
    missing = [topic for topic in topics if topic not in known]
    if missing:
        near = get_close_matches(missing[0], known, 1)
        hint = f"did you mean {near[0]}?" if near else "create it, or send a message to it."
        raise NotStarted(f"topic {missing[0]} does not exist: {advice or hint}")
