"""The result of commands that create, change or delete a topic, a group, a setting or a user."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from skylarkmq.clients.mqadmin.people.output import Result, Rows


class Change(Result, frozen=True, kw_only=True):
    """A change that a command has made."""

    kind: Annotated[str, Meta(description="`topic`, `group`, `setting` or `user`")]
    name: Annotated[str, Meta(description="name of the changed object")]
    action: Annotated[str, Meta(description="`created`, `updated` or `deleted`")]
    servers: Annotated[list[str], Meta(description="addresses of the servers that have done it")]

    def tables(self) -> Iterator[Rows]:
        """Yield one line."""
        places = ", ".join(self.servers)
        yield Rows(f"{self.kind.capitalize()} {self.name} is {self.action} on {places}.")
