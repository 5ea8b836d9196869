"""The question before a command deletes or resets something."""

import sys
from typing import Annotated

import typer

from skylarkmq.clients.mqadmin.failures import USAGE, CommandFailed, usage_error
from skylarkmq.clients.mqadmin.terminal import interruptible
from skylarkmq.clients.sdk.base.errors import escaped

Yes = Annotated[bool, typer.Option("-y", "--yes", help="Skip the question.")]


def confirm(effect: str, *, is_agreed: bool) -> None:
    """Ask on stderr whether to go on. CommandFailed unless the answer is y or yes, or if there is no terminal."""
    if is_agreed:
        return
    if not sys.stdin.isatty():
        raise usage_error(f"{effect} Nothing is done without --yes, because stdin is no terminal.")
    with interruptible():  # before the question is shown: a Ctrl-C that follows it at once ends the read, too
        sys.stderr.write(f"{escaped(effect)} Go on? [y/N] ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
    if answer.strip().lower() not in {"y", "yes"}:
        raise CommandFailed("nothing is done.", USAGE)
