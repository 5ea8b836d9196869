"""Users and policies as results, and the brokers that have them: the parts that `mqadmin user` and `mqadmin acl` share.

Each broker has users and policies of its own, a slave too. So a change is made on every broker, and lists are read from
every broker: a row names the brokers that agree about it. No result has a password.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Final

import typer
from msgspec import Meta

from skylarkmq.clients.mqadmin.failures import REFUSED, CommandFailed, not_found, usage_error
from skylarkmq.clients.mqadmin.people.broker_state import address_of, places_of
from skylarkmq.clients.mqadmin.people.output import Result, Rows
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.admin.gathering import gathered
from skylarkmq.clients.sdk.base.errors import BrokerError
from skylarkmq.clients.terminal.printed_output import Summary, counted
from skylarkmq.protocol.bodies.auth import AclInfo, PolicyEntryInfo, UserInfo
from skylarkmq.protocol.codes import ResponseCode

SUBJECT_PREFIX: Final = "User:"
CUSTOM: Final = "Custom"
"""The type of policies that commands create."""
_NO_PROVIDER: Final = "An system error occurred, please try again later."
"""The remark of a RocketMQ 5.3 broker, and of Skylark, that is not configured for users."""

BrokerOption = Annotated[
    str | None,
    typer.Option("-b", "--broker", metavar="BROKER", help="Only this broker: name of a master, or host:port."),
]
FromOption = Annotated[str, typer.Option("--from", metavar="BROKER", help="Name of a master, or host:port.")]
ToOption = Annotated[str, typer.Option("--to", metavar="BROKER", help="Name of a master, or host:port.")]


class UserRow(Summary, frozen=True, kw_only=True):
    """A user, as some brokers have it."""

    name: Annotated[str, Meta(description="name")]
    type: Annotated[str, Meta(description="`Super` or `Normal`")]
    status: Annotated[str, Meta(description="`enable` or `disable`")]
    brokers: Annotated[list[str], Meta(description="addresses of the brokers that have it in this form")]


class PolicyRow(Summary, frozen=True, kw_only=True):
    """The rights of a subject on a resource, as some brokers have them."""

    subject: Annotated[str, Meta(description="`User:` and the name of the user")]
    resource: Annotated[str, Meta(description="such as `Topic:Orders`, `Group:bill*` or `Cluster:*`")]
    actions: Annotated[list[str], Meta(description="such as `Pub` and `Sub`")]
    decision: Annotated[str, Meta(description="`Allow` or `Deny`")]
    source_ips: Annotated[list[str], Meta(description="addresses and networks of the clients; empty: all")]
    type: Annotated[str, Meta(description="`Custom`; `Default`: where no other policy is about the resource")]
    brokers: Annotated[list[str], Meta(description="addresses of the brokers that have it in this form")]


class AccountsCopy(Result, frozen=True, kw_only=True):
    """Users, or the policies of subjects, that were copied."""

    kind: Annotated[str, Meta(description="`user` or `subject`")]
    names: Annotated[list[str], Meta(description="names of the users or subjects")]
    source: Annotated[str, Meta(description="address of the broker they come from")]
    target: Annotated[str, Meta(description="address of the broker that has them now")]

    def tables(self) -> Iterator[Rows]:
        """Yield one line."""
        count = counted(len(self.names), self.kind)
        yield Rows(f"Copied {count} from {self.source} to {self.target}: {', '.join(self.names)}.")


def policy_rows(policies: Sequence[PolicyRow], *, with_brokers: bool) -> Rows:
    """Return the table of policies: with the addresses of brokers, or with their number."""
    rows = [
        (
            each.subject,
            each.resource,
            ", ".join(each.actions),
            each.decision,
            ", ".join(each.source_ips) or "all",
            each.type,
            ", ".join(each.brokers) if with_brokers else len(each.brokers),
        )
        for each in policies
    ]
    columns = ("Subject", "Resource", "Actions", "Decision", "From", "Type", "Brokers")
    return Rows("", columns, rows, "No policies.")


# ------------------------------------------------------------------------------------------------------------- brokers


async def brokers_of(admin: Admin, cluster: str | None, broker: str | None) -> list[str]:
    """Return the address of the broker, or of all masters and slaves of the cluster; None: of all clusters.

    CommandFailed if no broker is registered, or if both are given.
    """
    if broker is not None:
        if cluster is not None:
            raise usage_error("give either --broker or --cluster.")
        return [await address_of(admin, broker)]
    addresses = [place.address for place in await places_of(admin, cluster)]
    if not addresses:
        raise not_found("no broker is registered. Check that one runs, and the name server of its settings.")
    return addresses


@contextmanager
def having_users(address: str) -> Iterator[None]:
    """Raise CommandFailed with the next step instead of the errors of a broker that has no users and policies."""
    try:
        yield
    except BrokerError as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            reason = (
                "is older than RocketMQ 5.3, whose users these are. `mqadmin updateAclConfig` changes its accounts."
            )
        elif error.code == ResponseCode.SYSTEM_ERROR and error.remark == _NO_PROVIDER:
            reason = (
                "manages no users: set authenticationEnabled=true in its configuration (RocketMQ needs "
                "authenticationMetadataProvider, too), and restart it."
            )
        else:
            raise
        raise CommandFailed(f"broker {address} {reason}", REFUSED) from error


# --------------------------------------------------------------------------------------------------------------- users


async def users_by_broker(admin: Admin, addresses: Sequence[str], name: str = "") -> dict[str, list[UserInfo]]:
    """Return the users of each broker whose names contain a text."""

    async def read(address: str) -> list[UserInfo]:
        with having_users(address):
            return await admin.access.users(address, name)

    tables = await gathered([partial(read, address) for address in addresses])
    return dict(zip(addresses, tables, strict=True))


async def brokers_with(admin: Admin, addresses: Sequence[str], name: str) -> list[str]:
    """Return the brokers that have a user."""
    tables = await users_by_broker(admin, addresses, name)
    return [address for address, users in tables.items() if any(user.username == name for user in users)]


def user_rows(tables: dict[str, list[UserInfo]]) -> list[UserRow]:
    """Return a row for each user; several for a user about which brokers differ. Sorted by name."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for address, users in tables.items():
        for user in users:
            key = user.username or "", user.user_type or "", user.user_status or ""
            found.setdefault(key, []).append(address)
    return [
        UserRow(name=name, type=type_, status=status, brokers=brokers)
        for (name, type_, status), brokers in sorted(found.items())
    ]


