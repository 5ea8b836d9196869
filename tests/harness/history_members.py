"""A consumer process of a history: a member of a group whose handler takes some time, and fails as planned.

It records an event before and after each step.
"""

import asyncio
import logging
from pathlib import Path
from random import Random
from typing import Final

from skylarkmq import (
    Client,
    ClientError,
    ConsumeFrom,
    ConsumerSettings,
    Later,
    MessageExt,
    PullConsumer,
    PushConsumer,
    Sql92,
)
from skylarkmq.protocol.message import PropertyName
from tests.harness.history_events import Done, Got, Journal, Ready, Threw, TopicFilter, crc_of, id_of
from tests.harness.history_plan import CLIENT, PRICE, Consuming, Mode, failures, goes_to_dead_letters

RETRY_PAUSE_S: Final = 0.2

log = logging.getLogger(__name__)


class Member:
    """One member of a group."""

    def __init__(self, journal: Journal, plan: Consuming, slot: str) -> None:
        self._journal = journal
        self._plan = plan
        self._group = group_of(plan, slot)
        self._slot = slot
        self._rng = Random(journal.name)
        self._calls = 0

    async def run(self, namesrv: str, directory: Path, stop: asyncio.Event) -> None:
        """Consume until `stop` is set."""
        plan = self._plan
        async with Client(namesrv, CLIENT) as client:
            if plan.mode is Mode.PULL:
                reader = PullConsumer(
                    plan.group, client=client, consume_from=ConsumeFrom.FIRST, settings=_settings_of(plan)
                )
                async with reader:
                    await self._subscribe(reader, stop)
                    await self._poll(reader, stop)
                return
            consumer = PushConsumer(
                plan.group,
                client=client,
                handler=self._handle,
                orderly=plan.mode is Mode.ORDERLY,
                broadcast=plan.mode is Mode.BROADCAST,
                consume_from=ConsumeFrom.FIRST,
                offsets_path=directory / f"{self._slot}.offsets" if plan.mode is Mode.BROADCAST else None,
                settings=_settings_of(plan),
            )
            async with consumer:
                await self._subscribe(consumer, stop)
                await stop.wait()

    async def _subscribe(self, consumer: PushConsumer | PullConsumer, stop: asyncio.Event) -> None:
        for topic, topic_filter in self._plan.topics.items():
            while not stop.is_set():
                try:
                    await consumer.subscribe(topic, _expression(topic_filter))
                    break
                except ClientError as error:
                    log.warning("not subscribed, retrying topic=%s error=%s", topic, error)
                    await asyncio.sleep(RETRY_PAUSE_S)
        self._journal.record(Ready())

    async def _poll(self, reader: PullConsumer, stop: asyncio.Event) -> None:
        while not stop.is_set():
            messages = await reader.poll(self._rng.randint(1, 40), timeout_s=0.3)
            for call in [self._got(message) for message in messages]:
                self._journal.record(Done(call=call))

    async def _handle(self, message: MessageExt) -> Later | None:
        call = self._got(message)
        await self._work()
        which, plan = id_of(message.body), self._plan
        if goes_to_dead_letters(which, plan.mode):
            return self._later(call, -1)
        if message.reconsume_times < failures(which, plan.group, plan.mode, plan.max_times):
            if self._rng.random() < 0.3:
                return self._later(call, self._rng.choice((0, 1)))
            self._journal.record(Threw(call=call))
            raise RuntimeError(f"planned failure of {which}")
        self._journal.record(Done(call=call))
        return None

    def _later(self, call: int, level: int) -> Later:
        self._journal.record(Threw(call=call, level=level))
        return Later(level)

    async def _work(self) -> None:
        dice = self._rng.random()
        if dice < 0.02 and self._plan.mode is not Mode.ORDERLY:
            await asyncio.sleep(self._rng.uniform(0.1, 1.0))
        elif dice < 0.3:
            await asyncio.sleep(self._rng.uniform(0.0, 0.02))

    def _got(self, message: MessageExt) -> int:
        self._calls += 1
        self._journal.record(
            Got(
                group=self._group,
                call=self._calls,
                topic=message.topic,
                queue_id=message.queue_id,
                offset=message.queue_offset,
                id=id_of(message.body),
                crc=crc_of(message.body),
                tag=message.tags,
                price=int(message.properties.get(PRICE, -1)),
                times=message.reconsume_times,
                retried=PropertyName.RETRY_TOPIC in message.properties,
            )
        )
        return self._calls


def group_of(plan: Consuming, slot: str) -> str:
    """Return the group's name in the history: a broadcasting member is a group of its own."""
    return f"{plan.group}/{slot}" if plan.mode is Mode.BROADCAST else plan.group


def _settings_of(plan: Consuming) -> ConsumerSettings:
    return ConsumerSettings(
        concurrency=plan.concurrency,
        commit_interval_s=plan.commit_interval_s,
        pull_batch=plan.pull_batch,
        max_reconsume_times=plan.max_times,
        rebalance_interval_s=3.0,
        suspend_s=5.0,
        pull_timeout_s=8.0,
        retry_pause_s=0.3,
        suspend_pause_s=0.1,
        lock_renewal_s=0.4,
        lock_life_s=plan.lock_life_s,
        stop_timeout_s=10.0,
    )


def _expression(topic_filter: TopicFilter) -> str | Sql92:
    if topic_filter.above is not None:
        return Sql92(f"{PRICE} > {topic_filter.above}")
    return " || ".join(topic_filter.tags) or "*"
