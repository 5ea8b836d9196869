"""Resources that policies and requests name, and actions on them: `Topic:orders`, `Group:billing*`, `Cluster:*`, `*`.

A name that ends in `*` stands for all names with that beginning; `*` alone for all names, or for all resources.
Source: docs/reference/behaviour.md, "Users and policies".
"""

from enum import Enum
from typing import Final, Self

import msgspec

from skylarkmq.protocol.codes import RETRY_PREFIX

ANY: Final = "Any"
TYPES: Final = {name.lower(): name for name in ("Unknown", ANY, "Cluster", "Namespace", "Topic", "Group")}
"""RocketMQ's names of resource types, by their lower-case spelling."""


class Kind(Enum):
    """The kinds of resources, with RocketMQ's names."""

    CLUSTER = "Cluster"
    TOPIC = "Topic"
    GROUP = "Group"


class Action(Enum):
    """What a caller wants to do with a resource, with RocketMQ's names."""

    ALL = "All"
    ANY = "Any"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Pattern(Enum):
    """Which names a resource stands for, from the most to the least specific."""

    LITERAL = 0
    PREFIXED = 1
    ANY = 2


class Resource(msgspec.Struct, frozen=True, gc=False):
    """A resource. `name`: the literal name or the prefix; None for any name, or for a missing name."""

    type: str
    name: str | None
    pattern: Pattern = Pattern.LITERAL

    @classmethod
    def topic(cls, name: str | None) -> Self:
        """Return the resource of a topic."""
        return cls(Kind.TOPIC.value, name)

    @classmethod
    def group(cls, name: str | None) -> Self:
        """Return the resource of a consumer group, which may be given as its retry topic."""
        return cls(Kind.GROUP.value, name.removeprefix(RETRY_PREFIX) if name else name)

    @classmethod
    def parse(cls, key: str | None) -> Self | None:
        """Return the resource of a policy; None if the key names no resource."""
        if key is None or not key.strip():
            return None
        if key == "*":
            return cls(ANY, None, Pattern.ANY)
        type_, _, name = key.partition(":")
        known = TYPES.get(type_.lower())
        if known is None:
            return None
        if name == "*":
            return cls(known, None, Pattern.ANY)
        if name.endswith("*"):
            return cls(known, name.partition("*")[0], Pattern.PREFIXED)
        return cls(known, name)

    @property
    def key(self) -> str:
        """Return the text of the resource. A request without a name has the text `null`, as in RocketMQ."""
        if self.type == ANY:
            return "*"
        if self.pattern is Pattern.ANY:
            return f"{self.type}:*"
        star = "*" if self.pattern is Pattern.PREFIXED else ""
        return f"{self.type}:{'null' if self.name is None else self.name}{star}"

    def covers(self, other: "Resource") -> bool:
        """Return whether a policy about this resource applies to `other`, the resource of a request."""
        if self.type == ANY:
            return True
        if self.type != other.type:
            return False
        if self.pattern is Pattern.ANY:
            return True
        if other.name is None or self.name is None:
            return False
        if self.pattern is Pattern.PREFIXED:
            return other.name.startswith(self.name)
        return other.name == self.name


def is_retry_topic(name: str | None) -> bool:
    """Return whether a topic contains the retries of a consumer group."""
    return name is not None and name.startswith(RETRY_PREFIX)
