"""`mqadmin user`: the users of RocketMQ 5.3's access control: create, update, delete, list, show and copy them.

A password is typed on the terminal, or read from a file. It is no option, and no command prints one.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer
from msgspec import Meta

from skylarkmq.clients.mqadmin.commands import Commands
from skylarkmq.clients.mqadmin.failures import NO_PERMISSION, CommandFailed, not_found, usage_error
from skylarkmq.clients.mqadmin.people.accounts import (
    SUBJECT_PREFIX,
    AccountsCopy,
    BrokerOption,
    FromOption,
    PolicyRow,
    ToOption,
    UserRow,
    brokers_of,
    brokers_with,
    policies_of,
    policy_rows,
    user_rows,
    users_by_broker,
)
from skylarkmq.clients.mqadmin.people.broker_state import address_of
from skylarkmq.clients.mqadmin.people.changes import Change
from skylarkmq.clients.mqadmin.people.completion import UserArgument, users
from skylarkmq.clients.mqadmin.people.confirmation import Yes, confirm
from skylarkmq.clients.mqadmin.people.filters import ClusterOption, NameFilter, name_matches
from skylarkmq.clients.mqadmin.people.output import Json, Result, Rows, Watch, print_result, show
from skylarkmq.clients.mqadmin.secret_options import masked, secret_of, typed_secret
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.terminal.printed_output import counted
from skylarkmq.protocol.bodies.auth import UserInfo

COMMANDS = Commands()

_TYPES: Final = {"super": "Super", "normal": "Normal"}

UserType = Annotated[str | None, typer.Option("--type", metavar="normal|super", help="A super user may do everything.")]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", metavar="FILE", help="File with the password; only its owner may read it."),
]


class UserList(Result, frozen=True, kw_only=True):
    """The users of brokers."""

    users: Annotated[list[UserRow], Meta(description="sorted by name; several rows if brokers differ")]

    def tables(self) -> Iterator[Rows]:
        """Yield one table."""
        rows = [(each.name, each.type, each.status, len(each.brokers)) for each in self.users]
        yield Rows("", ("User", "Type", "Status", "Brokers"), rows, "No users.")


class UserDetails(Result, frozen=True, kw_only=True):
    """One user."""

    name: Annotated[str, Meta(description="name")]
    users: Annotated[list[UserRow], Meta(description="its type and status; several rows if brokers differ")]
    policies: Annotated[list[PolicyRow], Meta(description="its policies, sorted by resource")]

    def tables(self) -> Iterator[Rows]:
        """Yield the user and its policies."""
        rows = [(each.type, each.status, ", ".join(each.brokers)) for each in self.users]
        yield Rows(f"User {self.name}", ("Type", "Status", "Brokers"), rows)
        yield policy_rows(self.policies, with_brokers=True)._replace(heading="Policies")


# ----------------------------------------------------------------------------------------------------------- to change


@COMMANDS.add(
    "create",
    "Create a user; asks for the password.",
    "mqadmin user create alice",
    "mqadmin user create operator --type super --password-file operator.key",
)
async def create(
    admin: Admin,
    user: UserArgument,
    user_type: UserType = None,
    password_file: PasswordFile = None,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    as_json: Json = False,
) -> None:
    """Create the user on each broker. CommandFailed if one has it."""
    kind, secret = _type(user_type or "normal"), secret_of(None, password_file)
    addresses = await brokers_of(admin, cluster, broker)
    if existing := await brokers_with(admin, addresses, user):
        raise usage_error(
            f"user {user} exists on {', '.join(existing)}. `mqadmin user update` changes it, `mqadmin user copy` "
            "copies it to other brokers."
        )
    secret = secret or typed_secret(f"user {user}")
    with masked(secret):
        for address in addresses:
            await admin.access.create_user(address, UserInfo(user, secret, kind))
    print_result(Change(kind="user", name=user, action="created", servers=addresses), as_json=as_json)


@COMMANDS.add(
    "update",
    "Change the password, type or status of a user; options that are not given stay.",
    "mqadmin user update alice --password",
    "mqadmin user update alice --disable",
)
async def update(
    admin: Admin,
    user: UserArgument,
    with_password: Annotated[bool, typer.Option("--password", help="Ask for a new password.")] = False,
    password_file: PasswordFile = None,
    user_type: UserType = None,
    is_enabled: Annotated[
        bool | None, typer.Option("--enable/--disable", help="Whether the user may do anything.")
    ] = None,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    as_json: Json = False,
) -> None:
    """Change the user on each broker that has it."""
    secret, kind = secret_of(None, password_file), None if user_type is None else _type(user_type)
    if secret is None and kind is None and is_enabled is None and not with_password:
        raise usage_error("nothing to change: give --password, --password-file, --type, --enable or --disable.")
    if secret is not None and with_password:
        raise usage_error("give either --password or --password-file.")
    addresses = await _existing(admin, user, cluster, broker)
    if with_password:
        secret = typed_secret(f"user {user}")
    status = None if is_enabled is None else "enable" if is_enabled else "disable"
    with masked(secret):
        for address in addresses:
            await admin.access.update_user(address, UserInfo(user, secret, kind, status))
    print_result(Change(kind="user", name=user, action="updated", servers=addresses), as_json=as_json)


@COMMANDS.add("delete", "Delete a user with its policies.", "mqadmin user delete alice --yes")
async def delete(
    admin: Admin,
    user: UserArgument,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete the user on each broker that has it."""
    addresses = await _existing(admin, user, cluster, broker)
    count = len(await policies_of(admin, addresses, SUBJECT_PREFIX + user))
    policies = f"{count:,} policy" if count == 1 else f"{count:,} policies"
    places = counted(len(addresses), "broker")
    confirm(f"User {user} with {policies} will be deleted on {places}.", is_agreed=yes)
    for address in addresses:
        await admin.access.delete_user(address, user)
    print_result(Change(kind="user", name=user, action="deleted", servers=addresses), as_json=as_json)


