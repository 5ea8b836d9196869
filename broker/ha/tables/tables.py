"""Takes over a master's tables into the tables of this slave.

Deleted topics need care, because the store has queues of topics that the master has deleted, and tables are only
compared every few seconds. The master's log ends at byte `log_end_before` when it is asked for its topics. It has
deleted all records below that byte of a topic that it then does not list. Later records may be of a topic with the same
name that was created again. So the queues of a topic are deleted if all of their records are below that byte; otherwise
a later comparison decides. Queues of RocketMQ's own topics are never deleted, because its brokers store half messages
without an entry in the table of topics.

Request modes are kept in a file only, for a broker of RocketMQ 5 that takes the directory over.
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.broker.delivery.delay.offsets import DelayOffsetTable
from skylarkmq.broker.delivery.timer.timers import Timers
from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable
from skylarkmq.broker.metadata.subscription_groups import SubscriptionGroups
from skylarkmq.broker.metadata.topics import TopicTable
from skylarkmq.broker.store.files.state_file import StateFile
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.bodies.offsets import ConsumerOffsets, DelayOffsets
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupWrapper
from skylarkmq.protocol.bodies.topic import TopicConfigSerializeWrapper
from skylarkmq.protocol.codes import is_reserved_topic
from skylarkmq.protocol.disk import CONFIG_DIRECTORY
from skylarkmq.protocol.timers import TimerCheck

REQUEST_MODES_FILE: Final = "messageRequestMode.json"

log = logging.getLogger(__name__)


class MasterTables(msgspec.Struct, frozen=True):
    """The tables of a master, as it had them while its log grew from byte `log_end_before` to byte `log_end`.

    None: a master without that request."""

    topics: TopicConfigSerializeWrapper
    groups: SubscriptionGroupWrapper
    offsets: ConsumerOffsets
    delays: DelayOffsets
    request_modes: bytes | None
    timer_counts: bytes | None
    timers: TimerCheck | None
    log_end_before: int
    log_end: int


class SlaveTables:
    """The tables of one slave."""

    def __init__(
        self,
        topics: TopicTable,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsetTable,
        delays: DelayOffsetTable,
        timers: Timers,
        store: MessageStore,
        root: Path,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._delays = delays
        self._timers = timers
        self._store = store
        self._request_modes = StateFile(root / CONFIG_DIRECTORY / REQUEST_MODES_FILE, validate=msgspec.json.decode)

    def __repr__(self) -> str:
        return f"<SlaveTables {self._topics!r} {self._offsets!r}>"

    async def follow(self, master: MasterTables, offsets_before: Mapping[str, Mapping[int, int]]) -> None:
        """Take over the tables. Raises OSError if a file cannot be written; a repetition completes it.

        `offsets_before` are the offsets that the same master had a moment ago, which tell resets from losses.
        """
        for topic in self._topics.follow(master.topics):
            self._offsets.remove_topic(topic)
        for topic in self._store.queues.topics():
            if self._topics.find(topic) is None and not is_reserved_topic(topic):
                await self._store.hidden_tail.delete_topic_below(topic, master.log_end_before)
        self._groups.follow(master.groups)
        self._offsets.follow(master.offsets.offset_table, offsets_before)
        self._delays.follow(master.delays)
        if master.timer_counts is not None:
            self._timers.counts.follow(master.timer_counts)
        if master.timers is not None:
            self.follow_timers(master.timers)
        if master.request_modes:
            await asyncio.to_thread(self._request_modes.save, master.request_modes)

    def follow_timers(self, check: TimerCheck) -> None:
        """Take over the progress of the master's timers."""
        self._timers.follow(check)
