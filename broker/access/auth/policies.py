"""Policies: what users may do, by subject, stored in `config/acls.json`.

A subject has policies of two types. Entries of the type Default apply to resources that no entry of the type Custom
matches. A subject has at most one entry per type and resource, unless its first policies had several; a change of an
entry replaces its actions, addresses and decision. The remarks of refused changes are RocketMQ's.

Source: docs/reference/behaviour.md, "Users and policies"; docs/reference/disk.md, "State files".
"""

import logging
from collections.abc import Callable
from enum import Enum
from typing import Final

import msgspec

from skylarkmq.broker.access.auth.source_addresses import is_valid
from skylarkmq.broker.access.auth.users import Users, refusal
from skylarkmq.broker.access.requests.resources import Action, Resource
from skylarkmq.protocol.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from skylarkmq.protocol.errors import RequestError

ACLS_FILE: Final = "acls.json"
SUBJECT_PREFIX: Final = "User:"
MOST_ENTRIES: Final = 1_000
"""The most entries of one subject."""

log = logging.getLogger(__name__)


class Decision(Enum):
    """RocketMQ's decisions of an entry."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(Enum):
    """RocketMQ's types of policies."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


_ACTIONS: Final = {member.value.lower(): member for member in Action}
_DECISIONS: Final = {member.value.lower(): member for member in Decision}
_POLICY_TYPES: Final = {member.value.lower(): member for member in PolicyType}


class PolicyEntry(msgspec.Struct, frozen=True):
    """What a resource permits or denies. `sources`: permitted peers, as addresses and networks; none: all peers."""

    resource: Resource
    actions: tuple[Action, ...]
    sources: tuple[str, ...]
    decision: Decision


class Policy(msgspec.Struct, frozen=True):
    """The entries of one type."""

    type: PolicyType
    entries: tuple[PolicyEntry, ...]


Acl = tuple[Policy, ...]
"""All policies of a subject."""


class AclsStatistics(msgspec.Struct, frozen=True):
    """The number of subjects with policies."""

    subjects: int


