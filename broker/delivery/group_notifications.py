"""Notices to consumer groups that their members or topics have changed (40, pushed): each member then shares out anew.

    a change ─▶ the joiner hears of it at once ─▶ GATHERED_S ─▶ everybody else does, a slice in each turn of the loop

A joiner hears before its heartbeat is answered, as from RocketMQ. For the others changes are gathered: a hundred
members that leave together, or a thousand that come, are one notice to each of those that stay. Who joined last need
not hear of it again, unless something has changed since.

With `realTimeNotifyConsumerChange=false` everybody hears at `step`, once per CALM_INTERVAL_MS. A broadcasting group
never does: each of its members consumes everything anyway; nor does anybody with
`notifyConsumerIdsChangedEnable=false`. Notices are JSON whatever the client speaks, made once for
a whole group. Source: docs/formats.md, "Groups".
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from skylarkmq.broker.metadata.client_sessions import ClientSessions, ConsumerGroup
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.consumer import ConsumerGroupHeader
from skylarkmq.protocol.serialize import encode_command

GATHERED_S: Final = 0.05
CALM_INTERVAL_MS: Final = 15_000
SLICE: Final = 100
"""Members that hear in one turn: a write to each, about a millisecond."""


class Callbacks(Protocol):
    """What is wanted of an event loop."""

    def call_soon(self, callback: Callable[..., Any], /, *args: Any) -> asyncio.Handle:
        """Call `callback` in the next turn."""

    def call_later(self, delay: float, callback: Callable[..., Any], /, *args: Any) -> asyncio.TimerHandle:
        """Call `callback` after so many seconds."""


class NoticesStatistics(msgspec.Struct, frozen=True):
    """Notices sent and changes that led to them, since the start; groups that will hear of one soon."""

    sent: int
    changes: int
    gathering: int


class Notices:
    """Tells members of groups."""

    def __init__(self, loop: Callbacks, sessions: ClientSessions) -> None:
        self._loop = loop
        self._sessions = sessions
        self._is_on = True
        self._at_once = True
        self._told: dict[str, Connection | None] = {}  # groups that will hear, and who knows of the last change
        self._next_calm_ms = 0
        self._changes = 0
        self._sent = 0

    def __repr__(self) -> str:
        return f"<Notices sent={self._sent} gathering={len(self._told)}>"

    def statistics(self) -> NoticesStatistics:
        """The figures now."""
        return NoticesStatistics(self._sent, self._changes, len(self._told))

    def configure(self, *, is_on: bool, at_once: bool) -> None:
        """Tell groups or not, at once or once in a while; what is gathered is told by `step`, or when it is due."""
        self._is_on = is_on
        self._at_once = at_once

    def changed(self, group: ConsumerGroup, by: Connection | None = None) -> None:
        """The members or topics of a group are others now; `by` a member's heartbeat, or without one."""
        if group.is_broadcast or not self._is_on:
            return
        self._changes += 1
        if self._at_once and by is not None:
            self._push(notice(group.name), [by])
        if group.name not in self._told and self._at_once:
            self._loop.call_later(GATHERED_S, self._tell, group.name)
        self._told[group.name] = by if self._at_once else None

    def step(self, now_ms: int) -> None:
        """Tell what was gathered for long. `now_ms` is a steady clock."""
        if not self._at_once and self._told and now_ms >= self._next_calm_ms:
            self._next_calm_ms = now_ms + CALM_INTERVAL_MS
            for name in list(self._told):
                self._tell(name)

    def _tell(self, name: str) -> None:
        if name not in self._told:
            return
        group, told = self._sessions.consumer_group(name), self._told.pop(name)
        if group is not None:
            self._push(notice(name), [connection for connection in group.members if connection is not told])

    def _push(self, frame: bytes, connections: list[Connection]) -> None:
        for connection in connections[:SLICE]:
            connection.write(frame)
            self._sent += 1
        if len(connections) > SLICE:
            self._loop.call_soon(self._push, frame, connections[SLICE:])


def notice(group: str) -> bytes:
    """The frame. Nobody answers it, so all may have the same opaque."""
    header = ConsumerGroupHeader(consumer_group=group)
    return encode_command(RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True))
