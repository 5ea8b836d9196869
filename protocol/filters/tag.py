"""TAG expressions: `*`, or tags separated by `||`.

Empty, absent and `*` match every message. A message's tag is its whole TAGS text, even if that contains several tags.
The queue unit contains the tag's Java hash, sign-extended to 64 bits (0 without a tag); only its low 32 bits are
compared. A message without a tag therefore matches only subscriptions to all messages.

Source: docs/reference/wire.md, "Subscriptions".
"""

from typing import Final, Self

import msgspec

from skylarkmq.protocol.bodies.heartbeat import TAG, SubscriptionData
from skylarkmq.protocol.message import tags_code

EVERYTHING: Final = "*"


def split_tags(expression: str | None) -> list[str]:
    """Return the tags of an expression, without duplicates, in their order; an empty list if it matches everything."""
    if not expression or expression == EVERYTHING:
        return []
    return list(dict.fromkeys(tag for part in expression.split("||") if (tag := part.strip())))


def subscribe(topic: str, expression: str | None, sub_version: int) -> SubscriptionData:
    """Return a client's subscription for an expression. `sub_version`: the current time in ms."""
    tags = split_tags(expression)
    codes = [tags_code(tag) for tag in tags]
    return SubscriptionData(topic, expression or EVERYTHING, tags, codes, sub_version)


def is_tag_type(expression_type: str | None) -> bool:
    """Return whether the expression type is TAG; absent and empty types are TAG too: old clients send no type."""
    return not expression_type or expression_type == TAG


class TagFilter(msgspec.Struct, frozen=True):
    """The filter of one expression."""

    sub_string: str
    tags_set: frozenset[str]
    code_set: frozenset[int]
    everything: bool

    @classmethod
    def parse(cls, expression: str | None) -> Self:
        return cls.of(SubscriptionData(sub_string=expression or EVERYTHING))

    @classmethod
    def of(cls, subscription: SubscriptionData) -> Self:
        """Return the filter of a client's subscription. Without hashes in it, the hashes of its expression are used."""
        expression = subscription.sub_string or EVERYTHING
        tags = subscription.tags_set or split_tags(expression)
        codes = subscription.code_set or map(tags_code, tags)
        everything = expression == EVERYTHING or subscription.class_filter_mode
        return cls(expression, frozenset(tags), frozenset(codes), everything)

    def matches_hash(self, code: int | None) -> bool:
        """Return the result of the broker's test: the code in a queue unit matches (None: unknown, matches)."""
        if self.everything or code is None:
            return True
        return ((code + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000 in self.code_set

    def matches_text(self, tags: str | None) -> bool:
        """Return the result of the client's test: the message's TAGS match."""
        return self.everything or tags in self.tags_set