# ------------------------------------------------------------------------------------------------------------ policies


async def policies_by_broker(admin: Admin, addresses: Sequence[str], subject: str = "") -> dict[str, list[AclInfo]]:
    """Return the policies of each broker, of the subjects whose names contain a text."""

    async def read(address: str) -> list[AclInfo]:
        with having_users(address):
            return await admin.access.acls(address, subject)

    tables = await gathered([partial(read, address) for address in addresses])
    return dict(zip(addresses, tables, strict=True))


async def policies_of(admin: Admin, addresses: Sequence[str], subject: str) -> list[PolicyRow]:
    """Return the policies of exactly this subject: brokers also return subjects that contain it."""
    return [row for row in policy_table(await policies_by_broker(admin, addresses, subject)) if row.subject == subject]


def policy_table(tables: dict[str, list[AclInfo]]) -> list[PolicyRow]:
    """Return a row for each policy; several for one about which brokers differ. Sorted by subject and resource."""
    found: dict[tuple[str, str, str, str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for address, acls in tables.items():
        for acl in acls:
            for type_, entry in entries_of(acl):
                names = acl.subject or "", entry.resource or "", type_, entry.decision or ""
                found.setdefault((*names, tuple(entry.actions), tuple(entry.source_ips or ())), []).append(address)
    return [
        PolicyRow(
            subject=subject,
            resource=resource,
            actions=list(actions),
            decision=decision,
            source_ips=list(source_ips),
            type=type_,
            brokers=brokers,
        )
        for (subject, resource, type_, decision, actions, source_ips), brokers in sorted(found.items())
    ]


def entries_of(acl: AclInfo) -> Iterator[tuple[str, PolicyEntryInfo]]:
    """Yield each entry of a subject with the type of its policy."""
    for policy in acl.policies:
        for entry in policy.entries:
            yield policy.policy_type or CUSTOM, entry


def subject_argument(text: str) -> str:
    """Return the subject of a text: a user, unless the text names another type. Brokers ignore the case of types."""
    kind, has_type, name = text.partition(":")
    if not has_type:
        return f"{SUBJECT_PREFIX}{text}"
    return f"{SUBJECT_PREFIX}{name}" if kind.lower() == "user" else text


def same_resource(one: str | None, other: str) -> bool:
    """Return whether two texts name the same resource: brokers compare types of resources regardless of case."""
    return _resource_key(one or "") == _resource_key(other)


def _resource_key(text: str) -> tuple[str, str]:
    kind, _, name = text.partition(":")
    return kind.lower(), name
