"""Commands about name servers: their settings, keys and values, the write permission of brokers, ordered topics.

Changes go to every name server of the address.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Final

import typer

from skylarkmq.clients.mqadmin.commands import Commands
from skylarkmq.clients.mqadmin.failures import Failures, usage_error
from skylarkmq.clients.mqadmin.java_output import printf
from skylarkmq.clients.mqadmin.options import NamesrvAddress
from skylarkmq.clients.mqadmin.rocketmq.setting_lines import print_settings
from skylarkmq.clients.mqadmin.secret_options import shown
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.admin.name_servers import ORDER_CONFIG
from skylarkmq.clients.sdk.base.errors import ClientError

COMMANDS = Commands()

Namespace = Annotated[str, typer.Option("-s", "--namespace", help="Namespace of the key.")]
Key = Annotated[str, typer.Option("-k", "--key", help="Name of the key.")]
Value = Annotated[str, typer.Option("-v", "--value", help="Its value.")]
BrokerName = Annotated[str, typer.Option("-b", "--brokerName", help="Name of the broker.")]
_METHODS: Final = ("put", "get", "delete")


@COMMANDS.add("getNamesrvConfig", "Get configs of name server.")
async def get_namesrv_config(admin: Admin) -> None:
    """Print the settings of each name server."""
    for address in admin.name_servers.addresses:
        settings = await admin.name_servers.config(address)
        printf("============%s============%n", address)
        print_settings(settings)


@COMMANDS.add("updateNamesrvConfig", "Update configs of name server.")
async def update_namesrv_config(admin: Admin, key: Key, value: Value, namesrv: NamesrvAddress = None) -> None:
    """Change a setting of each name server."""
    key, value = key.strip(), value.strip()
    await admin.name_servers.update_config({key: value})
    servers = f"[{', '.join(namesrv.strip().split(';'))}]" if namesrv else ""
    printf("update name server config success!%s%n%s : %s%n", servers, key, shown(key, value))


@COMMANDS.add("updateKvConfig", "Create or update KV config.")
async def update_kv_config(admin: Admin, namespace: Namespace, key: Key, value: Value) -> None:
    """Set a value on each name server."""
    await admin.name_servers.put(namespace.strip(), key.strip(), value.strip())
    printf("create or update kv config to namespace success.%n")


@COMMANDS.add("deleteKvConfig", "Delete KV config.")
async def delete_kv_config(admin: Admin, namespace: Namespace, key: Key) -> None:
    """Delete a value on each name server."""
    await admin.name_servers.delete(namespace.strip(), key.strip())
    printf("delete kv config from namespace success.%n")


@COMMANDS.add("wipeWritePerm", "Wipe write perm of broker in all name server you defined in the -n param.")
async def wipe_write_perm(admin: Admin, broker: BrokerName) -> None:
    """Take the write permission of a broker's topics: producers stop sending to it."""
    await _change_permission(admin, broker.strip(), "wipe", admin.name_servers.wipe_write_permission)


@COMMANDS.add("addWritePerm", "Add write perm of broker in all name server you defined in the -n param.")
async def add_write_perm(admin: Admin, broker: BrokerName) -> None:
    """Give the write permission of a broker's topics back."""
    await _change_permission(admin, broker.strip(), "add", admin.name_servers.add_write_permission)


@COMMANDS.add("updateOrderConf", "Create or update or delete order conf.")
async def update_order_conf(
    admin: Admin,
    topic: Annotated[str, typer.Option("-t", "--topic", help="Name of the topic.")],
    method: Annotated[str, typer.Option("-m", "--method", help="put, get or delete.")],
    order: Annotated[
        str | None, typer.Option("-v", "--orderConf", metavar="BROKER:QUEUES;...", help="For put: queues by broker.")
    ] = None,
) -> None:
    """Set, print or delete the queue numbers of an ordered topic."""
    topic, method, order = topic.strip(), method.strip(), (order or "").strip()
    if method not in _METHODS:
        raise usage_error(f"-m must be put, get or delete, not {method}.")
    if method == "get":
        found = await admin.name_servers.get(ORDER_CONFIG, topic)
        printf("get orderConf success. topic=[%s], orderConf=[%s] ", topic, found)
    elif method == "delete":
        await admin.name_servers.delete(ORDER_CONFIG, topic)
        printf("delete orderConf success. topic=[%s]", topic)
    elif not order:
        raise usage_error("put needs the queue numbers: -v 'broker-a:4;broker-b:4'.")
    else:
        await admin.name_servers.put(ORDER_CONFIG, topic, order)
        printf("update orderConf success. topic=[%s], orderConf=[%s]", topic, order)


async def _change_permission(
    admin: Admin, broker: str, verb: str, change: Callable[[str, str], Awaitable[int]]
) -> None:
    """Change a permission on each name server. CommandFailed after all of them if one failed."""
    failures = Failures()
    for address in admin.name_servers.addresses:
        try:
            topics = await change(address, broker)
        except ClientError as error:
            printf("%s write perm of broker[%s] in name server[%s] Failed%n", verb, broker, address)
            failures.add(error)
        else:
            printf("%s write perm of broker[%s] in name server[%s] OK, %d%n", verb, broker, address, topics)
    failures.raise_if_any()
