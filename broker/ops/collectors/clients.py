"""Metrics of connected clients by language and version. Both labels come from fixed tables."""

from collections import Counter
from typing import Final

from skylarkmq.broker.metadata.client_sessions import ClientMember, ClientSessions, ConsumerGroup
from skylarkmq.broker.ops.collectors.topics import is_system_group
from skylarkmq.broker.ops.steps import Steps, Value
from skylarkmq.broker.ops.versions import version_name
from skylarkmq.protocol.bodies.enums import ConsumeType
from skylarkmq.protocol.codes import LanguageCode

MODES: Final = {
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_POP: "pop",
}


class ClientCollector:
    """Metrics of client sessions."""

    def __init__(self, sessions: ClientSessions) -> None:
        self._sessions = sessions

    def __repr__(self) -> str:
        return f"<ClientCollector {self._sessions!r}>"

    def __call__(self) -> Steps:
        """Yield every value."""
        channels: dict[object, tuple[str, str]] = {}
        for name in list(self._sessions.producer_groups()):
            members = self._sessions.producers(name)
            yield Value("rocketmq_producer_count", (name,), len(members))
            channels.update((connection, labels_of(member)) for connection, member in members.items())
        for kind, count in Counter(channels.values()).items():
            yield Value("rocketmq_producer_connections", kind, count)
        for group in list(self._sessions.consumer_groups()):
            yield from self._consumers(group)

    def _consumers(self, group: ConsumerGroup) -> Steps:
        yield Value("rocketmq_group_count", ("", "", group.name), len(group.members))
        mode, is_system = MODES[group.consume_type], is_system_group(group.name)
        for (language, version), count in Counter(map(labels_of, list(group.members.values()))).items():
            labels = (group.name, language, version, mode, is_system)
            yield Value("rocketmq_consumer_connections", labels, count)


def labels_of(member: ClientMember) -> tuple[str, str]:
    """Return language and version of a member as label values."""
    language = member.language if member.language in LanguageCode.__members__ else LanguageCode.OTHER.name
    return language.lower(), version_name(member.version)
