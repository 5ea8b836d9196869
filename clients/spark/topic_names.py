"""Which topics a pattern means.

The system's topics and those that brokers and clusters have of their own are never meant; what groups have, retries and
dead letters, only by a pattern that has a % in it.
"""

import re
from collections.abc import Collection
from typing import Final

from skylarkmq.protocol.codes import DLQ_PREFIX, RETRY_PREFIX, SystemTopic

RESERVED: Final = frozenset(
    value for name, value in vars(SystemTopic).items() if name.isupper() and isinstance(value, str)
)
OF_GROUPS: Final = (RETRY_PREFIX, DLQ_PREFIX)


def is_meant(topic: str, pattern: str, own: Collection[str] = ()) -> bool:
    """Whether a regular expression means a topic; `own` are the names of brokers and clusters."""
    if topic in RESERVED or topic in own or topic.startswith(SystemTopic.SYSTEM_PREFIX):
        return False
    if topic.startswith(OF_GROUPS) and "%" not in pattern:
        return False
    return re.fullmatch(pattern, topic) is not None
