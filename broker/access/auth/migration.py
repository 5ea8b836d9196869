"""Migration: accounts of RocketMQ 4.9 become users and policies, with `migrateAuthFromV1Enabled`.

An administrator becomes a super user. `topicPerms` and `groupPerms` become Custom entries, default permissions Default
entries for all topics or groups. An account whose name a user already has is left out, so each account is migrated
once. White addresses have no counterpart.

Source: docs/reference/behaviour.md, "Users and policies".
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from skylarkmq.broker.access.auth.policies import SUBJECT_PREFIX, Acls, Decision, Policy, PolicyEntry, PolicyType
from skylarkmq.broker.access.auth.users import UserChange, Users, UserType
from skylarkmq.broker.access.plain_acl.accounts import flag_of, text_of, texts_of
from skylarkmq.broker.access.plain_acl.errors import AclError
from skylarkmq.broker.access.plain_acl.files import account_values
from skylarkmq.broker.access.requests.resources import Action, Kind, Pattern, Resource
from skylarkmq.broker.base.errors import StartError
from skylarkmq.protocol.errors import RequestError

PERMISSIONS: Final[dict[str, tuple[Action, ...]]] = {
    "PUB": (Action.PUB,),
    "SUB": (Action.SUB,),
    "PUB|SUB": (Action.PUB, Action.SUB),
    "SUB|PUB": (Action.PUB, Action.SUB),
}
"""The permissions of 4.9 as actions; any other text denies everything."""

log = logging.getLogger(__name__)


class PlainAccount(msgspec.Struct, frozen=True):
    """An account of plain_acl.yml; rules have the form `name=permission`. The secret key is never part of a `repr`."""

    access_key: str
    secret_key: str
    is_admin: bool = False
    default_topic_permission: str = ""
    default_group_permission: str = ""
    topic_rules: tuple[str, ...] = ()
    group_rules: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<PlainAccount {self.access_key}>"

    @classmethod
    def of(cls, values: Mapping[Any, Any]) -> Self:
        """Return the account in a YAML value. Raises AclError."""
        return cls(
            text_of(values, "accessKey") or "",
            text_of(values, "secretKey") or "",
            flag_of(values, "admin"),
            text_of(values, "defaultTopicPerm") or "",
            text_of(values, "defaultGroupPerm") or "",
            tuple(texts_of(values, "topicPerms")),
            tuple(texts_of(values, "groupPerms")),
        )


def plain_accounts(directory: Path) -> list[PlainAccount]:
    """Return the accounts in the files of a directory. Raises StartError if one cannot be read."""
    try:
        return [PlainAccount.of(values) for values in account_values(directory)]
    except AclError as error:
        raise StartError(f"migrateAuthFromV1Enabled=true: {error}") from None
    except OSError as error:
        raise StartError(f"migrateAuthFromV1Enabled=true: {error.filename}: {error.strerror}") from None


def migrate(accounts: Iterable[PlainAccount], users: Users, acls: Acls) -> int:
    """Create users and policies for the accounts that are no users yet; return the number of new users."""
    created = 0
    for account in accounts:
        if users.find(account.access_key) is not None:
            continue
        try:
            user_type = UserType.SUPER if account.is_admin else UserType.NORMAL
            users.create(UserChange(account.access_key, account.secret_key.strip() or None, user_type, None))
            created += 1
            policies = tuple(policies_of(account))
            if policies:
                acls.put(SUBJECT_PREFIX + account.access_key, policies)
        except RequestError as error:
            log.error("account not migrated account=%s reason=%s", account.access_key, error.remark)
    log.info("accounts migrated users=%d", created)
    return created


def policies_of(account: PlainAccount) -> Iterator[Policy]:
    """Yield the policies of an account."""
    custom = [
        *(entry_of(Resource.topic(name), permission) for name, permission in _rules(account.topic_rules)),
        *(entry_of(Resource.group(name), permission) for name, permission in _rules(account.group_rules)),
    ]
    if custom:
        yield Policy(PolicyType.CUSTOM, tuple(custom))
    defaults = ((Kind.TOPIC, account.default_topic_permission), (Kind.GROUP, account.default_group_permission))
    entries = tuple(
        entry_of(Resource(kind.value, None, Pattern.ANY), permission)
        for kind, permission in defaults
        if permission.strip()
    )
    if entries:
        yield Policy(PolicyType.DEFAULT, entries)


def entry_of(resource: Resource, permission: str) -> PolicyEntry:
    """Return the entry for a permission."""
    actions = PERMISSIONS.get(permission.strip())
    if actions is None:
        return PolicyEntry(resource, (Action.ALL,), (), Decision.DENY)
    return PolicyEntry(resource, actions, (), Decision.ALLOW)


def _rules(rules: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the permission of each rule; rules of another form are left out."""
    for rule in rules:
        parts = [part for part in rule.split("=") if part]
        if len(parts) == 2:
            yield parts[0].strip(), parts[1]
