"""Names of topics, groups and users for the completion of a shell, from the cluster of the command line so far.

A completion waits at most TIMEOUT_S. If the cluster does not respond in time, or refuses, there are no proposals: the
shell has no place for an error. Names with characters that RocketMQ does not allow are left out: a shell would insert
them into the command line as they are.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Annotated, Final

import typer

from skylarkmq.clients.mqadmin.connection import connection_of
from skylarkmq.clients.mqadmin.failures import CommandFailed
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.admin.gathering import gathered
from skylarkmq.clients.sdk.admin.topic_kinds import DEAD_LETTERS, NORMAL, kind_of
from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.protocol.codes import DLQ_PREFIX
from skylarkmq.protocol.message import is_storable_topic

TIMEOUT_S: Final = 1.5
MAX_PROPOSALS: Final = 200


def topics(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics of applications that begin with the text."""

    async def names(admin: Admin) -> list[str]:
        return [name for name in await admin.topics() if kind_of(name) == NORMAL]

    return _proposals(context, incomplete, names)


def groups(context: typer.Context, incomplete: str) -> list[str]:
    """Return the groups that begin with the text."""
    return _proposals(context, incomplete, Admin.groups)


def dead_letter_groups(context: typer.Context, incomplete: str) -> list[str]:
    """Return the groups that have a topic of dead letters, and begin with the text."""

    async def names(admin: Admin) -> list[str]:
        return [name.removeprefix(DLQ_PREFIX) for name in await admin.topics() if kind_of(name) == DEAD_LETTERS]

    return _proposals(context, incomplete, names)


def users(context: typer.Context, incomplete: str) -> list[str]:
    """Return the users that begin with the text."""

    async def names(admin: Admin) -> list[str]:
        tables = await gathered([partial(admin.access.users, address) for address in (await admin.masters()).values()])
        return [user.username or "" for table in tables for user in table]

    return _proposals(context, incomplete, names)


TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", autocompletion=topics)]
TopicOption = Annotated[
    str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Only this topic.", autocompletion=topics)
]
GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.", autocompletion=groups)]
LettersArgument = Annotated[
    str, typer.Argument(metavar="GROUP", help="Name of the group.", autocompletion=dead_letter_groups)
]
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="Name of the user.", autocompletion=users)]
SubjectArgument = Annotated[
    str, typer.Argument(metavar="SUBJECT", help="Name of a user, or User:name.", autocompletion=users)
]


def _proposals(
    context: typer.Context, incomplete: str, names: Callable[[Admin], Awaitable[Iterable[str]]]
) -> list[str]:
    async def read() -> list[str]:
        given = context.params
        connection = connection_of(given.get("namesrv"), given.get("profile"), os.environ)
        async with asyncio.timeout(TIMEOUT_S), connection.client() as client, Admin(client=client) as admin:
            found = await names(admin)
            return sorted(name for name in set(found) if name.startswith(incomplete) and is_storable_topic(name))

    try:
        return asyncio.run(read())[:MAX_PROPOSALS]
    except (CommandFailed, ClientError, OSError, TimeoutError):
        return []
