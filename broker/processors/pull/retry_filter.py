"""filterSupportRetry: filters the messages of a retry topic by the subscription to their original topic.

A group that subscribes to a topic by SQL92 and negatively acknowledges messages receives them from its retry topic, to
which it subscribes as a whole. With this setting each message is tested by the expression for the topic in its property
RETRY_TOPIC. A message without that property, or of a topic without an expression, matches. Source:
docs/reference/wire.md, "SQL92 expressions".
"""

from collections.abc import Callable, Mapping
from typing import Final

from skylarkmq.broker.metadata.client_sessions import Subscription
from skylarkmq.protocol.filters.sql92.filter import Sql92Filter
from skylarkmq.protocol.filters.sql92.properties import enclosed, finder
from skylarkmq.protocol.message import PropertyName

_topic_of: Final = finder(PropertyName.RETRY_TOPIC)
_NAME_NS_PER_KIB: Final = 600


class RetryTopicFilter:
    """A test of properties, see broker.store.read.property_filters."""

    __slots__ = ("_tests", "cost_ns", "cost_ns_per_kib")

    def __init__(self, tests: Mapping[bytes, Sql92Filter]) -> None:
        self._tests = tests
        self.cost_ns = max(test.cost_ns for test in tests.values())
        self.cost_ns_per_kib = _NAME_NS_PER_KIB + max(test.cost_ns_per_kib for test in tests.values())

    @classmethod
    def of(cls, subscriptions: Mapping[str, Subscription]) -> "RetryTopicFilter | None":
        """Return the filter of a group; None if it has no SQL92 subscription."""
        tests = {topic.encode(): it.sql for topic, it in subscriptions.items() if it.sql is not None}
        return cls(tests) if tests else None

    def __repr__(self) -> str:
        return f"<RetryTopicFilter {len(self._tests)} topics>"

    @property
    def matches(self) -> Callable[[bytes | memoryview], bool]:
        """Return the function that tests a message's properties."""
        return self._matches

    def _matches(self, properties: bytes | memoryview) -> bool:
        topic = _topic_of(enclosed(properties))
        test = None if topic is None else self._tests.get(topic)
        return test is None or test.matches(properties)