@COMMANDS.add(
    "copy",
    "Copy users with their passwords from broker to broker.",
    "mqadmin user copy --from broker-a --to broker-b",
    "mqadmin user copy alice bob --from broker-a --to 10.0.0.2:10911",
)
async def copy(
    admin: Admin,
    source: FromOption,
    target: ToOption,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="USER", help="Names of users. Default: all.", autocompletion=users)
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Create the users on another broker, or change them there. The caller must be a super user."""
    from_address, to_address = await address_of(admin, source), await address_of(admin, target)
    if from_address == to_address:
        raise usage_error(f"both brokers are {to_address}: give two different ones.")
    tables = await users_by_broker(admin, [from_address, to_address])
    found = {user.username or "": user for user in tables[from_address]}
    wanted = names or sorted(found)
    for name in wanted:
        if name not in found:
            raise _unknown(name, from_address)
        if not found[name].password:
            reason = f"broker {from_address} returns the password of user {name} to super users only"
            raise CommandFailed(f"{reason}: use a super user's profile.", NO_PERMISSION)
    there = {user.username for user in tables[to_address]}
    if replaced := [name for name in wanted if name in there]:
        confirm(f"On {to_address} will be changed: {', '.join(replaced)}.", is_agreed=yes)
    for name in wanted:
        put = admin.access.update_user if name in there else admin.access.create_user
        with masked(found[name].password):
            await put(to_address, found[name])
    result = AccountsCopy(kind="user", names=wanted, source=from_address, target=to_address)
    print_result(result, as_json=as_json)


# ------------------------------------------------------------------------------------------------------------- to read


@COMMANDS.add("list", "List users.", "mqadmin user list", "mqadmin user list --filter ali --json")
async def list_users(
    admin: Admin,
    text: NameFilter = "",
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    as_json: Json = False,
    watch: Watch = None,
) -> None:
    """Print the users of all brokers."""

    async def read() -> UserList:
        rows = user_rows(await users_by_broker(admin, await brokers_of(admin, cluster, broker)))
        return UserList(users=[row for row in rows if name_matches(row.name, text)])

    await show(read, as_json=as_json, watch=watch)


@COMMANDS.add("show", "Show a user with its policies.", "mqadmin user show alice")
async def show_user(
    admin: Admin,
    user: UserArgument,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    as_json: Json = False,
    watch: Watch = None,
) -> None:
    """Print one user."""
    await show(partial(_details, admin, user, cluster, broker), as_json=as_json, watch=watch)


# --------------------------------------------------------------------------------------------------------------- parts


async def _details(admin: Admin, user: str, cluster: str | None, broker: str | None) -> UserDetails:
    addresses = await brokers_of(admin, cluster, broker)
    rows = [row for row in user_rows(await users_by_broker(admin, addresses, user)) if row.name == user]
    if not rows:
        raise _unknown(user, *addresses)
    return UserDetails(name=user, users=rows, policies=await policies_of(admin, addresses, SUBJECT_PREFIX + user))


async def _existing(admin: Admin, user: str, cluster: str | None, broker: str | None) -> list[str]:
    """Return the brokers that have the user. CommandFailed if no broker has it."""
    addresses = await brokers_of(admin, cluster, broker)
    found = await brokers_with(admin, addresses, user)
    if not found:
        raise _unknown(user, *addresses)
    return found


def _unknown(user: str, *addresses: str) -> Exception:
    places = f"broker {addresses[0]} has" if len(addresses) == 1 else f"none of {len(addresses):,} brokers has"
    return not_found(f"{places} a user {user}. `mqadmin user list` lists the users.")


def _type(text: str) -> str:
    if text.lower() not in _TYPES:
        raise usage_error(f"{text!r} is not a user type; use one of {', '.join(_TYPES)}.")
    return _TYPES[text.lower()]
