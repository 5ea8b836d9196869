"""`mqadmin namesrv`: the settings of the name servers."""

from skylarkmq.clients.mqadmin.commands import Commands
from skylarkmq.clients.mqadmin.people.changes import Change
from skylarkmq.clients.mqadmin.people.output import Json, print_result
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


@COMMANDS.add("config get", "Show settings of the name servers.", "mqadmin namesrv config get listenPort")
async def config_get(admin: Admin, keys: KeysArgument = None, as_json: Json = False) -> None:
    """Print all settings of each name server, or those with these names."""
    found = [
        setting
        for address in admin.name_servers.addresses
        for setting in settings_of(address, await admin.name_servers.config(address), keys)
    ]
    print_result(Settings(settings=found), as_json=as_json)


@COMMANDS.add(
    "config set",
    "Change a setting of all name servers.",
    "mqadmin namesrv config set deleteTopicWithBrokerRegistration true",
)
async def config_set(admin: Admin, key: KeyArgument, value: ValueArgument, as_json: Json = False) -> None:
    """Change a setting, and read it back. CommandFailed if a name server has another value afterwards."""
    await admin.name_servers.update_config({key: value})
    addresses = list(admin.name_servers.addresses)
    for address in addresses:
        check_changed(address, await admin.name_servers.config(address), key, value)
    print_result(Change(kind="setting", name=key, action="updated", servers=addresses), as_json=as_json)
