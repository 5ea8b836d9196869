"""`mqadmin acl`: the policies of RocketMQ 5.3's access control: create, update, delete, list, show and copy them.

A policy allows or denies a subject, which is a user, actions on a resource. Accounts of RocketMQ 4.9 are changed by
RocketMQ's commands, such as `updateAclConfig`.
"""

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Final

import msgspec
import typer
from msgspec import Meta

from skylarkmq.clients.mqadmin.commands import Commands
from skylarkmq.clients.mqadmin.failures import not_found, usage_error
from skylarkmq.clients.mqadmin.people.accounts import (
    CUSTOM,
    SUBJECT_PREFIX,
    AccountsCopy,
    BrokerOption,
    FromOption,
    PolicyRow,
    ToOption,
    brokers_of,
    brokers_with,
    entries_of,
    policies_by_broker,
    policies_of,
    policy_rows,
    policy_table,
    same_resource,
    subject_argument,
)
from skylarkmq.clients.mqadmin.people.broker_state import address_of
from skylarkmq.clients.mqadmin.people.completion import SubjectArgument, users
from skylarkmq.clients.mqadmin.people.confirmation import Yes, confirm
from skylarkmq.clients.mqadmin.people.filters import ClusterOption, name_matches
from skylarkmq.clients.mqadmin.people.output import Json, Result, Rows, Watch, print_result, show
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.terminal.printed_output import counted
from skylarkmq.protocol.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo

COMMANDS = Commands()

ALL_SOURCES: Final = "all"
_ACTIONS: Final = {name.lower(): name for name in ("Pub", "Sub", "Create", "Update", "Delete", "Get", "List", "All")}
_DECISIONS: Final = {"allow": "Allow", "deny": "Deny"}
_RESOURCES: Final = ("topic", "group", "cluster", "namespace", "any")

Resources = Annotated[
    list[str],
    typer.Option("--resource", metavar="TYPE:NAME", help="Topic:Orders, Group:bill*, Cluster:*; may be repeated."),
]
ACTIONS_HELP: Final = f"Separated by commas: {', '.join(_ACTIONS.values())}."
SourceIps = Annotated[
    list[str] | None,
    typer.Option("--source-ip", metavar="ADDRESS", help="Address or network of clients, or all; may be repeated."),
]


class PolicyList(Result, frozen=True, kw_only=True):
    """The policies of brokers."""

    policies: Annotated[list[PolicyRow], Meta(description="by subject and resource; several rows if brokers differ")]

    def tables(self) -> Iterator[Rows]:
        """Yield one table."""
        yield policy_rows(self.policies, with_brokers=False)


class SubjectPolicies(Result, frozen=True, kw_only=True):
    """The policies of one subject."""

    subject: Annotated[str, Meta(description="`User:` and the name of the user")]
    policies: Annotated[list[PolicyRow], Meta(description="by resource; several rows if brokers differ")]

    def tables(self) -> Iterator[Rows]:
        """Yield one table."""
        yield policy_rows(self.policies, with_brokers=True)


class PolicyChange(Result, frozen=True, kw_only=True):
    """A change of policies that a command has made."""

    subject: Annotated[str, Meta(description="`User:` and the name of the user")]
    resources: Annotated[list[str], Meta(description="the resources of the policies; empty: all")]
    action: Annotated[str, Meta(description="`created`, `updated` or `deleted`")]
    servers: Annotated[list[str], Meta(description="addresses of the brokers that have done it")]

    def tables(self) -> Iterator[Rows]:
        """Yield one line."""
        resources, places = ", ".join(self.resources) or "all resources", ", ".join(self.servers)
        yield Rows(f"Policies of {self.subject} for {resources} are {self.action} on {places}.")


# ----------------------------------------------------------------------------------------------------------- to change


@COMMANDS.add(
    "create",
    "Allow or deny a user actions on resources.",
    "mqadmin acl create alice --resource Topic:Orders --actions Pub,Sub",
    "mqadmin acl create alice --resource Group:bill* --actions Sub --source-ip 10.0.0.0/8",
    "mqadmin acl create alice --resource Topic:Salaries --actions All --decision deny",
)
async def create(
    admin: Admin,
    subject: SubjectArgument,
    resources: Resources,
    actions: Annotated[str, typer.Option("--actions", metavar="ACTIONS", help=ACTIONS_HELP)],
    decision: Annotated[str, typer.Option("--decision", metavar="allow|deny", help="The effect.")] = "allow",
    source_ips: SourceIps = None,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    as_json: Json = False,
) -> None:
    """Create the policies on each broker. CommandFailed if one has a policy for a resource, or has no such user."""
    subject, verb = subject_argument(subject), _decision(decision)
    _check_resources(resources)
    rights, sources = _actions(actions), _sources(source_ips or [])
    addresses = await brokers_of(admin, cluster, broker)
    await _check_user(admin, addresses, subject)
    for row in await policies_of(admin, addresses, subject):
        if row.type == CUSTOM and any(same_resource(row.resource, resource) for resource in resources):
            places = ", ".join(row.brokers)
            text = f"{subject} has a policy for {row.resource} on {places}. `mqadmin acl update` changes it."
            raise usage_error(text)
    entries = [PolicyEntryInfo(resource, rights, sources, verb) for resource in resources]
    for address in addresses:
        await admin.access.create_acl(address, AclInfo(subject, [PolicyInfo(CUSTOM, entries)]))
    change = PolicyChange(subject=subject, resources=resources, action="created", servers=addresses)
    print_result(change, as_json=as_json)


