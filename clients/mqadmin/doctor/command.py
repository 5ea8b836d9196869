"""`mqadmin doctor`: runs all checks, prints what they found, and exits with a code by the worst finding."""

import asyncio
import os
from typing import Annotated

import typer

from skylarkmq.clients.mqadmin.connection import Connection, connection_of
from skylarkmq.clients.mqadmin.doctor.examination import CHECKS, examine
from skylarkmq.clients.mqadmin.doctor.findings import Report, Severity
from skylarkmq.clients.mqadmin.doctor.subject import Subject, Wanted
from skylarkmq.clients.mqadmin.failures import DONE, ERRORS_FOUND, WARNINGS_FOUND, CommandFailed, usage_error
from skylarkmq.clients.mqadmin.options import NamesrvAddress, ProfileName
from skylarkmq.clients.mqadmin.people.output import Json, print_result, progress_bar
from skylarkmq.clients.sdk.admin.admin import Admin


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
    as_json: Json = False,
) -> None:
    """Connect as a client would, find what is wrong with a cluster, and name the next step. Changes nothing."""
    if metrics is not None and "@" in metrics:
        raise usage_error("--metrics takes no user and no password: give http://host:port/metrics.")
    connection = connection_of(namesrv, profile, os.environ)
    wanted = Wanted(_stripped(topic), _stripped(group), _stripped(metrics), sample)
    report = asyncio.run(_report(connection, wanted))
    print_result(report, as_json=as_json)
    if (code := exit_code(report)) != DONE:
        raise CommandFailed("", code)


def exit_code(report: Report) -> int:
    """Return the exit code: 0 if there is no error and no warning."""
    severities = {finding.severity for finding in report.findings}
    if Severity.ERROR in severities:
        return ERRORS_FOUND
    return WARNINGS_FOUND if Severity.WARNING in severities else DONE


async def _report(connection: Connection, wanted: Wanted) -> Report:
    with progress_bar() as progress:
        task = progress.add_task("", total=len(CHECKS))

        def began(name: str) -> None:
            progress.update(task, description=name, completed=[check.name for check in CHECKS].index(name))

        async with connection.client() as client, Admin(client=client) as admin:
            return await examine(Subject(admin, wanted), began)


def _stripped(text: str | None) -> str | None:
    return None if text is None else text.strip() or None
