"""The arguments that the jobs share, and times and durations as users write them."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from skylarkmq.clients.spark.base.options import duration_ms
from skylarkmq.clients.spark.command_line import NotStarted, key_values
from skylarkmq.clients.spark.jobs.messages import Selection

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",  # of duplicate properties the last one counts
}
"""Settings of the session that the jobs need."""

Source = Annotated[
    str | None, typer.Option("-n", "--name-server", metavar="ADDR;ADDR", help="Read a topic: name servers, host:port.")
]
Topic = Annotated[str, typer.Option("-t", "--topic", help="The topic to read.")]
Store = Annotated[
    str | None, typer.Option("--store", metavar="DIR", help="Read a store directory instead, without a broker.")
]
Archive = Annotated[
    str | None, typer.Option("--archive", metavar="PATH", help="Read a Parquet archive of messages instead.")
]
TIMES: Final = "2024-05-01T13:00 (UTC), or 2h: two hours ago"
Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help=f"Stored then or later: {TIMES}.")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Stored before that time.")]
Where = Annotated[str | None, typer.Option("--where", metavar="SQL", help="A condition on the columns of messages.")]
Top = Annotated[int, typer.Option("--top", min=1, help="Rows of each table.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the summary as JSON to stdout.")]
Svg = Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write a plot to this file.")]


def selection_of(
    topic: str,
    *,
    name_server: str | None,
    store: str | None,
    archive: str | None,
    since: str | None,
    until: str | None,
    given: Sequence[str] | None,
) -> Selection:
    """Return the messages that these arguments of a command select. Raises NotStarted."""
    return Selection(
        topic=topic,
        name_server=name_server,
        store=store,
        archive=archive,
        since_ms=time_ms(since, "--since"),
        until_ms=time_ms(until, "--until"),
        options=key_values(given or []),
    )


def time_ms(text: str | None, option: str) -> int | None:
    """Return the ms since 1970 of an ISO time (UTC without a zone) or of a duration before now. Raises NotStarted."""
    if text is None:
        return None
    try:
        return time.time_ns() // 1_000_000 - duration_ms(text)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise NotStarted(f"{option} must be a time such as {TIMES}; not {text!r}") from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def period_s(text: str, option: str) -> float:
    """Return the seconds of a duration such as 30s; it must be positive. Raises NotStarted."""
    try:
        ms = duration_ms(text)
    except ValueError as error:
        raise NotStarted(f"{option} must be {error}, not {text!r}") from None
    if not ms:
        raise NotStarted(f"{option} must be longer than 0")
    return ms / 1000