class Acls:
    """Policies by subject. A subject is a user; its policies are removed with it."""

    def __init__(self, users: Users) -> None:
        self._users = users
        self._acls: dict[str, Acl] = {}
        self._listeners: list[Callable[[], None]] = []
        users.on_delete(lambda username: self._set(SUBJECT_PREFIX + username, ()))

    def __repr__(self) -> str:
        return f"<Acls {len(self._acls)}>"

    def statistics(self) -> AclsStatistics:
        """Return the current figures."""
        return AclsStatistics(subjects=len(self._acls))

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change."""
        self._listeners.append(listener)

    def load(self, data: bytes | None) -> None:
        """Load acls.json (None: a new store). Raises ValueError."""
        if data is not None:
            self._acls = decode_acls(data)
        log.info("policies loaded subjects=%d", len(self._acls))

    def encode(self) -> bytes:
        """Return the table as acls.json."""
        return _ENCODER.encode({"aclTable": {subject: info_of(subject, acl) for subject, acl in self._acls.items()}})

    def of_user(self, username: str) -> Acl:
        """Return the policies of a user; empty if there are none."""
        return self._acls.get(SUBJECT_PREFIX + username, ())

    def find(self, subject: str) -> AclInfo | None:
        """Return the policies of a subject as a body; None without policies. Raises RequestError without a user."""
        if self._users.find(_username(subject)) is None:
            raise refusal("The subject is not exist.")
        acl = self._acls.get(subject)
        return None if acl is None else info_of(subject, acl)

    def matching(self, subject_filter: str, resource_filter: str) -> list[AclInfo]:
        """Return policies as bodies, ordered by the bytes of their subjects.

        Subjects and resources contain the filters; blank filters match everything. A resource filter that the subject
        contains matches all its resources, as in RocketMQ.
        """
        found = []
        for subject, acl in sorted(self._acls.items(), key=lambda row: row[0].encode()):
            if subject_filter.strip() and subject_filter not in subject:
                continue
            if resource_filter.strip() and resource_filter not in subject:
                acl = tuple(_filtered(acl, resource_filter))
            if acl:
                found.append(info_of(subject, acl))
        return found

    def put(self, subject: str, acl: Acl) -> None:
        """Add policies to a subject, and replace entries about the same resources. Raises RequestError."""
        if self._users.find(_username(subject)) is None:
            raise refusal(f"The subject of {subject} is not exist.")
        merged = merge(self._acls.get(subject, ()), acl)
        if sum(len(policy.entries) for policy in merged) > MOST_ENTRIES:
            raise refusal(f"the policies of {subject} have too many entries, the limit is {MOST_ENTRIES}")
        self._set(subject, merged)

    def delete(self, subject: str, policy_type: PolicyType, resource: Resource | None) -> None:
        """Remove an entry, or all policies without a resource. Raises RequestError."""
        if self._users.find(_username(subject)) is None:
            raise refusal("The subject is not exist.")
        acl = self._acls.get(subject)
        if acl is None:
            raise refusal("The acl is not exist.")
        self._set(subject, () if resource is None else without(acl, policy_type, resource))

    def _set(self, subject: str, acl: Acl) -> None:
        if acl == self._acls.get(subject, ()):
            return
        if acl:
            self._acls[subject] = acl
        else:
            del self._acls[subject]
        for listener in self._listeners:
            listener()


def subject_of(text: str | None) -> str | None:
    """Return the subject in a text, `User:<name>`; None if the text is not one."""
    type_, _, name = (text or "").partition(":")
    return SUBJECT_PREFIX + name if type_.lower() == "user" else None


def policy_type_of(text: str | None) -> PolicyType:
    """Return the policy type of a text, Custom by default."""
    return _POLICY_TYPES.get((text or "").lower(), PolicyType.CUSTOM)


def acl_of(policies: list[PolicyInfo]) -> Acl:
    """Return the policies in a body. Raises RequestError for policies that RocketMQ refuses."""
    acl = tuple(
        Policy(policy_type_of(policy.policy_type), tuple(map(_entry_of, policy.entries)))
        for policy in policies
        if policy.entries
    )
    if not acl:
        raise refusal("The policies is empty.")
    return acl


def _entry_of(info: PolicyEntryInfo) -> PolicyEntry:
    resource = Resource.parse(info.resource)
    if resource is None:
        raise refusal("The resource is null.")
    actions = tuple(_ACTIONS[name.lower()] for name in info.actions if name.lower() in _ACTIONS)
    if not actions:
        raise refusal("The actions is empty.")
    if Action.ANY in actions:
        raise refusal("The actions can not be Any.")
    for source in info.source_ips or ():
        if not source.strip():
            raise refusal("The source ip is empty.")
        if not is_valid(source):
            raise refusal("The source ip is invalid.")
    decision = _DECISIONS.get((info.decision or "").lower())
    if decision is None:
        raise refusal("The decision is null or illegal.")
    return PolicyEntry(resource, actions, tuple(info.source_ips or ()), decision)


def info_of(subject: str, acl: Acl) -> AclInfo:
    """Return the body that describes the policies of a subject."""
    return AclInfo(
        subject=subject,
        policies=[
            PolicyInfo(policy_type=policy.type.value, entries=[_entry_info(entry) for entry in policy.entries])
            for policy in acl
        ],
    )


def _entry_info(entry: PolicyEntry) -> PolicyEntryInfo:
    return PolicyEntryInfo(
        resource=entry.resource.key,
        actions=[action.value for action in entry.actions],
        source_ips=list(entry.sources) or None,
        decision=entry.decision.value,
    )


def policy_of(acl: Acl, policy_type: PolicyType) -> Policy | None:
    """Return the first policy of a type."""
    return next((policy for policy in acl if policy.type is policy_type), None)


def merge(acl: Acl, changes: Acl) -> Acl:
    """Return `acl` after `changes`: entries about the same resource are replaced, others added."""
    if not acl:
        return changes
    policies = list(acl)
    for change in changes:
        at = next((at for at, policy in enumerate(policies) if policy.type is change.type), None)
        if at is None:
            policies.append(change)
        else:
            policies[at] = Policy(change.type, _merged(policies[at].entries, change.entries))
    return tuple(policies)


def _merged(entries: tuple[PolicyEntry, ...], changes: tuple[PolicyEntry, ...]) -> tuple[PolicyEntry, ...]:
    merged = list(entries)
    for change in changes:
        at = _index_of(merged, change.resource)
        if at is None:
            merged.append(change)
        else:
            merged[at] = change
    return tuple(merged)


def without(acl: Acl, policy_type: PolicyType, resource: Resource) -> Acl:
    """Return `acl` without the entry about a resource; a policy without entries is left out."""
    policy = policy_of(acl, policy_type)
    at = None if policy is None else _index_of(policy.entries, resource)
    if policy is None or at is None:
        return acl
    entries = policy.entries[:at] + policy.entries[at + 1 :]
    rest = (Policy(policy.type, entries),) if entries else ()
    where = acl.index(policy)
    return acl[:where] + rest + acl[where + 1 :]


def _index_of(entries: "list[PolicyEntry] | tuple[PolicyEntry, ...]", resource: Resource) -> int | None:
    return next((at for at, entry in enumerate(entries) if entry.resource == resource), None)


def _filtered(acl: Acl, resource_filter: str) -> list[Policy]:
    kept = []
    for policy in acl:
        entries = tuple(entry for entry in policy.entries if resource_filter in entry.resource.key)
        if entries:
            kept.append(Policy(policy.type, entries))
    return kept


def _username(subject: str) -> str:
    return subject.removeprefix(SUBJECT_PREFIX)


class _StoredAcls(msgspec.Struct, rename="camel"):
    """The content of acls.json."""

    acl_table: dict[str, AclInfo]


_DECODER: Final = msgspec.json.Decoder(_StoredAcls)
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


def decode_acls(data: bytes) -> dict[str, Acl]:
    """Return the policies in acls.json. Raises ValueError if it is damaged."""
    acls = {}
    try:
        for subject, info in _DECODER.decode(data).acl_table.items():
            if subject != subject_of(subject) or info.subject != subject:
                raise ValueError(f"not a subject: {subject[:80]!r}")
            acls[subject] = acl_of(info.policies)
    except (ValueError, RequestError) as error:
        raise ValueError(f"not a table of policies: {error}") from error
    return acls