@COMMANDS.add(
    "update",
    "Change policies; options that are not given stay.",
    "mqadmin acl update alice --resource Topic:Orders --actions Sub",
    "mqadmin acl update alice --resource Topic:Orders --source-ip all",
)
async def update(
    admin: Admin,
    subject: SubjectArgument,
    resources: Resources,
    actions: Annotated[str | None, typer.Option("--actions", metavar="ACTIONS", help=ACTIONS_HELP)] = None,
    decision: Annotated[str | None, typer.Option("--decision", metavar="allow|deny", help="The effect.")] = None,
    source_ips: SourceIps = None,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    as_json: Json = False,
) -> None:
    """Change the policies on each broker that has them."""
    if actions is None and decision is None and source_ips is None:
        raise usage_error("nothing to change: give --actions, --decision or --source-ip.")
    subject = subject_argument(subject)
    _check_resources(resources)
    changes = {
        "actions": None if actions is None else _actions(actions),
        "decision": None if decision is None else _decision(decision),
        "source_ips": None if source_ips is None else _sources(source_ips),
    }
    given = {name: value for name, value in changes.items() if value is not None}
    found = await _entries(admin, subject, resources, cluster, broker)
    for address, entries in found.items():
        policies = [PolicyInfo(type_, [msgspec.structs.replace(entry, **given)]) for type_, entry in entries]
        await admin.access.update_acl(address, AclInfo(subject, policies))
    change = PolicyChange(subject=subject, resources=resources, action="updated", servers=list(found))
    print_result(change, as_json=as_json)


