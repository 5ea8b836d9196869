"""Notifications of consumer groups whose members or topics have changed: each member then rebalances.

    a change ─▶ the joining member at once ─▶ GATHERED_S ─▶ all other members, a slice per event-loop iteration

The request is NOTIFY_CONSUMER_IDS_CHANGED (40), one-way. A joining member gets it before the response to its heartbeat,
as with RocketMQ. For the others, changes are collected: if a hundred members leave together or a thousand join, each
remaining member gets one notification. The member that caused the last change gets no second one.

With `realTimeNotifyConsumerChange=false` all members are notified by `step`, once per CALM_INTERVAL_MS. Broadcasting
groups are never notified, because each of their members consumes all queues. With
`notifyConsumerIdsChangedEnable=false` no group is notified. Notifications are encoded as JSON for every client, once
per group. Source: docs/reference/wire.md, "Groups".
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from skylarkmq.broker.metadata.client_sessions import ClientSessions, ConsumerGroup
from skylarkmq.broker.remoting.request_source import ClientChannel
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.consumer import ConsumerGroupHeader
from skylarkmq.protocol.serialize import encode_command

GATHERED_S: Final = 0.05
CALM_INTERVAL_MS: Final = 15_000
SLICE: Final = 100
"""Members that are notified per iteration: a write to each, about a millisecond."""


class Callbacks(Protocol):
    """The methods of an event loop that notifications need."""

    def call_soon(self, callback: Callable[..., Any], /, *args: Any) -> asyncio.Handle:
        """Call `callback` in the next iteration."""

    def call_later(self, delay: float, callback: Callable[..., Any], /, *args: Any) -> asyncio.TimerHandle:
        """Call `callback` after `delay` seconds."""


class GroupNotificationsStatistics(msgspec.Struct, frozen=True):
    """Notifications sent, and changes, since the start; groups with a pending notification."""

    sent: int
    changes: int
    gathering: int


class GroupNotifications:
    """Notifies the members of groups."""

    def __init__(self, loop: Callbacks, sessions: ClientSessions) -> None:
        self._loop = loop
        self._sessions = sessions
        self._is_on = True
        self._at_once = True
        self._pending: dict[str, ClientChannel | None] = {}  # groups to notify, and the cause of the last change
        self._next_calm_ms = 0
        self._changes = 0
        self._sent = 0

    def __repr__(self) -> str:
        return f"<GroupNotifications sent={self._sent} gathering={len(self._pending)}>"

    def statistics(self) -> GroupNotificationsStatistics:
        """Return the current figures."""
        return GroupNotificationsStatistics(self._sent, self._changes, len(self._pending))

    def configure(self, *, is_on: bool, at_once: bool) -> None:
        """Turn notifications on or off, and choose `at_once` or at intervals. Pending ones are sent in any case."""
        self._is_on = is_on
        self._at_once = at_once

    def changed(self, group: ConsumerGroup, by: ClientChannel | None = None) -> None:
        """Register a change of the members or topics of a group, `by` the heartbeat of a member or without one."""
        if group.is_broadcast or not self._is_on:
            return
        self._changes += 1
        if self._at_once and by is not None:
            self._push(notification(group.name), [by])
        if group.name not in self._pending and self._at_once:
            self._loop.call_later(GATHERED_S, self._notify, group.name)
        self._pending[group.name] = by if self._at_once else None

    def step(self, now_ms: int) -> None:
        """Notify the groups that changed within the interval. `now_ms` is from a steady clock."""
        if not self._at_once and self._pending and now_ms >= self._next_calm_ms:
            self._next_calm_ms = now_ms + CALM_INTERVAL_MS
            for name in list(self._pending):
                self._notify(name)

    def _notify(self, name: str) -> None:
        if name not in self._pending:
            return
        group, notified = self._sessions.consumer_group(name), self._pending.pop(name)
        if group is not None:
            self._push(notification(name), [channel for channel in group.members if channel is not notified])

    def _push(self, frame: bytes, channels: list[ClientChannel]) -> None:
        for channel in channels[:SLICE]:
            channel.write(frame)
            self._sent += 1
        if len(channels) > SLICE:
            self._loop.call_soon(self._push, frame, channels[SLICE:])


def notification(group: str) -> bytes:
    """Return the frame for a group. It has no response, so all members may get the same opaque."""
    header = ConsumerGroupHeader(consumer_group=group)
    return encode_command(RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True))
