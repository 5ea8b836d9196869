"""Topic names that a pattern selects.

A pattern never selects system topics, nor the topics that brokers and clusters are named after. It selects retry and
dead-letter topics only if the pattern itself contains a %.
"""

import re
from collections.abc import Collection
from typing import Final

from skylarkmq.protocol.codes import DLQ_PREFIX, RETRY_PREFIX, SystemTopic

RESERVED: Final = frozenset(
    value for name, value in vars(SystemTopic).items() if name.isupper() and isinstance(value, str)
)
OF_GROUPS: Final = (RETRY_PREFIX, DLQ_PREFIX)


def is_selected(topic: str, pattern: str, own: Collection[str] = ()) -> bool:
    """Return whether the regular expression selects the topic. `own`: the names of brokers and clusters."""
    if topic in RESERVED or topic in own or topic.startswith(SystemTopic.SYSTEM_PREFIX):
        return False
    if topic.startswith(OF_GROUPS) and "%" not in pattern:
        return False
    return re.fullmatch(pattern, topic) is not None
