"""Commands about users and policies of RocketMQ 5: createUser to copyUser, createAcl to copyAcl.

The columns are the same as in RocketMQ's tool, which prints the passwords that a broker returns to super users. A
password can be given in a file instead of an option, which appears in no list of processes and no history of a shell.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Final

import typer

from skylarkmq.clients.mqadmin.addresses import all_addresses, master_addresses
from skylarkmq.clients.mqadmin.commands import Command, Commands
from skylarkmq.clients.mqadmin.failures import not_found, usage_error
from skylarkmq.clients.mqadmin.java_output import java_text, printf
from skylarkmq.clients.mqadmin.options import BrokerAddress, stripped
from skylarkmq.clients.mqadmin.secret_options import masked, secret_of
from skylarkmq.clients.sdk.admin.access import Access
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.protocol.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

COMMANDS = Commands()

_USER: Final = "%-16s  %-22s  %-22s  %-22s%n"
_ACL: Final = "%-16s  %-10s  %-22s  %-20s  %-24s  %-10s%n"

Cluster = Annotated[str | None, typer.Option("-c", "--clusterName", help="Name of a cluster: all its brokers.")]
Masters = Annotated[str | None, typer.Option("-c", "--clusterName", help="Name of a cluster: all its masters.")]
Username = Annotated[str, typer.Option("-u", "--username", help="Name of the user.")]
Password = Annotated[str | None, typer.Option("-p", "--password", help="Password of the user.")]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--passwordFile", help="File with the password, instead of -p; only its owner may read it."),
]
UserType = Annotated[str | None, typer.Option("-t", "--userType", help="Super or Normal.")]
Subject = Annotated[str, typer.Option("-s", "--subject", help="Subject of the policies, such as User:alice.")]
Resources = Annotated[
    str, typer.Option("-r", "--resources", help="Resources, separated by commas: Topic:Orders,Group:bill*.")
]
Actions = Annotated[str, typer.Option("-a", "--actions", help="Actions, separated by commas, such as Pub,Sub or All.")]
Decision = Annotated[str, typer.Option("-d", "--decision", help="Allow or Deny.")]
SourceIps = Annotated[
    str | None, typer.Option("-i", "--sourceIp", help="Addresses and networks, separated by commas; default: all.")
]
FromBroker = Annotated[str, typer.Option("-f", "--fromBroker", help="Address of the broker to copy from.")]
ToBroker = Annotated[str, typer.Option("-t", "--toBroker", help="Address of the broker to copy to.")]

# -------------------------------------------------------------------------------------------------------------- users


@COMMANDS.add("createUser", "Create user to cluster.")
async def create_user(
    admin: Admin,
    username: Username,
    password: Password = None,
    password_file: PasswordFile = None,
    user_type: UserType = None,
    broker: BrokerAddress = None,
    cluster: Cluster = None,
) -> None:
    """Create a user on one broker, or on all brokers of a cluster."""
    secret = secret_of(password, password_file)
    if secret is None:
        raise usage_error("a user needs a password: give --passwordFile or -p.")
    user = UserInfo(username.strip(), secret, stripped(user_type))
    with masked(secret):
        await _everywhere(admin, broker, cluster, lambda its: admin.access.create_user(its, user), "create user to")


@COMMANDS.add("updateUser", "Update user to cluster.")
async def update_user(
    admin: Admin,
    username: Username,
    password: Password = None,
    password_file: PasswordFile = None,
    user_type: UserType = None,
    user_status: Annotated[str | None, typer.Option("-s", "--userStatus", help="enable or disable.")] = None,
    broker: BrokerAddress = None,
    cluster: Cluster = None,
) -> None:
    """Change the password, type or status of a user."""
    user = UserInfo(username.strip(), secret_of(password, password_file), stripped(user_type), stripped(user_status))
    if user.password is None and user.user_type is None and user.user_status is None:
        raise usage_error("nothing to change: give a password (--passwordFile or -p), a type (-t) or a status (-s).")
    with masked(user.password):
        await _everywhere(admin, broker, cluster, lambda its: admin.access.update_user(its, user), "update user to")


@COMMANDS.add("deleteUser", "Delete user from cluster.")
async def delete_user(admin: Admin, username: Username, broker: BrokerAddress = None, cluster: Cluster = None) -> None:
    """Delete a user and its policies."""
    name = username.strip()
    await _everywhere(admin, broker, cluster, lambda its: admin.access.delete_user(its, name), "delete user to")


@COMMANDS.add("getUser", "Get user from cluster.")
async def get_user(
    admin: Admin,
    username: Username,
    broker: BrokerAddress = None,
    cluster: Masters = None,
) -> None:
    """Print one user."""
    for address in await master_addresses(admin, broker, cluster):
        user = await admin.access.user(address, username.strip())
        if user is not None:
            _print_users([user])
            return
    raise not_found(f"no user {username.strip()}. `mqadmin listUser` lists the users.")


@COMMANDS.add("listUser", "List user from cluster.")
async def list_users(
    admin: Admin,
    name: Annotated[str, typer.Option("-f", "--filter", help="Only users with this text in their names.")] = "",
    broker: BrokerAddress = None,
    cluster: Masters = None,
) -> None:
    """Print the users of a broker, or of the first master of a cluster that has any."""
    for address in await master_addresses(admin, broker, cluster):
        users = await admin.access.users(address, name.strip())
        if users:
            _print_users(users)
            if broker is None:
                printf("get user from %s success.%n", address)
            return


@COMMANDS.add("copyUser", "Copy user to cluster.")
async def copy_users(
    admin: Admin,
    source: FromBroker,
    target: ToBroker,
    usernames: Annotated[str, typer.Option("-u", "--usernames", help="Only these, separated by commas.")] = "",
) -> None:
    """Copy users from one broker to another. Existing users there are changed."""
    source, target = source.strip(), target.strip()
    if usernames.strip():
        found = [await admin.access.user(source, name) for name in _listed(usernames)]
    else:
        found = [*await admin.access.users(source)]
    for user in found:
        if user is None:
            continue
        exists = await admin.access.user(target, user.username or "") is not None
        with masked(user.password):
            await (admin.access.update_user if exists else admin.access.create_user)(target, user)
        printf("copy user of %s from %s to %s success.%n", user.username, source, target)


# ----------------------------------------------------------------------------------------------------------- policies


def _acl_change(change: Callable[[Access, str, AclInfo], Awaitable[None]], done: str) -> Command:
    """Return the command that changes the policies of a subject."""

    async def change_acl(
        admin: Admin,
        subject: Subject,
        resources: Resources,
        actions: Actions,
        decision: Decision,
        source_ips: SourceIps = None,
        broker: BrokerAddress = None,
        cluster: Cluster = None,
    ) -> None:
        acl = _acl(subject, resources, actions, decision, source_ips)
        await _everywhere(admin, broker, cluster, lambda its: change(admin.access, its, acl), done)

    return change_acl


create_acl = COMMANDS.add("createAcl", "Create acl to cluster.")(_acl_change(Access.create_acl, "create acl to"))
update_acl = COMMANDS.add("updateAcl", "Update acl to cluster.")(_acl_change(Access.update_acl, "update acl to"))


@COMMANDS.add("deleteAcl", "Delete acl from cluster.")
async def delete_acl(
    admin: Admin,
    subject: Subject,
    resource: Annotated[str, typer.Option("-r", "--resources", help="One resource; default: all policies.")] = "",
    broker: BrokerAddress = None,
    cluster: Cluster = None,
) -> None:
    """Delete the policies of a subject, or those for one resource."""
    names = subject.strip(), resource.strip()
    await _everywhere(admin, broker, cluster, lambda its: admin.access.delete_acl(its, *names), "delete acl to")


@COMMANDS.add("getAcl", "Get acl from cluster.")
async def get_acl(admin: Admin, subject: Subject, broker: BrokerAddress = None, cluster: Masters = None) -> None:
    """Print the policies of a subject."""
    has_any = False
    for address in await master_addresses(admin, broker, cluster):
        acl = await admin.access.acl(address, subject.strip())
        if acl is not None:
            has_any = True
            _print_acls([acl])
    if not has_any:
        raise not_found(f"no policies of {subject.strip()}. `mqadmin listAcl` lists the policies.")


@COMMANDS.add("listAcl", "List acl from cluster.")
async def list_acls(
    admin: Admin,
    subject: Annotated[str, typer.Option("-s", "--subject", help="Only subjects with this text.")] = "",
    resource: Annotated[str, typer.Option("-r", "--resource", help="Only resources with this text.")] = "",
    broker: BrokerAddress = None,
    cluster: Masters = None,
) -> None:
    """Print the policies of a broker, or of all masters of a cluster."""
    for address in await master_addresses(admin, broker, cluster):
        acls = await admin.access.acls(address, subject.strip(), resource.strip())
        if acls:
            _print_acls(acls)


@COMMANDS.add("copyAcl", "Copy acl to cluster.")
async def copy_acls(
    admin: Admin,
    source: FromBroker,
    target: ToBroker,
    subjects: Annotated[
        str, typer.Option("-s", "--subjects", help="Subjects, separated by commas; default: all.")
    ] = "",
) -> None:
    """Copy policies from one broker to another."""
    source, target = source.strip(), target.strip()
    if subjects.strip():
        found = [await admin.access.acl(source, subject) for subject in _listed(subjects)]
    else:
        found = [*await admin.access.acls(source)]
    for acl in found:
        if acl is None:
            continue
        exists = await admin.access.acl(target, acl.subject or "") is not None
        await (admin.access.update_acl if exists else admin.access.create_acl)(target, acl)
        printf("copy acl of %s from %s to %s success.%n", acl.subject, source, target)


# ------------------------------------------------------------------------------------------------------------- shared


async def _everywhere(
    admin: Admin,
    broker: str | None,
    cluster: str | None,
    change: Callable[[str], Awaitable[None]],
    done: str,
) -> None:
    """Make a change on one broker, or on all masters and slaves of a cluster."""
    for address in await all_addresses(admin, broker, cluster):
        await change(address)
        printf("%s %s success.%n", done, address)


def _listed(text: str) -> list[str]:
    """Return the entries of a list with commas, without empty ones."""
    return [entry.strip() for entry in text.split(",") if entry]


def _acl(subject: str, resources: str, actions: str, decision: str, source_ips: str | None) -> AclInfo:
    entries = [
        PolicyEntryInfo(
            resource, _listed(actions), None if source_ips is None else _listed(source_ips), decision.strip()
        )
        for resource in _listed(resources)
    ]
    return AclInfo(subject.strip(), [PolicyInfo(entries=entries)])


def _print_users(users: list[UserInfo]) -> None:
    printf(_USER, "#UserName", "#Password", "#UserType", "#UserStatus")
    for user in users:
        printf(_USER, user.username, user.password, user.user_type, user.user_status)


def _print_acls(acls: list[AclInfo]) -> None:
    printf(_ACL, "#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision")
    for acl in acls:
        if not acl.policies:
            printf(_ACL, acl.subject, "", "", "", "", "")
        for policy in acl.policies:
            for entry in policy.entries:
                texts = _list_text(entry.actions), _list_text(entry.source_ips)
                printf(_ACL, acl.subject, policy.policy_type, entry.resource, *texts, entry.decision)


def _list_text(items: list[str] | None) -> str:
    return java_text(None) if items is None else f"[{', '.join(items)}]"
