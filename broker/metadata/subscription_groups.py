"""The group table: what consumer groups may do, and how their failures are retried.

It is content of `config/subscriptionGroup.json`. A group comes about on first sight (a heartbeat, a pull), unless that
is switched off, with everything permitted; system groups (`CID_RMQ_SYS_...`) always do. A name that is none makes no
group. `forbidden_table` of the file, which says that a group may not read a topic, is kept and obeyed.

Sources: docs/formats.md, "Groups", "State files".
"""

import logging
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from skylarkmq.broker.metadata.limits import Limits
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from skylarkmq.protocol.bodies.topic import DataVersion
from skylarkmq.protocol.codes import SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.message import check_group_name

log = logging.getLogger(__name__)

READING_FORBIDDEN: Final = 4

_encode: Final = msgspec.json.Encoder(order="sorted").encode


class GroupsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How groups come about."""

    auto_create_subscription_group: bool = True  # an unknown group that pulls or heartbeats is made


class GroupsStatistics(msgspec.Struct, frozen=True):
    """The table at one moment; `version` counts its changes."""

    groups: int
    version: int


class SubscriptionGroups:
    """Consumer groups by name. `clock` gives Unix ms, for versions."""

    def __init__(self, config: GroupsConfig, clock: Callable[[], int], limits: Limits | None = None) -> None:
        self._config = config
        self._clock = clock
        self._groups = {name: SubscriptionGroupConfig(group_name=name) for name in SYSTEM_GROUPS}
        self._limit = (limits or Limits()).groups
        self._limit.used = lambda: len(self._groups)
        self._forbidden: dict[str, dict[str, int]] = {}
        self._listeners: list[Callable[[], None]] = []
        self._delete_listeners: list[Callable[[str], None]] = []
        self.version = DataVersion()

    def __repr__(self) -> str:
        return f"<SubscriptionGroups groups={len(self._groups)} version={self.version.counter}>"

    def configure(self, config: GroupsConfig) -> None:
        """Make groups by other settings from now on."""
        self._config = config

    def __iter__(self) -> Iterator[SubscriptionGroupConfig]:
        return iter(self._groups.values())

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change."""
        self._listeners.append(listener)

    def on_delete(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the name of every group that is deleted."""
        self._delete_listeners.append(listener)

    def load(self, data: bytes | None) -> None:
        """Take the content of subscriptionGroup.json (None: a new store). BodyError."""
        if data is not None:
            wrapper = SubscriptionGroupWrapper.decode(data)
            self._groups.update(wrapper.subscription_group_table)
            self._forbidden = wrapper.forbidden_table
            self.version = wrapper.data_version
        log.info("groups loaded groups=%d version=%d", len(self._groups), self.version.counter)

    def find(self, name: str) -> SubscriptionGroupConfig | None:
        """The group, if it is there."""
        return self._groups.get(name)

    def find_or_create(self, name: str) -> SubscriptionGroupConfig | None:
        """The group, made now if that is allowed; None if it is not, or if the name is none. RequestError at a
        limit."""
        group = self._groups.get(name)
        if group is not None:
            return group
        if not self._config.auto_create_subscription_group and not name.startswith(SYSTEM_GROUP_PREFIX):
            return None
        try:
            check_group_name(name)
        except RequestError:
            return None
        self._check_growth(name)
        group = SubscriptionGroupConfig(group_name=name)
        log.info("group created group=%s", name)
        self._groups[name] = group
        self._changed()
        return group

    def update(self, group: SubscriptionGroupConfig) -> bool:
        """Make or replace a group as an operator wants it; False if it is so already. RequestError at a limit."""
        if self._groups.get(group.group_name) == group:
            return False
        self._check_growth(group.group_name)
        log.info("group updated %s", group)
        self._groups[group.group_name] = group
        self._changed()
        return True

    def _check_growth(self, name: str) -> None:
        if name not in self._groups and len(self._groups) >= self._limit.most:
            raise self._limit.refusal(f"group {name} besides {len(self._groups)}")

    def delete(self, name: str) -> bool:
        """Forget a group, and what it was forbidden to read; False if there was none."""
        if self._groups.pop(name, None) is None:
            return False
        self._forbidden.pop(name, None)
        log.info("group deleted group=%s", name)
        for listener in self._delete_listeners:
            listener(name)
        self._changed()
        return True

    def may_read(self, name: str, topic: str) -> bool:
        """Whether nobody forbade the group to read the topic."""
        return not self._forbidden.get(name, {}).get(topic, 0) & READING_FORBIDDEN

    def encode(self) -> bytes:
        """The table as subscriptionGroup.json."""
        return b"".join(
            (
                b'{"dataVersion":',
                _encode(self.version),
                b',"forbiddenTable":',
                _encode(self._forbidden),
                b',"subscriptionGroupTable":',
                _encode(self._groups),
                b"}",
            )
        )

    def statistics(self) -> GroupsStatistics:
        """The table's figures now."""
        return GroupsStatistics(groups=len(self._groups), version=self.version.counter)

    def _changed(self) -> None:
        self.version = self.version.next(self._clock())
        for listener in self._listeners:
            listener()
