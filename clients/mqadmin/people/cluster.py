"""`mqadmin cluster`: all brokers with their rates and disks."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from skylarkmq.clients.mqadmin.commands import Commands
from skylarkmq.clients.mqadmin.failures import NO_CONNECTION, CommandFailed, not_found
from skylarkmq.clients.mqadmin.people.broker_state import BrokerState, places_of, states_of
from skylarkmq.clients.mqadmin.people.filters import ClusterOption
from skylarkmq.clients.mqadmin.people.output import Json, Result, Rows, Watch, show
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.terminal.printed_output import counted

COMMANDS = Commands()


class ClusterStatus(Result, frozen=True, kw_only=True):
    """The brokers of a cluster with their state."""

    brokers: Annotated[list[BrokerState], Meta(description="by name and id")]

    def tables(self) -> Iterator[Rows]:
        """Yield the brokers, and those that do not respond."""
        columns = ("Broker", "Role", "Address", "Version", "Stored/s", "Delivered/s", "Stored today", "Disk")
        rows = [
            (
                each.place.name,
                each.place.role,
                each.place.address,
                each.version or "no response",
                each.stored_per_second,
                each.delivered_per_second,
                each.stored_today,
                None if each.disk_used is None else f"{each.disk_used * 100:.0f} %",
            )
            for each in self.brokers
        ]
        yield Rows("", columns, rows)
        problems = [(each.place.address, each.problem) for each in self.brokers if each.problem is not None]
        yield Rows("Problems", ("Address", "Cause"), problems)


@COMMANDS.add(
    "status",
    "Show all brokers with rates and disks.",
    "mqadmin cluster status --watch",
    "mqadmin cluster status --json",
)
async def status(
    admin: Admin,
    cluster: ClusterOption = None,
    as_json: Json = False,
    watch: Watch = None,
) -> None:
    """Print a row for each broker. CommandFailed with NO_CONNECTION if one does not respond."""

    async def read() -> ClusterStatus:
        places = await places_of(admin, cluster)
        if not places:
            raise not_found("no broker is registered. Check that one runs, and the name server of its settings.")
        return ClusterStatus(brokers=await states_of(admin, places))

    shown = await show(read, as_json=as_json, watch=watch)
    if silent := [each.place.address for each in shown.brokers if each.problem is not None]:
        text = f"no response from {counted(len(silent), 'broker')}: {', '.join(silent)}. See Problems."
        raise CommandFailed(text, NO_CONNECTION)
