"""What the commands of `mqbroker store` share: the broker's settings, errors as one line, findings, progress bars."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bar
from rich.text import Text

from skylarkmq.broker.base.errors import StartError
from skylarkmq.broker.base.printable import printable
from skylarkmq.broker.config.keys import BROKER_KEYS
from skylarkmq.broker.config.parsing import from_file, from_flags, settle
from skylarkmq.broker.store.files.config import DEFAULT_DELAY_LEVELS, parse_delay_levels
from skylarkmq.broker.store.files.errors import StoreError
from skylarkmq.broker.store.fsck import Finding, Progress, Severity, Sizes
from skylarkmq.broker.store.fsck.findings import OnProgress, no_progress
from skylarkmq.protocol.disk import COMMIT_LOG_DIRECTORY, IndexLayout

DAMAGED: Final = 1
NOT_DONE: Final = 2
STYLES: Final = {Severity.DAMAGE: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}

ConfigFile = Annotated[
    Path | None, typer.Option("-c", "--config", metavar="FILE", help="The broker's properties file.")
]
Pairs = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set one key; may be repeated.")]


class Settings(msgspec.Struct, frozen=True):
    """The broker settings that the commands need."""

    sizes: Sizes
    delay_levels: tuple[int, ...]
    is_indexed: bool


def given_settings(config: Path | None, pairs: list[str]) -> dict[str, Any]:
    """Return the store's settings that a file and flags give, by field. Warnings go to stderr. Raises StartError."""
    in_file = from_file(config.read_text(encoding="utf-8"), str(config)) if config else ()
    settled = settle([*in_file, *from_flags(pairs)], BROKER_KEYS)
    for warning in settled.warnings:
        typer.echo(f"warning: {warning}", err=True)
    return settled.of("store")


def check_is_store(directory: Path) -> None:
    """Raise StartError if there is no store."""
    if not (directory / COMMIT_LOG_DIRECTORY).is_dir():
        raise StartError(f"{directory} is not a store: it has no {COMMIT_LOG_DIRECTORY}/")


def completed(given: dict[str, Any], sizes: Sizes) -> Settings:
    """Return the given settings, completed by these sizes and by defaults."""
    return Settings(
        Sizes(
            commit_log=given.get("mapped_file_size_commit_log", sizes.commit_log),
            consume_queue=given.get("mapped_file_size_consume_queue", sizes.consume_queue),
            index=IndexLayout(
                given.get("max_hash_slot_num", sizes.index.slots), given.get("max_index_num", sizes.index.items)
            ),
        ),
        parse_delay_levels(given.get("message_delay_level", DEFAULT_DELAY_LEVELS)),
        given.get("message_index_enable", True),
    )


def settings_of(directory: Path, config: Path | None, pairs: list[str]) -> Settings:
    """Return the given settings, completed by those detected from the files. Raises StartError if there is no store."""
    check_is_store(directory)
    return completed(given_settings(config, pairs), Sizes.of(directory))


@contextmanager
def one_line_on_stderr(command: str) -> Iterator[None]:
    """Turn an error into one line on stderr and exit code 2. What the store logs is dropped: it repeats the error."""
    handler = logging.NullHandler()
    logging.getLogger("skylarkmq").addHandler(handler)
    try:
        yield
    except (StartError, StoreError, OSError) as error:
        typer.echo(printable(f"mqbroker store {command}: {error}"), err=True)
        raise typer.Exit(NOT_DONE) from None
    finally:
        logging.getLogger("skylarkmq").removeHandler(handler)


def line_of(finding: Finding) -> Text:
    """Return one line: severity, position, problem, consequence."""
    place = finding.file if finding.offset is None else f"{finding.file}:{finding.offset}"
    return Text.assemble(
        (f"{finding.severity.value:7}", STYLES[finding.severity]),
        printable(f" {place}  {finding.what}"),
        (printable(f"; {finding.follows}"), "dim"),
    )


@contextmanager
def progress_bar() -> Iterator[OnProgress]:
    """Show a progress bar on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield no_progress
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def show(progress: Progress) -> None:
            if progress.stage not in tasks:
                tasks[progress.stage] = bar.add_task(progress.stage, total=progress.total)
            bar.update(tasks[progress.stage], completed=progress.done, total=progress.total)

        yield show
