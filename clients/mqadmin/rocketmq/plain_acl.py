"""Commands about the accounts of RocketMQ 4.9 (plain_acl.yml): updateAclConfig, deleteAclConfig,
clusterAclConfigVersion, updateGlobalWhiteAddr. Secrets are never printed.
"""

from pathlib import Path
from typing import Annotated, Final

import typer

from skylarkmq.clients.mqadmin.addresses import all_addresses, master_addresses
from skylarkmq.clients.mqadmin.commands import Commands
from skylarkmq.clients.mqadmin.failures import usage_error
from skylarkmq.clients.mqadmin.java_output import local_time, printf
from skylarkmq.clients.mqadmin.options import BrokerAddress, is_true, stripped
from skylarkmq.clients.mqadmin.rocketmq.users import Cluster, Masters
from skylarkmq.clients.mqadmin.secret_options import masked, secret_of
from skylarkmq.clients.sdk.admin.access import PlainAccount
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.protocol.hash_order import bucket_order

COMMANDS = Commands()

_VERSION: Final = "%-16s  %-22s  %-22s  %-20s  %-22s  %-22s%n"

AccessKey = Annotated[str, typer.Option("-a", "--accessKey", help="Name of the account.")]


@COMMANDS.add("updateAclConfig", "Update acl config yaml file in broker")
async def update_account(
    admin: Admin,
    access_key: AccessKey,
    secret_key: Annotated[str | None, typer.Option("-s", "--secretKey", help="Secret of the account.")] = None,
    secret_key_file: Annotated[
        Path | None, typer.Option("--secretKeyFile", help="File with the secret, instead of -s.")
    ] = None,
    white_address: Annotated[
        str | None, typer.Option("-w", "--whiteRemoteAddress", help="Addresses that need no signature.")
    ] = None,
    topic_default: Annotated[
        str | None, typer.Option("-i", "--defaultTopicPerm", help="Permission on all other topics.")
    ] = None,
    group_default: Annotated[
        str | None, typer.Option("-u", "--defaultGroupPerm", help="Permission on all other groups.")
    ] = None,
    topics: Annotated[str | None, typer.Option("-t", "--topicPerms", help="topicA=DENY,topicD=SUB")] = None,
    groups: Annotated[str | None, typer.Option("-g", "--groupPerms", help="groupD=DENY,groupE=SUB")] = None,
    is_admin: Annotated[str, typer.Option("-m", "--admin", help="true: an administrator.")] = "false",
    broker: BrokerAddress = None,
    cluster: Cluster = None,
) -> None:
    """Create an account, or change it."""
    secret = secret_of(secret_key, secret_key_file)
    if secret is None:
        raise usage_error("an account needs a secret: give --secretKeyFile or -s.")
    account = PlainAccount(
        access_key=access_key.strip(),
        secret_key=secret,
        white_remote_address=stripped(white_address),
        admin=is_true(is_admin),
        default_topic_perm=stripped(topic_default),
        default_group_perm=stripped(group_default),
        topic_perms=stripped(topics),
        group_perms=stripped(groups),
    )
    for address in await all_addresses(admin, broker, cluster):
        with masked(secret):
            await admin.access.put_plain_account(address, account)
        printf("create or update plain access config to %s success.%n", address)
    printf("account's accesskey is:%s", account.access_key)  # RocketMQ prints the identity of a Java object here


@COMMANDS.add("deleteAclConfig", "Delete Acl Config Account in broker")
async def delete_account(
    admin: Admin, access_key: AccessKey, broker: BrokerAddress = None, cluster: Cluster = None
) -> None:
    """Delete an account."""
    for address in await all_addresses(admin, broker, cluster):
        await admin.access.delete_plain_account(address, access_key.strip())
        printf("delete plain access config account from %s success.%n", address)
    printf("account's accesskey is:%s", access_key.strip())


@COMMANDS.add("clusterAclConfigVersion", "List all of acl config version information in cluster")
async def list_versions(admin: Admin, broker: BrokerAddress = None, cluster: Masters = None) -> None:
    """Print the version of each account file."""
    addresses = await master_addresses(admin, broker, cluster)
    if broker is None:
        heads = "#Cluster Name", "#Broker Name", "#Broker Addr", "#AclFilePath"
        printf(_VERSION, *heads, "#AclConfigVersionNum", "#AclLastUpdateTime")
    for address in addresses:
        found = await admin.access.plain_acl_versions(address)
        for file in bucket_order(found.files):
            version = found.files[file]
            where = found.cluster_name, found.broker_name, found.broker_address, file
            printf(_VERSION, *where, version.counter, local_time(version.timestamp))
    printf("get %s's plain access config version success.%n", "cluster" if broker is None else "broker")


@COMMANDS.add("updateGlobalWhiteAddr", "Update global white address for acl Config File in broker")
async def update_white_addresses(
    admin: Admin,
    addresses: Annotated[
        str, typer.Option("-g", "--globalWhiteRemoteAddresses", help="Addresses that need no signature: 10.10.103.*")
    ],
    file: Annotated[str | None, typer.Option("-p", "--aclFileFullPath", help="Path of an account file there.")] = None,
    broker: BrokerAddress = None,
    cluster: Cluster = None,
) -> None:
    """Replace the addresses that need no signature."""
    for address in await all_addresses(admin, broker, cluster):
        await admin.access.set_white_addresses(address, addresses.strip(), stripped(file))
        printf("update global white remote addresses to %s success.%n", address)
