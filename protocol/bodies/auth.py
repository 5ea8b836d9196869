"""Users and policies: bodies of AUTH_CREATE_USER (3001) to AUTH_LIST_ACL (3010), and the rows of users.json and
acls.json.

Enumerations are RocketMQ's words, such as `Super`, `enable` or `Allow`; the reader of a body compares them without
case. Source: docs/reference/behaviour.md, "Users and policies".
"""

from skylarkmq.protocol.bodies.body import Body


class UserInfo(Body):
    """One user. The password is never part of a `repr`."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None

    def __repr__(self) -> str:
        return f"<UserInfo {self.username} {self.user_type} {self.user_status}>"


class PolicyEntryInfo(Body):
    """What one resource permits. `source_ips`: addresses and CIDR networks of permitted peers; none: all peers."""

    resource: str | None = None
    actions: list[str] = []
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(Body):
    """The entries of one type: Custom, or Default for resources that no custom entry matches."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] = []


class AclInfo(Body):
    """All policies of one subject."""

    subject: str | None = None
    policies: list[PolicyInfo] = []
