"""Enumerations in JSON bodies: Java clients send a name; C++ and some Go clients send an ordinal (the position in the
list).

`BY_MEMBER` maps JSON members to their enumerations, so that ordinals can be replaced by names in any object.
Source: docs/reference/wire.md, "JSON bodies".
"""

from enum import StrEnum
from typing import Any, Final


class ConsumeType(StrEnum):
    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class TopicFilterType(StrEnum):
    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


BY_MEMBER: Final[dict[str, tuple[StrEnum, ...]]] = {
    "consumeType": tuple(ConsumeType),
    "messageModel": tuple(MessageModel),
    "consumeFromWhere": tuple(ConsumeFromWhere),
    "topicFilterType": tuple(TopicFilterType),
}


def name_ordinals(members: dict[Any, Any]) -> None:
    """Replace every known ordinal in the members of one JSON object by its name; unknown ordinals stay unchanged."""
    for member in members.keys() & BY_MEMBER.keys():
        names, ordinal = BY_MEMBER[member], members[member]
        if isinstance(ordinal, int) and 0 <= ordinal < len(names):
            members[member] = names[ordinal].value
