"""TAG expressions: `*`, or tags separated by `||`.

Empty, absent and `*` mean every message. A message's tag is its whole TAGS text, also where that names several. The
queue unit holds the tag's Java hash, sign-extended to 64 bits (0 without a tag); only its low 32 bits are compared.
A message without a tag therefore goes to those who want everything, and to nobody else.

Source: docs/formats.md, "Subscriptions".
"""

from typing import Final, Self

import msgspec

from skylarkmq.protocol.bodies.heartbeat import TAG, SubscriptionData
from skylarkmq.protocol.message import tags_code

EVERYTHING: Final = "*"


def split_tags(expression: str | None) -> list[str]:
    """The tags of an expression, without repetition, in their order; none if it means everything."""
    if not expression or expression == EVERYTHING:
        return []
    return list(dict.fromkeys(tag for part in expression.split("||") if (tag := part.strip())))


def subscribe(topic: str, expression: str | None, sub_version: int) -> SubscriptionData:
    """The subscription that a client makes of an expression; `sub_version`: now, in ms."""
    tags = split_tags(expression)
    codes = [tags_code(tag) for tag in tags]
    return SubscriptionData(topic, expression or EVERYTHING, tags, codes, sub_version)


def is_tag_type(expression_type: str | None) -> bool:
    """Absent and empty types are TAG: old clients know no other."""
    return not expression_type or expression_type == TAG


class TagFilter(msgspec.Struct, frozen=True):
    """The test that an expression stands for."""

    sub_string: str
    tags_set: frozenset[str]
    code_set: frozenset[int]
    everything: bool

    @classmethod
    def parse(cls, expression: str | None) -> Self:
        return cls.of(SubscriptionData(sub_string=expression or EVERYTHING))

    @classmethod
    def of(cls, subscription: SubscriptionData) -> Self:
        """Of a subscription as a client sent it: its own hashes, or those of its expression if it sent none."""
        expression = subscription.sub_string or EVERYTHING
        tags = subscription.tags_set or split_tags(expression)
        codes = subscription.code_set or map(tags_code, tags)
        everything = expression == EVERYTHING or subscription.class_filter_mode
        return cls(expression, frozenset(tags), frozenset(codes), everything)

    def matches_hash(self, code: int | None) -> bool:
        """The broker's test, of the code in a queue unit (None: not known, matches)."""
        if self.everything or code is None:
            return True
        return ((code + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000 in self.code_set

    def matches_text(self, tags: str | None) -> bool:
        """The client's test, of a message's TAGS."""
        return self.everything or tags in self.tags_set
