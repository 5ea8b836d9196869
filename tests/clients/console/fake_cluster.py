"""A cluster with any number of topics and groups, and with names that no broker would accept."""

from collections.abc import Sequence
from typing import Any

from skylarkmq.clients.console.cluster import Cluster, Target
from skylarkmq.clients.sdk.base.errors import NoRoute
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.protocol.bodies.route import QueueData, TopicRouteData
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig


class FakeTopics:
    """The section `topic_config`: counts the routes that are requested."""

    def __init__(self) -> None:
        self.routes: list[str] = []

    async def route(self, topic: str) -> TopicRouteData:
        self.routes.append(topic)
        return TopicRouteData(queue_datas=[QueueData("<i>broker</i>", 8, 8, 6)])


class NoMembers:
    """The sections `group_config` and `offsets` of groups that never had a member."""

    async def consumers(self, group: str) -> object:
        raise NoRoute("no retry topic")

    async def progress(self, group: str) -> object:
        raise NoRoute("no retry topic")


class FakeAdmin:
    """The part of Admin that the lists use."""

    def __init__(self, topics: Sequence[str], groups: Sequence[str]) -> None:
        self._topics = list(topics)
        self._groups = {name: SubscriptionGroupConfig(name) for name in groups}
        self.topic_config = FakeTopics()
        self.group_config = self.offsets = NoMembers()
        self.lists = 0

    async def topics(self) -> list[str]:
        self.lists += 1
        return self._topics

    async def groups(self) -> dict[str, SubscriptionGroupConfig]:
        self.lists += 1
        return self._groups

    async def group_offsets(self, group: str) -> dict[object, object]:
        return {}

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def made_of(admin: FakeAdmin) -> Any:
    """Return a replacement for `Cluster.at`."""

    def at(target: Target, credentials: Credentials | None) -> Cluster:
        return Cluster(admin)  # type: ignore[arg-type]

    return at