@COMMANDS.add(
    "delete",
    "Delete policies: those of some resources, or all policies of a user.",
    "mqadmin acl delete alice --resource Topic:Orders --yes",
    "mqadmin acl delete alice --all",
)
async def delete(
    admin: Admin,
    subject: SubjectArgument,
    resources: Annotated[
        list[str] | None, typer.Option("--resource", metavar="TYPE:NAME", help="Of this resource; may be repeated.")
    ] = None,
    with_all: Annotated[bool, typer.Option("--all", help="All policies of the subject.")] = False,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete the policies on each broker that has them."""
    if with_all == bool(resources):
        raise usage_error("give either --resource, once or more, or --all.")
    subject, wanted = subject_argument(subject), resources or []
    _check_resources(wanted)
    found = await _entries(admin, subject, wanted, cluster, broker)
    count = sum(map(len, found.values()))
    policies = f"{count:,} policy" if count == 1 else f"{count:,} policies"
    verb = "will be deleted on"
    confirm(f"{policies} of {subject} {verb} {counted(len(found), 'broker')}.", is_agreed=yes)
    for address, entries in found.items():
        if with_all:
            await admin.access.delete_acl(address, subject)
        else:
            for type_, entry in entries:
                await admin.access.delete_acl(address, subject, entry.resource or "", policy_type=type_)
    change = PolicyChange(subject=subject, resources=wanted, action="deleted", servers=list(found))
    print_result(change, as_json=as_json)


@COMMANDS.add(
    "copy",
    "Copy policies from broker to broker.",
    "mqadmin acl copy --from broker-a --to broker-b",
    "mqadmin acl copy alice bob --from broker-a --to 10.0.0.2:10911",
)
async def copy(
    admin: Admin,
    source: FromOption,
    target: ToOption,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="SUBJECT", help="Names of users. Default: all.", autocompletion=users),
    ] = None,
    as_json: Json = False,
) -> None:
    """Add the policies of the subjects to those of another broker. Policies for the same resources are changed."""
    from_address, to_address = await address_of(admin, source), await address_of(admin, target)
    if from_address == to_address:
        raise usage_error(f"both brokers are {to_address}: give two different ones.")
    tables = await policies_by_broker(admin, [from_address])
    found = {acl.subject or "": acl for acl in tables[from_address]}
    wanted = [subject_argument(name) for name in names or []] or sorted(found)
    for subject in wanted:
        if subject not in found:
            raise not_found(f"broker {from_address} has no policies of {subject}. `mqadmin acl list` lists them.")
        await _check_user(admin, [to_address], subject)
    for subject in wanted:
        await admin.access.create_acl(to_address, found[subject])
    result = AccountsCopy(kind="subject", names=wanted, source=from_address, target=to_address)
    print_result(result, as_json=as_json)


# ------------------------------------------------------------------------------------------------------------- to read


@COMMANDS.add("list", "List policies.", "mqadmin acl list", "mqadmin acl list --resource Topic:Orders --json")
async def list_policies(
    admin: Admin,
    subject: Annotated[str, typer.Option("--subject", metavar="TEXT", help="Only subjects with this text.")] = "",
    resource: Annotated[str, typer.Option("--resource", metavar="TEXT", help="Only resources with this text.")] = "",
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    as_json: Json = False,
    watch: Watch = None,
) -> None:
    """Print the policies of all brokers."""

    async def read() -> PolicyList:
        rows = policy_table(await policies_by_broker(admin, await brokers_of(admin, cluster, broker)))
        chosen = [row for row in rows if name_matches(row.subject, subject) and name_matches(row.resource, resource)]
        return PolicyList(policies=chosen)

    await show(read, as_json=as_json, watch=watch)


@COMMANDS.add("show", "Show the policies of a user.", "mqadmin acl show alice")
async def show_policies(
    admin: Admin,
    subject: SubjectArgument,
    cluster: ClusterOption = None,
    broker: BrokerOption = None,
    as_json: Json = False,
    watch: Watch = None,
) -> None:
    """Print the policies of one subject."""
    await show(partial(_details, admin, subject_argument(subject), cluster, broker), as_json=as_json, watch=watch)


# --------------------------------------------------------------------------------------------------------------- parts


async def _details(admin: Admin, subject: str, cluster: str | None, broker: str | None) -> SubjectPolicies:
    rows = await policies_of(admin, await brokers_of(admin, cluster, broker), subject)
    if not rows:
        raise _no_policies(subject)
    return SubjectPolicies(subject=subject, policies=rows)


async def _entries(
    admin: Admin, subject: str, resources: list[str], cluster: str | None, broker: str | None
) -> dict[str, list[tuple[str, PolicyEntryInfo]]]:
    """Return the entries of a subject by broker, with the types of their policies: those for resources, or all.

    Brokers without them are left out. CommandFailed if no broker has an entry for one of the resources.
    """
    tables = await policies_by_broker(admin, await brokers_of(admin, cluster, broker), subject)
    every = {
        address: [pair for acl in acls if acl.subject == subject for pair in entries_of(acl)]
        for address, acls in tables.items()
    }
    for resource in resources:
        if not any(same_resource(entry.resource, resource) for pairs in every.values() for _, entry in pairs):
            raise _no_policies(subject, f" for {resource}")
    if not any(every.values()):
        raise _no_policies(subject)
    chosen = {
        address: [
            (type_, entry)
            for type_, entry in pairs
            if not resources or any(same_resource(entry.resource, resource) for resource in resources)
        ]
        for address, pairs in every.items()
    }
    return {address: pairs for address, pairs in chosen.items() if pairs}


def _no_policies(subject: str, suffix: str = "") -> Exception:
    return not_found(f"no broker has policies of {subject}{suffix}. `mqadmin acl list` lists the policies.")


async def _check_user(admin: Admin, addresses: list[str], subject: str) -> None:
    """CommandFailed unless each broker has the user of a subject: brokers have policies of their own users only."""
    if not subject.startswith(SUBJECT_PREFIX):
        return
    user = subject.removeprefix(SUBJECT_PREFIX)
    having = await brokers_with(admin, addresses, user)
    if missing := [address for address in addresses if address not in having]:
        raise not_found(
            f"there is no user {user} on {', '.join(missing)}. `mqadmin user create` or `mqadmin user copy` creates it."
        )


# -------------------------------------------------------------------------------------------------------------- values


def _check_resources(resources: list[str]) -> None:
    for resource in resources:
        kind, _, name = resource.partition(":")
        if resource != "*" and (kind.lower() not in _RESOURCES or not name):
            raise usage_error(
                f"{resource!r} is not a resource: Topic:NAME, Group:NAME or Cluster:NAME; * ends a prefix."
            )


def _actions(text: str) -> list[str]:
    """Return the actions of a list with commas, in RocketMQ's spelling. CommandFailed for an unknown one."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        if name.lower() not in _ACTIONS:
            raise usage_error(f"{name!r} is not an action; use one of {', '.join(_ACTIONS.values())}.")
    if not names:
        raise usage_error(f"no action is given; use some of {', '.join(_ACTIONS.values())}.")
    return [_ACTIONS[name.lower()] for name in names]


def _decision(text: str) -> str:
    if text.lower() not in _DECISIONS:
        raise usage_error(f"{text!r} is not a decision; use one of {', '.join(_DECISIONS)}.")
    return _DECISIONS[text.lower()]


def _sources(texts: list[str]) -> list[str]:
    """Return addresses and networks; none for ALL_SOURCES. CommandFailed for `all` beside others."""
    if ALL_SOURCES not in texts:
        return texts
    if len(texts) > 1:
        raise usage_error(f"--source-ip {ALL_SOURCES} excludes other addresses.")
    return []
