"""Accounts: an access key with a secret key, a white address, and permissions on topics and groups.

An account and a rule are read from the values of a YAML file, as RocketMQ reads them: a number counts as its text, and
names and permissions are stripped. The permission of a group is stored under the name of its retry topic, as in
RocketMQ, so `topicPerms` may name `%RETRY%g`, too.

Secrets: an account holds its secret key only as a keyed state, and errors do not contain it.

Source: docs/reference/behaviour.md, "Access control of RocketMQ 4.9".
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeGuard

import msgspec

from skylarkmq.broker.access.caller import Caller, Proof
from skylarkmq.broker.access.plain_acl.addresses import Pattern, no_address, pattern_of
from skylarkmq.broker.access.plain_acl.errors import AclError
from skylarkmq.broker.access.requests.needs import Permission, group_resource, is_group
from skylarkmq.protocol.codes import RETRY_PREFIX
from skylarkmq.protocol.decimals import INT64_MAX
from skylarkmq.protocol.signature import SigningKey

LEAST_KEY_LENGTH: Final = 7
"""Characters of an access key and of a secret key."""

PERMISSIONS: Final = {
    "DENY": Permission.DENY,
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.PUB | Permission.SUB,
    "SUB|PUB": Permission.PUB | Permission.SUB,
}
"""The texts of permissions; any other text means DENY."""

FLAGS: Final = {
    "true": True, "1": True, "y": True, "t": True, "false": False, "0": False, "f": False, "n": False, "": False,
    "null": False,
}  # fmt: skip
"""The texts of flags, in lower case."""


class Account(msgspec.Struct, frozen=True):
    """One account. `caller`: of its signed requests. `permissions`: by name of topic or retry topic; None if the
    account has no list of them."""

    access_key: str
    key: SigningKey
    caller: Caller
    white: Pattern = no_address
    is_admin: bool = False
    default_topic: Permission = Permission.DENY
    default_group: Permission = Permission.DENY
    permissions: Mapping[str, Permission] | None = None

    def __repr__(self) -> str:
        return f"<Account {self.access_key}{' admin' if self.is_admin else ''}>"

    def may(self, resource: str, needed: Permission) -> bool:
        """Return whether the account has a permission on a topic, or on the group of a retry topic."""
        owned = None if self.permissions is None else self.permissions.get(resource)
        if owned is None:
            owned = self.default_group if is_group(resource) else self.default_topic
        return not owned & Permission.DENY and bool(owned & needed)


def shown_resource(resource: str) -> str:
    """Return a resource as it is named in remarks."""
    return f"group:{resource.removeprefix(RETRY_PREFIX)}" if is_group(resource) else f"topic:{resource}"


def account_of(value: object) -> Account:
    """Return the account in a YAML value. Raises AclError."""
    if not isinstance(value, Mapping):
        raise AclError("an account must be a mapping")
    access_key, secret_key = text_of(value, "accessKey"), text_of(value, "secretKey")
    if not (is_long_enough(access_key) and is_long_enough(secret_key)):
        raise AclError(f"accessKey={access_key}: accessKey and secretKey must be longer than 6 characters")
    groups, topics = texts_of(value, "groupPerms"), texts_of(value, "topicPerms")
    permissions = {group_resource(name): permission for name, permission in rules_of("group", groups)}
    permissions.update(rules_of("topic", topics))
    is_admin = flag_of(value, "admin")
    return Account(
        access_key,
        SigningKey(secret_key),
        Caller(access_key, Proof.SIGNATURE, is_admin),
        pattern_of(text_of(value, "whiteRemoteAddress")),
        is_admin,
        permission_of(text_of(value, "defaultTopicPerm")),
        permission_of(text_of(value, "defaultGroupPerm")),
        permissions or None,
    )


def is_long_enough(key: str | None) -> TypeGuard[str]:
    """Return whether an access key or a secret key has its least length."""
    return key is not None and len(key) >= LEAST_KEY_LENGTH


def permission_of(text: str | None) -> Permission:
    """Return the permission of a text."""
    return PERMISSIONS.get((text or "").strip(), Permission.DENY)


def rules_of(kind: str, rules: Iterable[str]) -> list[tuple[str, Permission]]:
    """Return the names and permissions of rules such as `name=PUB`. `kind`: topic or group."""
    return [rule_of(kind, rule) for rule in rules]


def rule_of(kind: str, rule: str) -> tuple[str, Permission]:
    """Return the name and the permission of a rule such as `name=PUB`. Raises AclError for another format."""
    parts = rule_parts(rule)
    if len(parts) != 2:
        raise AclError(f"Parse resource permission failed for {kind}:{rule}")
    return parts[0].strip(), permission_of(parts[1])


def rule_parts(rule: str) -> list[str]:
    """Return the parts of a rule: the name and the permission, if it is valid."""
    return [part for part in rule.split("=") if part]


# --- YAML values ------------------------------------------------------------------------------------------------------


def text_of(values: Mapping[Any, Any], name: str) -> str | None:
    """Return a member as text; None if it is absent. Raises AclError if it is neither a text nor a whole number."""
    return _as_text(values.get(name), name)


def texts_of(values: Mapping[Any, Any], name: str) -> list[str]:
    """Return a list of texts; empty if the member is absent. Raises AclError if it is something else."""
    value = values.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise AclError(f"{name} must be a list")
    return [text for member in value if (text := _as_text(member, name)) is not None]


def flag_of(values: Mapping[Any, Any], name: str) -> bool:
    """Return a flag; False if it is absent. Raises AclError if it has no value of a flag."""
    value = values.get(name)
    if isinstance(value, int):
        return value == 1
    flag = FLAGS.get((_as_text(value, name) or "").lower())
    if flag is None:
        raise AclError(f"{name} must be true or false")
    return flag


def _as_text(value: object, name: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) <= INT64_MAX:
        return str(value)
    raise AclError(f"{name} must be a text, in quotes if it has the form of another value")
