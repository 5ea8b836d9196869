"""Authorization: whether the policies of a user permit the use of a resource.

Entries match a request by resource, action and source address. Custom entries come first; Default entries count only if
no custom entry matches. Among the matching entries the most specific one decides: a resource of a type before `*`, a
literal name before a prefix, a longer prefix before a shorter one, a prefix before all names, and at last Deny before
Allow. Without a matching entry the request is refused.

This is the order that RocketMQ documents. In 5.3.3 the sorting has an error, which its successor corrects: see
docs/reference/compatibility.md, "Access control of RocketMQ 5.3".
"""

from collections.abc import Iterable

from skylarkmq.broker.access.auth.policies import (
    SUBJECT_PREFIX,
    Acl,
    Acls,
    Decision,
    PolicyEntry,
    PolicyType,
    policy_of,
)
from skylarkmq.broker.access.auth.source_addresses import contains
from skylarkmq.broker.access.decision_cache import DecisionCache
from skylarkmq.broker.access.requests.resources import ANY, Action
from skylarkmq.broker.access.requests.uses import Use

Key = tuple[str, int, str, str | None, tuple[Action, ...], str]
"""User, code, type and name of the resource, wanted actions, host: all that a decision depends on."""


class Authorizer:
    """Decides about requests. Decisions are cached until a policy changes."""

    def __init__(self, acls: Acls) -> None:
        self._acls = acls
        self._decisions: DecisionCache[Key, str | None] = DecisionCache()
        acls.on_change(self._decisions.clear)

    def __repr__(self) -> str:
        return f"<Authorizer {self._acls!r} decisions={len(self._decisions)}>"

    def refusal(self, username: str, code: int, use: Use, host: str) -> str | None:
        """Return the remark of a refusal, or None if the user may use the resource from this host."""
        resource = use.resource
        key = (username, code, resource.type, resource.name, use.actions, host)
        try:
            return self._decisions[key]
        except KeyError:
            pass
        remark = None
        if (problem := refused(self._acls.of_user(username), use, host)) is not None:
            remark = f"{SUBJECT_PREFIX}{username} has no permission to access {resource.key} from {host}, {problem}"
        self._decisions.remember(key, remark, (resource.name,))
        return remark


def refused(acl: Acl, use: Use, host: str) -> str | None:
    """Return why policies refuse the use of a resource, or None if they permit it."""
    for policy_type in PolicyType:
        policy = policy_of(acl, policy_type)
        entries = () if policy is None else policy.entries
        matching = [entry for entry in entries if _matches(entry, use, host)]
        if matching:
            return None if min(matching, key=_rank).decision is Decision.ALLOW else "the decision is deny."
    return "no matched policies."


def _matches(entry: PolicyEntry, use: Use, host: str) -> bool:
    return (
        entry.resource.covers(use.resource)
        and _permits(entry.actions, use.actions)
        and (not entry.sources or contains(entry.sources, host))
    )


def _permits(granted: Iterable[Action], wanted: Iterable[Action]) -> bool:
    return Action.ALL in granted or any(action in granted for action in wanted)


def _rank(entry: PolicyEntry) -> tuple[bool, int, int, bool]:
    """Return the place of an entry among matching ones; the smallest one decides."""
    resource = entry.resource
    prefix = len(resource.name or "")
    return resource.type == ANY, resource.pattern.value, -prefix, entry.decision is Decision.ALLOW
