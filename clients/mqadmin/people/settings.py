"""Settings of brokers and name servers: their values, and changes that are checked afterwards.

RocketMQ's servers accept unknown settings and values that they cannot read, without effect. So a change is read back.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated

import typer
from msgspec import Meta

from skylarkmq.clients.mqadmin.failures import REFUSED, CommandFailed, not_found
from skylarkmq.clients.mqadmin.people.output import Result, Rows
from skylarkmq.clients.mqadmin.secret_options import shown
from skylarkmq.clients.terminal.printed_output import Summary

KeysArgument = Annotated[list[str] | None, typer.Argument(metavar="KEY", help="Names of settings. Default: all.")]
KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="Name of the setting.")]
ValueArgument = Annotated[str, typer.Argument(metavar="VALUE", help="Its new value.")]


class Setting(Summary, frozen=True, kw_only=True):
    """One setting of a server."""

    server: Annotated[str, Meta(description="address of the server")]
    key: Annotated[str, Meta(description="name")]
    value: Annotated[str, Meta(description="value; `******` for a secret")]


class Settings(Result, frozen=True, kw_only=True):
    """Settings of one or more servers."""

    settings: Annotated[list[Setting], Meta(description="by server, then by name")]

    def tables(self) -> Iterator[Rows]:
        """Yield a table for each server."""
        for server in dict.fromkeys(each.server for each in self.settings):
            rows = [(each.key, each.value) for each in self.settings if each.server == server]
            yield Rows(f"Settings of {server}", ("Setting", "Value"), rows)


def settings_of(server: str, values: Mapping[str, str], keys: list[str] | None) -> list[Setting]:
    """Return the settings with these names; None: all. CommandFailed if the server has no such setting."""
    for key in keys or []:
        if key not in values:
            raise not_found(f"{server} has no setting {key}. `config get` without a name lists all.")
    return [
        Setting(server=server, key=key, value=shown(key, value))
        for key, value in sorted(values.items())
        if not keys or key in keys
    ]


def check_changed(server: str, values: Mapping[str, str], key: str, value: str) -> None:
    """CommandFailed if a server has another value after a change."""
    if key not in values:
        raise CommandFailed(f"{server} has no setting {key}, and ignored it. `config get` lists the settings.", REFUSED)
    if values[key] != value:
        raise CommandFailed(
            f"{server} did not accept {key}={shown(key, value)}: it is {shown(key, values[key])}. Check the value.",
            REFUSED,
        )
