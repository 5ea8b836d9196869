"""One run of a history: a broker, clients, faults, and an inspection at the end.

begin      start the broker, create its topics, start all clients
live       inject the plan's faults at their times; record committed offsets all the time
drain      stop sending; wait until every deferred message is due, and every group has consumed everything
end        stop the clients; record the content of the topics; stop the broker, and check its store
"""

import asyncio
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from skylarkmq import Admin, BrokerError, ClientError, NoRoute
from skylarkmq.protocol.bodies.offsets import ConsumerOffsets
from skylarkmq.protocol.codes import RequestCode, SystemTopic
from skylarkmq.protocol.message import PropertyName
from tests.harness.daemon import STORE
from tests.harness.history_clients import consume, produce
from tests.harness.history_events import SUFFIX, Began, Ended, Group, Journal, Offsets, Stored, crc_of, id_of
from tests.harness.history_members import group_of
from tests.harness.history_plan import (
    BROKER,
    FARTHEST_MS,
    PRICE,
    PRODUCER,
    TOPICS,
    Consuming,
    Fault,
    Mode,
    Plan,
    slot_name,
)
from tests.harness.history_processes import BrokerProcess, ClientSlot
from tests.harness.history_view import DEAD, RETRY
from tests.harness.limits import PROCESS_LIMIT_S
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient
from tests.harness.store_check import assert_consistent

INSPECTION_INTERVAL_S: Final = 0.25
QUIET_S: Final = 1.5
HALF_GROUP: Final = "CID_RMQ_SYS_TRANS"
EPOCH: Final = datetime.fromtimestamp(0, UTC)
NEVER: Final = datetime(2100, 1, 1, tzinfo=UTC)

ReportLine = Callable[[str], None]


