"""The kinds of topics: for applications, redeliveries, dead letters, and the broker itself."""

from skylarkmq.protocol.codes import DLQ_PREFIX, RETRY_PREFIX, is_internal_topic

NORMAL, RETRY, DEAD_LETTERS, SYSTEM = KINDS = ("normal", "retry", "dead letters", "system")


def kind_of(topic: str) -> str:
    """Return the kind of a topic, one of KINDS."""
    if topic.startswith(RETRY_PREFIX):
        return RETRY
    if topic.startswith(DLQ_PREFIX):
        return DEAD_LETTERS
    return SYSTEM if is_internal_topic(topic) else NORMAL
