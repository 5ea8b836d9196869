"""One run of a history: a broker, clients, what befalls them, and a look at everything when it is over.

begin      the broker and its topics; all clients
live       blow after blow, at the plan's times; committed offsets are looked at all the while
drain      nobody sends any more; all that was sent becomes due, and everybody gets everything
end        clients stop; what lies in the topics is told; the broker stops, and its store is checked
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
    Blow,
    Consuming,
    Mode,
    Plan,
    slot_name,
)
from tests.harness.history_processes import Slot, TheBroker
from tests.harness.history_view import DEAD, RETRY
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient
from tests.harness.sound import assert_sound

LOOK_S: Final = 0.25
READY_LIMIT_S: Final = 60.0
DRAIN_LIMIT_S: Final = 40.0
QUIET_S: Final = 1.5
HALF_GROUP: Final = "CID_RMQ_SYS_TRANS"
EPOCH: Final = datetime.fromtimestamp(0, UTC)
NEVER: Final = datetime(2100, 1, 1, tzinfo=UTC)

Tell = Callable[[str], None]


class Run:
    """`tell` gets a line per step."""

    def __init__(self, plan: Plan, directory: Path, tell: Tell) -> None:
        self._plan = plan
        self._directory = directory
        self._told = tell
        self._journal = Journal(directory, "run")
        self._broker = TheBroker(directory, plan.settings, self._journal)
        self._slots = {slot.name: slot for slot in self._make_slots()}
        self._eye: RawClient | None = None
        self._begun_s = 0.0

    def run(self) -> None:
        """From the beginning to the end."""
        plan = self._plan
        self._journal.tell(Began(seed=plan.seed, profile=plan.profile, seconds=plan.seconds, saves_ms=plan.saves_ms))
        self._tell_groups()
        self._tell(f"seed={plan.seed} profile={plan.profile} settings={plan.settings}")
        self._broker.start()
        try:
            asyncio.run(self._make_topics())
            self._spawn_all()
            self._live()
            drained = self._drain()
            self._end(drained)
        finally:
            self._leave_nobody()

    # --------------------------------------------------------------------------------------------------------- begin

    def _make_slots(self) -> list[Slot]:
        plan = self._plan
        slots = [Slot(slot_name(PRODUCER, n), "", self._producer, self._journal) for n in range(plan.producers)]
        for one in plan.consuming:
            for n in range(one.members):
                name = slot_name(one.group, n)
                make = partial(self._consumer, one, name)
                slots.append(Slot(name, group_of(one, name), make, self._journal))
        return slots

    def _producer(self, name: str) -> tuple[Callable[..., None], tuple[Any, ...]]:
        return produce, (name, self._broker.namesrv, self._directory, self._plan.seed)

    def _consumer(self, one: Consuming, slot: str, name: str) -> tuple[Callable[..., None], tuple[Any, ...]]:
        return consume, (name, self._broker.namesrv, self._directory, one, slot)

    def _tell_groups(self) -> None:
        for one in self._plan.consuming:
            is_broadcast = one.mode is Mode.BROADCAST
            slots = [slot_name(one.group, n) for n in range(one.members if is_broadcast else 1)]
            for slot in slots:
                self._journal.tell(
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
        limit_s = time.monotonic() + READY_LIMIT_S
        while not all(slot.has_told("ready") for slot in self._slots.values()):
            if time.monotonic() > limit_s:
                raise TimeoutError(f"not all clients were ready within {READY_LIMIT_S:g} s")
            time.sleep(LOOK_S)

    # ---------------------------------------------------------------------------------------------------------- live

    def _live(self) -> None:
        self._begun_s = time.monotonic()
        end_s = self._begun_s + self._plan.seconds
        for blow in self._plan.blows:
            self._pass_until(min(time.monotonic() + blow.after_s, end_s))
            if time.monotonic() >= end_s:
                break
            self._tell(f"{blow}")
            self._strike(blow)
        self._pass_until(end_s)

    def _strike(self, blow: Blow) -> None:
        target = self._broker if blow.slot == BROKER else self._slots[blow.slot]
        if blow.kind == "pause":
            target.pause()
            self._pass_until(time.monotonic() + blow.length_s)
            target.resume()
            return
        if blow.kind == "kill":
            target.kill()
        else:
            target.stop()
        self._close_eye()
        self._pass_until(time.monotonic() + blow.length_s)
        if isinstance(target, TheBroker):
            target.start()
        else:
            target.spawn()

    def _pass_until(self, at_s: float) -> None:
        while True:
            self._look()
            rest_s = at_s - time.monotonic()
            if rest_s <= 0:
                return
            time.sleep(min(LOOK_S, rest_s))

    def _look(self) -> None:
        """At the committed offsets, and whether everybody is there."""
        self._broker.look()
        for slot in self._slots.values():
            slot.look()
        if not self._broker.is_up:
            return
        try:
            self._eye = self._eye or RawClient(LOOPBACK, self._broker.port, timeout=2.0)
            answer = self._eye.call(RequestCode.GET_ALL_CONSUMER_OFFSET)
        except OSError as error:
            self._tell(f"offsets not seen: {error}")
            self._close_eye()
        else:
            table = ConsumerOffsets.decode(answer.body).offset_table if answer.body else {}
            self._journal.tell(Offsets(table=table))

    def _close_eye(self) -> None:
        if self._eye is not None:
            self._eye.close()
            self._eye = None

    # --------------------------------------------------------------------------------------------------------- drain

    def _drain(self) -> bool:
        """Whether everybody got everything in time."""
        begun_s = time.monotonic()
        self._be_quiet()
        self._pass_until(begun_s + FARTHEST_MS / 1000 + 1.0)
        told, quiet_s = 0, time.monotonic()
        while time.monotonic() < quiet_s + QUIET_S:
            self._be_quiet()
            self._pass_until(time.monotonic() + LOOK_S)
            if (lags := asyncio.run(self._lags())) or told != (told := self._told_by_clients()):
                quiet_s = time.monotonic()
            if quiet_s > begun_s + DRAIN_LIMIT_S:
                self._tell(f"still to come: {lags}")
                return False
        self._tell(f"drained after {time.monotonic() - begun_s:.1f} s")
        return True

    def _be_quiet(self) -> None:
        for slot in self._slots.values():
            if slot.name.startswith(PRODUCER):
                slot.be_quiet()

    def _told_by_clients(self) -> int:
        """Bytes."""
        return sum(
            path.stat().st_size for path in self._directory.glob(f"*{SUFFIX}") if path.stem != self._journal.name
        )

    async def _lags(self) -> dict[str, int]:
        """What is still to be consumed, by group and topic; everything, if the broker cannot be asked."""
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
            slot.ask_to_stop()
        for slot in self._slots.values():
            slot.wait_stopped()
        self._look_once_more()
        asyncio.run(self._tell_stored())
        damage = [] if self._broker.stop() == 0 else ["the broker's exit code was not 0"]
        try:
            assert_sound(self._directory / STORE)
        except AssertionError as error:
            damage.append(str(error))
        self._journal.tell(Ended(drained=drained, damage=damage))

    def _look_once_more(self) -> None:
        self._slots, slots = {}, self._slots
        self._look()
        self._slots = slots

    async def _tell_stored(self) -> None:
        async with Admin(namesrv=self._broker.namesrv) as admin:
            for topic in await admin.topics():
                if topic in TOPICS or topic.startswith((RETRY, DEAD)):
                    await self._tell_topic(admin, topic)

    async def _tell_topic(self, admin: Admin, topic: str) -> None:
        try:
            await admin.queues(topic)
        except (NoRoute, BrokerError):
            return  # a retry topic that nobody has needed
        async for message in admin.messages_between(topic, EPOCH, NEVER):
            self._journal.tell(
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

    def _leave_nobody(self) -> None:
        self._close_eye()
        for slot in self._slots.values():
            slot.forget()
        self._broker.forget()
        self._journal.close()

    def _tell(self, what: str) -> None:
        self._told(f"{time.monotonic() - self._begun_s if self._begun_s else 0:6.2f} {what}")


def remove_store(directory: Path) -> None:
    """What is not needed to judge a history again."""
    shutil.rmtree(directory / STORE, ignore_errors=True)