class Run:
    """`report` gets a line per step."""

    def __init__(self, plan: Plan, directory: Path, report: ReportLine) -> None:
        self._plan = plan
        self._directory = directory
        self._report = report
        self._journal = Journal(directory, "run")
        self._broker = BrokerProcess(directory, plan.settings, self._journal)
        self._slots = {slot.name: slot for slot in self._client_slots()}
        self._client: RawClient | None = None
        self._begun_s = 0.0

    def run(self) -> None:
        """Run all phases."""
        plan = self._plan
        self._journal.record(Began(seed=plan.seed, profile=plan.profile, seconds=plan.seconds, saves_ms=plan.saves_ms))
        self._record_groups()
        self._report_line(f"seed={plan.seed} profile={plan.profile} settings={plan.settings}")
        self._broker.start()
        try:
            asyncio.run(self._make_topics())
            self._spawn_all()
            self._inject_faults()
            drained = self._drain()
            self._end(drained)
        finally:
            self._kill_all()

    # --------------------------------------------------------------------------------------------------------- begin

    def _client_slots(self) -> list[ClientSlot]:
        plan = self._plan
        slots = [ClientSlot(slot_name(PRODUCER, n), "", self._producer, self._journal) for n in range(plan.producers)]
        for one in plan.consuming:
            for n in range(one.members):
                name = slot_name(one.group, n)
                make = partial(self._consumer, one, name)
                slots.append(ClientSlot(name, group_of(one, name), make, self._journal))
        return slots

    def _producer(self, name: str) -> tuple[Callable[..., None], tuple[Any, ...]]:
        return produce, (name, self._broker.namesrv, self._directory, self._plan.seed)

    def _consumer(self, one: Consuming, slot: str, name: str) -> tuple[Callable[..., None], tuple[Any, ...]]:
        return consume, (name, self._broker.namesrv, self._directory, one, slot)

    def _record_groups(self) -> None:
        for one in self._plan.consuming:
            is_broadcast = one.mode is Mode.BROADCAST
            slots = [slot_name(one.group, n) for n in range(one.members if is_broadcast else 1)]
            for slot in slots:
                self._journal.record(
                    Group(
                        group=group_of(one, slot),
                        orderly=one.mode is Mode.ORDERLY,
                        broadcast=is_broadcast,
                        max_times=one.max_times,
                        topics=one.topics,
                    )
                )

    async def _make_topics(self) -> None:
        async with Admin(namesrv=self._broker.namesrv) as admin:
            for topic, queues in TOPICS.items():
                await admin.create_topic(topic, queues)

    def _spawn_all(self) -> None:
        for slot in self._slots.values():
            slot.spawn()
        limit_s = time.monotonic() + PROCESS_LIMIT_S
        while not all(slot.has_recorded("ready") for slot in self._slots.values()):
            if time.monotonic() > limit_s:
                raise TimeoutError(f"not all clients were ready within {PROCESS_LIMIT_S:g} s")
            time.sleep(INSPECTION_INTERVAL_S)

    # ---------------------------------------------------------------------------------------------------------- live

    def _inject_faults(self) -> None:
        self._begun_s = time.monotonic()
        end_s = self._begun_s + self._plan.seconds
        for fault in self._plan.faults:
            self._watch_until(min(time.monotonic() + fault.after_s, end_s))
            if time.monotonic() >= end_s:
                break
            self._report_line(f"{fault}")
            self._inject(fault)
        self._watch_until(end_s)

    def _inject(self, fault: Fault) -> None:
        target = self._broker if fault.slot == BROKER else self._slots[fault.slot]
        if fault.kind == "pause":
            target.pause()
            self._watch_until(time.monotonic() + fault.length_s)
            target.resume()
            return
        if fault.kind == "kill":
            target.kill()
        else:
            target.stop()
        self._close_client()
        self._watch_until(time.monotonic() + fault.length_s)
        if isinstance(target, BrokerProcess):
            target.start()
        else:
            target.spawn()

    def _watch_until(self, at_s: float) -> None:
        while True:
            self._inspect()
            rest_s = at_s - time.monotonic()
            if rest_s <= 0:
                return
            time.sleep(min(INSPECTION_INTERVAL_S, rest_s))

    def _inspect(self) -> None:
        """Record the committed offsets, and replace processes that have ended."""
        self._broker.check_alive()
        for slot in self._slots.values():
            slot.check_alive()
        if not self._broker.is_up:
            return
        try:
            self._client = self._client or RawClient(LOOPBACK, self._broker.port, timeout=2.0)
            response = self._client.call(RequestCode.GET_ALL_CONSUMER_OFFSET)
        except OSError as error:
            self._report_line(f"offsets not read: {error}")
            self._close_client()
        else:
            table = ConsumerOffsets.decode(response.body).offset_table if response.body else {}
            self._journal.record(Offsets(table=table))

    def _close_client(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # --------------------------------------------------------------------------------------------------------- drain

    def _drain(self) -> bool:
        """Return whether every group was drained in time."""
        begun_s = time.monotonic()
        self._stop_sending()
        self._watch_until(begun_s + FARTHEST_MS / 1000 + 1.0)
        size, quiet_s = 0, time.monotonic()
        while time.monotonic() < quiet_s + QUIET_S:
            self._stop_sending()
            self._watch_until(time.monotonic() + INSPECTION_INTERVAL_S)
            if (lags := asyncio.run(self._lags())) or size != (size := self._journal_bytes()):
                quiet_s = time.monotonic()
            if quiet_s > begun_s + PROCESS_LIMIT_S:
                self._report_line(f"not drained: {lags}")
                return False
        self._report_line(f"drained after {time.monotonic() - begun_s:.1f} s")
        return True

    def _stop_sending(self) -> None:
        for slot in self._slots.values():
            if slot.name.startswith(PRODUCER):
                slot.stop_sending()

    def _journal_bytes(self) -> int:
        """Return the size of the clients' journals in bytes."""
        return sum(
            path.stat().st_size for path in self._directory.glob(f"*{SUFFIX}") if path.stem != self._journal.name
        )

    async def _lags(self) -> dict[str, int]:
        """Return the lag by group and topic; a pseudo entry if the broker does not respond."""
        pairs = [(HALF_GROUP, SystemTopic.TRANSACTION_HALF)]
        for one in self._plan.consuming:
            if one.mode is not Mode.BROADCAST:
                pairs += [(one.group, topic) for topic in one.topics]
            if one.mode is Mode.CONCURRENT:
                pairs.append((one.group, RETRY + one.group))
        try:
            async with Admin(namesrv=self._broker.namesrv) as admin:
                lags = {f"{group} {topic}": await admin.lag(group, topic) for group, topic in pairs}
        except ClientError as error:
            return {str(error): 1}
        return {pair: lag for pair, lag in lags.items() if lag}

    # ----------------------------------------------------------------------------------------------------------- end

    def _end(self, drained: bool) -> None:
        for slot in self._slots.values():
            slot.request_stop()
        for slot in self._slots.values():
            slot.wait_stopped()
        self._inspect_once_more()
        asyncio.run(self._record_stored())
        damage = [] if self._broker.stop() == 0 else ["the broker's exit code was not 0"]
        try:
            assert_consistent(self._directory / STORE)
        except AssertionError as error:
            damage.append(str(error))
        self._journal.record(Ended(drained=drained, damage=damage))

    def _inspect_once_more(self) -> None:
        self._slots, slots = {}, self._slots
        self._inspect()
        self._slots = slots

    async def _record_stored(self) -> None:
        async with Admin(namesrv=self._broker.namesrv) as admin:
            for topic in await admin.topics():
                if topic in TOPICS or topic.startswith((RETRY, DEAD)):
                    await self._record_topic(admin, topic)

    async def _record_topic(self, admin: Admin, topic: str) -> None:
        try:
            await admin.queues(topic)
        except (NoRoute, BrokerError):
            return  # a retry topic without messages
        async for message in admin.messages_between(topic, EPOCH, NEVER):
            self._journal.record(
                Stored(
                    topic=topic,
                    queue_id=message.queue_id,
                    offset=message.queue_offset,
                    id=id_of(message.body),
                    crc=crc_of(message.body),
                    tag=message.tags,
                    price=int(message.properties.get(PRICE, -1)),
                    times=message.reconsume_times,
                    store_ms=message.store_timestamp,
                    first_topic=message.properties.get(PropertyName.RETRY_TOPIC, ""),
                )
            )

    def _kill_all(self) -> None:
        self._close_client()
        for slot in self._slots.values():
            slot.forget()
        self._broker.forget()
        self._journal.close()

    def _report_line(self, what: str) -> None:
        self._report(f"{time.monotonic() - self._begun_s if self._begun_s else 0:6.2f} {what}")


def remove_store(directory: Path) -> None:
    """Remove the store, which a repeated check of the history does not need."""
    shutil.rmtree(directory / STORE, ignore_errors=True)
