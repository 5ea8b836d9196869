"""`mqadmin broker`: brokers, the state of one, and its settings."""

from collections.abc import Iterator
from typing import Annotated

import typer
from msgspec import Meta

from skylarkmq.clients.mqadmin.commands import Commands
from skylarkmq.clients.mqadmin.people.broker_state import BrokerPlace, BrokerState, address_of, places_of, state_of
from skylarkmq.clients.mqadmin.people.changes import Change
from skylarkmq.clients.mqadmin.people.filters import ClusterOption
from skylarkmq.clients.mqadmin.people.output import Json, Result, Rows, Watch, print_result, show
from skylarkmq.clients.mqadmin.people.settings import (
    KeyArgument,
    KeysArgument,
    Settings,
    ValueArgument,
    check_changed,
    settings_of,
)
from skylarkmq.clients.sdk.admin.admin import Admin

COMMANDS = Commands()

BrokerArgument = Annotated[
    str, typer.Argument(metavar="BROKER", help="Name of a broker, for its master, or host:port.")
]


class BrokerList(Result, frozen=True, kw_only=True):
    """The registered brokers."""

    brokers: Annotated[list[BrokerPlace], Meta(description="by name and id")]

    def tables(self) -> Iterator[Rows]:
        """Yield one table."""
        rows = [(each.name, each.id, each.role, each.address, each.cluster) for each in self.brokers]
        yield Rows("", ("Broker", "Id", "Role", "Address", "Cluster"), rows, "No broker is registered.")


class BrokerStatus(Result, frozen=True, kw_only=True):
    """One broker."""

    state: Annotated[BrokerState, Meta(description="place and state")]
    counters: Annotated[dict[str, str], Meta(description="its counters and sizes, by RocketMQ's names")]

    def tables(self) -> Iterator[Rows]:
        """Yield one table."""
        place = self.state.place
        heading = f"Broker {place.name}, {place.role}, {place.address}"
        yield Rows(heading, ("Counter", "Value"), sorted(self.counters.items()), "It reports nothing.")


@COMMANDS.add("list", "List brokers with their addresses.", "mqadmin broker list")
async def list_brokers(
    admin: Admin,
    cluster: ClusterOption = None,
    as_json: Json = False,
    watch: Watch = None,
) -> None:
    """Print the registered brokers."""

    async def read() -> BrokerList:
        return BrokerList(brokers=await places_of(admin, cluster))

    await show(read, as_json=as_json, watch=watch)


@COMMANDS.add("status", "Show counters and sizes of a broker.", "mqadmin broker status broker-a --watch 5")
async def status(admin: Admin, broker: BrokerArgument, as_json: Json = False, watch: Watch = None) -> None:
    """Print the counters and sizes that a broker reports."""

    async def read() -> BrokerStatus:
        address = await address_of(admin, broker)
        info = await admin.brokers.runtime_info(address)
        registered = {place.address: place for place in await places_of(admin)}
        unknown = BrokerPlace(cluster="", name=address, id=0, role="not registered", address=address)
        return BrokerStatus(state=state_of(registered.get(address, unknown), info), counters=info)

    await show(read, as_json=as_json, watch=watch)


@COMMANDS.add(
    "config get",
    "Show settings of a broker.",
    "mqadmin broker config get broker-a fileReservedTime",
)
async def config_get(admin: Admin, broker: BrokerArgument, keys: KeysArgument = None, as_json: Json = False) -> None:
    """Print all settings, or those with these names."""
    address = await address_of(admin, broker)
    found = settings_of(address, await admin.brokers.config(address), keys)
    print_result(Settings(settings=found), as_json=as_json)


@COMMANDS.add(
    "config set",
    "Change a setting of a running broker.",
    "mqadmin broker config set broker-a fileReservedTime 48",
)
async def config_set(
    admin: Admin, broker: BrokerArgument, key: KeyArgument, value: ValueArgument, as_json: Json = False
) -> None:
    """Change a setting, and read it back. CommandFailed if the broker has another value afterwards."""
    address = await address_of(admin, broker)
    await admin.brokers.update_config(address, {key: value})
    check_changed(address, await admin.brokers.config(address), key, value)
    print_result(Change(kind="setting", name=key, action="updated", servers=[address]), as_json=as_json)
