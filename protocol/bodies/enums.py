"""Enumerations inside JSON bodies: a name from Java, an ordinal (the place in the list) from C++ and sometimes Go.

`BY_MEMBER` tells which JSON member holds which, so that ordinals can be turned into names wherever they stand.
Source: docs/formats.md, "JSON bodies".
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
    """Replaces, in the members of one JSON object, every known ordinal by its name; unknown ones stay as they are."""
    for member in members.keys() & BY_MEMBER.keys():
        names, ordinal = BY_MEMBER[member], members[member]
        if isinstance(ordinal, int) and 0 <= ordinal < len(names):
            members[member] = names[ordinal].value
