"""Failures of commands: one line on stderr with the cause and the next step, and an exit code by class.

    0    done
    1    usage: an unknown command or option, a value that is not allowed, a file that cannot be read
    2    nothing found: an unknown topic, group, broker, cluster, key or message
    3    no connection: a name server or broker cannot be reached, or does not respond in time
    4    no permission: the cluster requires other credentials, or denies the action
    5    a broker refused the request for another reason, or its response cannot be used
    6    `mqadmin doctor` found problems, none of them an error
    7    `mqadmin doctor` found errors
    130  interrupted

RocketMQ's tool prints a stack trace and exits with 0 in all these cases.
"""

import sys
from typing import Final

from skylarkmq.clients.sdk.base.errors import (
    BrokerError,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    InvalidArgument,
    NoRoute,
    RequestTimeout,
    is_denied,
    printable,
)
from skylarkmq.protocol.codes import ResponseCode

DONE: Final = 0
USAGE: Final = 1
NOT_FOUND: Final = 2
NO_CONNECTION: Final = 3
NO_PERMISSION: Final = 4
REFUSED: Final = 5
WARNINGS_FOUND: Final = 6
ERRORS_FOUND: Final = 7
INTERRUPTED: Final = 130

_CLASSES: Final = (
    (InvalidArgument, USAGE),
    (NoRoute, NOT_FOUND),
    ((ConnectFailed, ConnectionLost, RequestTimeout), NO_CONNECTION),
    (OSError, USAGE),  # of a local file: errors of connections are ClientErrors
)
_CODES: Final[dict[int | None, int]] = {
    ResponseCode.TOPIC_NOT_EXIST: NOT_FOUND,
    ResponseCode.QUERY_NOT_FOUND: NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: NOT_FOUND,
    ResponseCode.CONSUMER_NOT_ONLINE: NOT_FOUND,
}


class CommandFailed(Exception):
    """A command cannot go on. The text is one line with the cause and the next step; empty: it was written before."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Failures:
    """The failures of a command that goes on with its other brokers. Each is written to stderr at once."""

    def __init__(self) -> None:
        self._exit_code: int | None = None

    def add(self, error: Exception) -> None:
        """Write the line of an error."""
        write_failure(error)
        self._exit_code = self._exit_code or exit_code_of(error)

    def raise_if_any(self) -> None:
        """Raise CommandFailed with the exit code of the first error."""
        if self._exit_code is not None:
            raise CommandFailed("", self._exit_code)


def usage_error(text: str) -> CommandFailed:
    """Return the error for options that contradict each other, or a value that is not allowed."""
    return CommandFailed(text, USAGE)


def not_found(text: str) -> CommandFailed:
    """Return the error for an unknown topic, group, broker, cluster or message."""
    return CommandFailed(text, NOT_FOUND)


def exit_code_of(error: Exception) -> int:
    """Return the exit code for an error of a command."""
    if isinstance(error, CommandFailed):
        return error.exit_code
    if isinstance(error, BrokerError):
        if is_denied(error):
            return NO_PERMISSION
        return _CODES.get(error.code, REFUSED)
    return next((code for kinds, code in _CLASSES if isinstance(error, kinds)), REFUSED)


def write_failure(error: Exception) -> None:
    """Write the line of an error to stderr, after the output so far."""
    sys.stdout.flush()
    sys.stderr.write(line_of(error))


def line_of(error: Exception) -> str:
    """Return the line for stderr, with its end; empty for an error that was written before."""
    text = str(error)
    if not text:
        return ""
    if isinstance(error, OSError) and not isinstance(error, ClientError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    return f"mqadmin: {printable(text)}\n"
