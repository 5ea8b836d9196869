"""`mqbroker store backup` and `mqbroker store restore`.

The result goes to stdout, as text or with --json as one object; warnings go to stderr. Exit codes: 0 done, 1 done, but
the log has damaged records, 2 not done.
"""

import math
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console

from skylarkmq.broker.base.errors import StartError
from skylarkmq.broker.base.printable import printable, printable_json
from skylarkmq.broker.store.backup import BackedUp, BackupOptions, Restored, RestoreOptions
from skylarkmq.broker.store.backup import backup as backed_up
from skylarkmq.broker.store.backup import restore as restored
from skylarkmq.broker.store.backup.restoring import manifest_of
from skylarkmq.broker.store.backup.until import parse_until, time_text
from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.fsck import Finding, Sizes
from skylarkmq.broker.store_tool.command_line import (
    DAMAGED,
    ConfigFile,
    Pairs,
    check_is_store,
    completed,
    given_settings,
    line_of,
    one_line_on_stderr,
    progress_bar,
)

MB: Final = 1_000_000
DEFAULT_STORE: Final = Path("store")

BACKUP_HELP: Final = """
Copy the store of a running or stopped broker to DIR, or bring an earlier backup in DIR up to date.

Only new bytes are copied. An interrupted backup continues when the command is repeated. The copy is read back: its
checksums, and the CRC of each record. Exit code 1 if the log has damaged records, which are copied as they are.

Examples:\n
  mqbroker store backup /backup/broker-a --store /data/store\n
  mqbroker store backup /backup/broker-a -c broker.conf --rate 100\n
  mqbroker store backup /backup/broker-a -c broker.conf --json | jq .logEnd\n
"""

RESTORE_HELP: Final = """
Make a store in an empty directory from the backup in DIR; a broker can start on it.

--until ends the log after the last record that was stored by a time, or that ends by a byte of the log. Topics, groups
and offsets come from the newest state in the backup that is not later; the command prints what is missing. It uses
these settings of the broker: messageDelayLevel, timerPrecisionMs, and the sizes of queue and index files.

Examples:\n
  mqbroker store restore /backup/broker-a --to /data/store\n
  mqbroker store restore /backup/broker-a --to /data/store --until 2026-03-01T12:30:00\n
  mqbroker store restore /backup/broker-a --to /data/store --until 3221225472 -c broker.conf\n
"""

Rate = Annotated[
    float | None, typer.Option("--rate", min=0, metavar="MB", help="MB (10^6 bytes) per second to copy; 0: no limit.")
]
Verify = Annotated[bool, typer.Option("--verify/--no-verify", help="Read the copy back and compare checksums.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as a JSON object.")]


def backup(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The backup: empty, or an earlier one.")],
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="PATH", help="The store; default: storePathRootDir of -c, or ./store."),
    ] = None,
    rate: Rate = None,
    verify: Verify = True,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove segments from the backup that the store no longer has.")
    ] = False,
    as_json: AsJson = False,
    config: ConfigFile = None,
    pairs: Pairs = None,
) -> None:
    """Print what was copied."""
    with one_line_on_stderr("backup"), progress_bar() as progress:
        given = given_settings(config, pairs or [])
        root = store or given.get("store_path_root_dir", DEFAULT_STORE)
        check_is_store(root)
        limit = given.get("backup_max_rate", StoreConfig(store_path_root_dir=root).backup_max_rate)
        options = BackupOptions(
            bytes_per_s=limit if rate is None else bytes_per_s(rate), is_verified=verify, is_pruned=prune
        )
        done = backed_up(root, directory, completed(given, Sizes.of(root)).sizes, options, progress=progress)
    for warning in done.warnings:
        typer.echo(printable(f"warning: {warning}"), err=True)
    if as_json:
        typer.echo(printable_json(msgspec.json.encode(done)))
    else:
        show_backup(done, directory)
    end_with(done.damage, as_json=as_json)


def restore(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The backup.")],
    to: Annotated[Path, typer.Option("--to", metavar="PATH", help="The new store: an empty directory.")],
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME|OFFSET", help="Where the log ends; default: all of it.")
    ] = None,
    later_state: Annotated[
        bool, typer.Option("--later-state", help="If all states in the backup are later, use the first.")
    ] = False,
    rate: Rate = None,
    verify: Verify = True,
    as_json: AsJson = False,
    config: ConfigFile = None,
    pairs: Pairs = None,
) -> None:
    """Print what was restored, and what is missing."""
    with one_line_on_stderr("restore"), progress_bar() as progress:
        given = given_settings(config, pairs or [])
        until_ms, until_offset = bounds_of(until)
        manifest, _ = manifest_of(directory)
        settings = completed(given | {"mapped_file_size_commit_log": manifest.segment_size}, manifest.sizes)
        options = RestoreOptions(
            until_ms=until_ms,
            until_offset=until_offset,
            uses_later_state=later_state,
            bytes_per_s=bytes_per_s(rate or 0),
            is_verified=verify,
            sizes=settings.sizes,
            delay_levels=settings.delay_levels,
            timer_precision_ms=given.get("timer_precision_ms", 1_000),
        )
        done = restored(directory, to, options, progress=progress)
    if as_json:
        typer.echo(printable_json(msgspec.json.encode(done)))
    else:
        show_restore(done, to)
    end_with(done.damage, as_json=as_json)


def bytes_per_s(rate: float) -> int:
    """Return `rate` (MB per second) in bytes, at least 1 unless it is 0. Raises StartError."""
    if not math.isfinite(rate * MB):
        raise StartError(f"--rate {rate}: expected a number of MB per second")
    return math.ceil(rate * MB)


def bounds_of(until: str | None) -> tuple[int | None, int | None]:
    """Return Unix ms or byte of the log, and None for the other. Raises StartError."""
    if until is None:
        return None, None
    try:
        return parse_until(until)
    except ValueError as problem:
        raise StartError(f"--until: {problem}") from None


def show_backup(done: BackedUp, directory: Path) -> None:
    """Print the result of a backup."""
    copied, shared = done.copied_bytes, done.shared_bytes
    how = f"{copied / MB:,.1f} MB copied" + (f", {shared / MB:,.1f} MB shared" if shared else "")
    typer.echo(f"{directory}: log {done.log_start} to {done.log_end}, {how} in {done.seconds:.1f} s")
    typer.echo(f"last record stored at {stored_at(done.last_store_time)}; {done.snapshots} states to restore")


def show_restore(done: Restored, to: Path) -> None:
    """Print the result of a restore, and what is missing."""
    typer.echo(f"{to}: log {done.log_start} to {done.log_end}, {done.records} records in {done.queues} queues")
    typer.echo(f"last record stored at {stored_at(done.last_store_time)}")
    if done.snapshot_taken_at is not None:
        typer.echo(f"topics, groups and offsets as of {time_text(done.snapshot_taken_at)}")
    for line in done.missing:
        typer.echo(printable(f"missing: {line}"))
    for line in done.cut:
        typer.echo(printable(f"cut: {line}"))


def stored_at(unix_ms: int) -> str:
    """Return a store time for operators; 0 means that there is no record."""
    return time_text(unix_ms) if unix_ms else "no time"


def end_with(damage: list[Finding], *, as_json: bool) -> None:
    """Print damaged records of the log, unless the JSON object has them; then exit with 1 if there are any."""
    for finding in () if as_json else damage:
        Console(highlight=False, soft_wrap=True).print(line_of(finding))
    if damage:
        raise typer.Exit(DAMAGED)
