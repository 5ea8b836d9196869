"""The group table: the permissions of consumer groups, and the retry settings for their messages.

The table is stored in `config/subscriptionGroup.json`. A group is created at its first heartbeat or pull, with all
permissions, unless this is turned off; system groups (`CID_RMQ_SYS_...`) are always created. An invalid name creates no
group. The file's `forbidden_table` contains the topics that a group may not read; it is kept and enforced.

Sources: docs/reference/wire.md, "Groups"; docs/reference/disk.md, "State files".
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from skylarkmq.broker.metadata.limits import Creations, Limits
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from skylarkmq.protocol.bodies.topic import DataVersion
from skylarkmq.protocol.codes import SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.message import check_group_name

log = logging.getLogger(__name__)

READING_FORBIDDEN: Final = 4

_encode: Final = msgspec.json.Encoder(order="sorted").encode


class GroupsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How groups are created."""

    auto_create_subscription_group: bool = True  # a pull or heartbeat of an unknown group creates it


class GroupsStatistics(msgspec.Struct, frozen=True):
    """The number of groups; `version` counts the changes."""

    groups: int
    version: int


class SubscriptionGroups:
    """Consumer groups by name. `clock` returns Unix ms, for versions. `creations` counts new groups; None: they are not
    counted."""

    def __init__(
        self,
        config: GroupsConfig,
        clock: Callable[[], int],
        limits: Limits | None = None,
        creations: Creations | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._groups = {name: SubscriptionGroupConfig(group_name=name) for name in SYSTEM_GROUPS}
        self._limits = limits or Limits()
        self._limits.groups.used = lambda: len(self._groups)
        self._forbidden: dict[str, dict[str, int]] = {}
        self._listeners: list[Callable[[], None]] = []
        self._delete_listeners: list[Callable[[str], None]] = []
        self.version = DataVersion()
        self._creations = creations

    def __repr__(self) -> str:
        return f"<SubscriptionGroups groups={len(self._groups)} version={self.version.counter}>"

    def configure(self, config: GroupsConfig) -> None:
        """Apply these settings from now on."""
        self._config = config

    def __iter__(self) -> Iterator[SubscriptionGroupConfig]:
        return iter(self._groups.values())

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change."""
        self._listeners.append(listener)

    def on_delete(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the name of each deleted group."""
        self._delete_listeners.append(listener)

    def load(self, data: bytes | None) -> None:
        """Load subscriptionGroup.json (None: a new store). Raises BodyError."""
        if data is not None:
            wrapper = SubscriptionGroupWrapper.decode(data)
            self._groups.update(wrapper.subscription_group_table)
            self._forbidden = wrapper.forbidden_table
            self.version = wrapper.data_version
        log.info("groups loaded groups=%d version=%d", len(self._groups), self.version.counter)

    def find(self, name: str) -> SubscriptionGroupConfig | None:
        """Return the group, if it exists."""
        return self._groups.get(name)

    def find_or_create(self, name: str) -> SubscriptionGroupConfig | None:
        """Return the group, created if that is permitted; None if it is not, or if the name is invalid.

        Raises RequestError at a limit.
        """
        group = self._groups.get(name)
        if group is not None:
            return group
        if not self._config.auto_create_subscription_group and not name.startswith(SYSTEM_GROUP_PREFIX):
            return None
        try:
            check_group_name(name)
        except RequestError:
            return None
        group = SubscriptionGroupConfig(group_name=name)
        self._check_growth([group])
        log.info("group created group=%s", name)
        self._put(group)
        return group

    def update(self, group: SubscriptionGroupConfig) -> bool:
        """Create or replace a group for an operator; False if nothing changes. Raises RequestError at a limit."""
        if self._groups.get(group.group_name) == group:
            return False
        self._check_growth([group])
        log.info("group updated %s", group)
        self._put(group)
        return True

    def update_all(self, groups: Sequence[SubscriptionGroupConfig]) -> list[SubscriptionGroupConfig]:
        """Create or replace all of the groups or none. Returns the changed ones. Raises RequestError at a limit."""
        self._check_growth(groups)
        return [group for group in groups if self.update(group)]

    def _check_growth(self, groups: Sequence[SubscriptionGroupConfig]) -> None:
        """Raise RequestError if these groups, or the queues of their retry topics, would exceed the limits, or the
        quota of an account."""
        limits, new = self._limits, []
        for group in groups:
            known = self._groups.get(group.group_name)
            before, wanted = 0 if known is None else known.retry_queue_nums, group.retry_queue_nums
            if wanted > max(before, limits.queues_per_topic.most):
                what = f"retry topic of group {group.group_name} with {wanted} queues"
                raise limits.queues_per_topic.refusal(what)
            if known is None:
                new.append(group.group_name)
        if new and len(self._groups) + len(new) > limits.groups.most:
            what = f"group {new[0]}" if len(new) == 1 else f"{len(new)} more groups"
            raise limits.groups.refusal(f"{what} besides {len(self._groups)}")
        if new and self._creations is not None:
            self._creations.check(new)

    def _put(self, group: SubscriptionGroupConfig) -> None:
        is_new = group.group_name not in self._groups
        self._groups[group.group_name] = group
        if is_new and self._creations is not None:
            self._creations.note(group.group_name)
        self._changed()

    def delete(self, name: str) -> bool:
        """Remove a group and its forbidden topics; False if it did not exist."""
        if self._groups.pop(name, None) is None:
            return False
        self._forbidden.pop(name, None)
        log.info("group deleted group=%s", name)
        for listener in self._delete_listeners:
            listener(name)
        self._changed()
        return True

    def follow(self, master: SubscriptionGroupWrapper) -> None:
        """Take over the table of a master with its version. No limit applies: the master has admitted its groups."""
        if self.version == master.data_version:
            return
        gone = [name for name in self._groups if name not in master.subscription_group_table]
        self._groups = dict(master.subscription_group_table)
        self._forbidden = master.forbidden_table
        self.version = master.data_version
        for name in gone:
            for on_delete in self._delete_listeners:
                on_delete(name)
        self._notify()
        log.info("groups copied from the master groups=%d deleted=%d", len(self._groups), len(gone))

    def may_read(self, name: str, topic: str) -> bool:
        """Return whether the group may read the topic."""
        return not self._forbidden.get(name, {}).get(topic, 0) & READING_FORBIDDEN

    def encode(self) -> bytes:
        """Return the table as subscriptionGroup.json."""
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
        """Return the current figures."""
        return GroupsStatistics(groups=len(self._groups), version=self.version.counter)

    def _changed(self) -> None:
        self.version = self.version.next(self._clock())
        self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()
