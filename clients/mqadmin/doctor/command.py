"""`mqadmin doctor`: runs all checks, prints what they found, and exits with a code by the worst finding."""

import asyncio
import os
import sys
from collections.abc import Iterator
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from skylarkmq.clients.admin.admin import Admin
from skylarkmq.clients.errors import printable
from skylarkmq.clients.mqadmin.connection import Connection, connection_of
from skylarkmq.clients.mqadmin.doctor.examination import CHECKS, examine
from skylarkmq.clients.mqadmin.doctor.findings import Finding, NotExamined, Report, Severity
from skylarkmq.clients.mqadmin.doctor.subject import Subject, Wanted
from skylarkmq.clients.mqadmin.failures import DONE, ERRORS_FOUND, WARNINGS_FOUND, CommandFailed
from skylarkmq.clients.mqadmin.options import NamesrvAddress, ProfileName

WITHOUT_TERMINAL: Final = 100_000
"""Width of the output, so that each row is one line."""
_STYLES: Final = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}


def doctor(
    namesrv: NamesrvAddress = None,
    profile: ProfileName = None,
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="A topic. Default: up to 200 topics.")] = None,
    group: Annotated[str | None, typer.Option("-g", "--group", help="A consumer group.")] = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", metavar="URL", help="The metrics page of a broker, http://host:port/metrics."),
    ] = None,
    sample: Annotated[
        float, typer.Option("--sample", min=0, max=600, metavar="SECONDS", help="Between two readings of a lag.")
    ] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Connect as a client would, find what is wrong with a cluster, and name the next step. Changes nothing."""
    connection = connection_of(namesrv, profile, os.environ)
    wanted = Wanted(_stripped(topic), _stripped(group), _stripped(metrics), sample)
    report = asyncio.run(_report(connection, wanted))
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(report)).decode() + "\n")
    else:
        print_report(report)
    if (code := exit_code(report)) != DONE:
        raise CommandFailed("", code)


def exit_code(report: Report) -> int:
    """Return the exit code: 0 if there is no error and no warning."""
    severities = {finding.severity for finding in report.findings}
    if Severity.ERROR in severities:
        return ERRORS_FOUND
    return WARNINGS_FOUND if Severity.WARNING in severities else DONE


def print_report(report: Report) -> None:
    """Print the findings as a table, then what could not be examined."""
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console = Console(markup=False, highlight=False, emoji=False, width=WITHOUT_TERMINAL)
    if report.findings:
        table = Table("Severity", "Where", "What is wrong", "Next step", box=None, pad_edge=False)
        for finding in report.findings:
            table.add_row(*_cells(finding))
        console.print(table)
    else:
        console.print(f"No problem found at {printable(report.namesrv)}.")
    if report.not_examined:
        console.print("\nNot examined:")
    for line in _lines(report.not_examined):
        console.print(f"  {line}")


def _cells(finding: Finding) -> tuple[Text, ...]:
    severity = Text(finding.severity.value, _STYLES[finding.severity])
    where = finding.where or finding.check
    return severity, *(Text(printable(text)) for text in (where, finding.what, finding.next_step))


def _lines(not_examined: list[NotExamined]) -> Iterator[str]:
    """Yield a line for each place and reason, with the checks that share them."""
    checks: dict[tuple[str, str], list[str]] = {}
    for each in not_examined:
        checks.setdefault((each.where, each.reason), []).append(each.check)
    for (where, reason), names in checks.items():
        yield printable(": ".join(filter(None, (", ".join(names), where, reason))))


async def _report(connection: Connection, wanted: Wanted) -> Report:
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with progress:
        task = progress.add_task("", total=len(CHECKS))

        def began(name: str) -> None:
            progress.update(task, description=name, completed=[check.name for check in CHECKS].index(name))

        async with connection.client() as client, Admin(client=client) as admin:
            return await examine(Subject(admin, wanted), began)


def _stripped(text: str | None) -> str | None:
    return None if text is None else text.strip() or None
