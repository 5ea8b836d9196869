"""Secrets of commands: as a value, or in a file or typed on the terminal, which appear in no list of processes and no
history of a shell.

Secrets among the settings of brokers and name servers are hidden in output; RocketMQ's servers send them.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from getpass import getpass
from pathlib import Path
from typing import Final

from skylarkmq.clients.mqadmin.connection import read_secret
from skylarkmq.clients.mqadmin.failures import CommandFailed, exit_code_of, usage_error
from skylarkmq.clients.mqadmin.options import stripped
from skylarkmq.clients.mqadmin.terminal import interruptible
from skylarkmq.clients.sdk.admin.secret_settings import is_secret
from skylarkmq.clients.sdk.base.errors import ClientError, escaped

MASK: Final = "******"


def shown(key: str, value: str) -> str:
    """Return the value, or a mask if the name of the setting suggests a secret; a switch is not hidden."""
    return MASK if is_secret(key, value) else value


def secret_of(value: str | None, file: Path | None) -> str | None:
    """Return the value, or the content of the file without white space around it; None if neither is given.

    CommandFailed if both are given, or if the file has no secret or other users can read it. OSError if it cannot be
    read.
    """
    if file is None:
        return stripped(value)
    if value is not None:
        raise usage_error("give the secret either as a value or as a file.")
    return read_secret(file)


def typed_secret(owner: str) -> str:
    """Return the password that is typed twice on the terminal, which does not show it.

    CommandFailed without a terminal, without a password, or if the two differ.
    """
    if not sys.stdin.isatty():
        raise usage_error("a password is needed, and stdin is no terminal: give --password-file.")
    try:
        with interruptible():
            secret, again = (getpass(f"{word} of {escaped(owner)}: ") for word in ("Password", "Again the password"))
    except EOFError:
        raise usage_error("no password was typed; nothing was done.") from None
    if not secret.strip():
        raise usage_error("the password is empty; nothing was done.")
    if secret != again:
        raise usage_error("the two passwords differ; nothing was done. Repeat the command.")
    return secret


@contextmanager
def masked(secret: str | None) -> Iterator[None]:
    """Mask the secret in errors: RocketMQ 4.9 repeats a secret that it refuses."""
    try:
        yield
    except ClientError as error:
        if not secret or secret not in str(error):
            raise
        raise CommandFailed(str(error).replace(secret, MASK), exit_code_of(error)) from None
