"""Lanes of queues."""

import asyncio

from skylarkmq.clients.consuming.message_buffer import Delivery
from skylarkmq.clients.consuming.offset_tracker import Progress
from skylarkmq.clients.consuming.queue_inboxes import Lane, Lanes
from skylarkmq.protocol.message import MessageExt

NUMBERS = (
    *("physical_offset", "flag", "sys_flag", "born_timestamp", "store_timestamp", "reconsume_times"),
    *("prepared_transaction_offset", "body_crc", "size"),
)
FIELDS = dict.fromkeys(NUMBERS, 0)


def deliveries(progress: Progress, *offsets: int) -> list[Delivery]:
    made = []
    for offset in offsets:
        message = MessageExt(
            topic="T", queue_id=0, queue_offset=offset, body=b"", properties={}, born_host=("", 0), store_host=("", 0),
            **FIELDS,
        )  # fmt: skip
        progress.received(offset, 1)
        made.append(Delivery(message, progress))
    return made


async def take(lanes: Lanes) -> Lane:
    async with asyncio.timeout(5):
        lane = await lanes.take()
    assert lane is not None
    return lane


async def test_a_taken_lane_is_nobody_elses() -> None:
    """Its second message waits until the lane is given back; another queue's does not."""
    lanes, one, two = Lanes(), Progress(0), Progress(0)
    lanes.put(deliveries(one, 0, 1))
    lanes.put(deliveries(two, 0))
    first, second = await take(lanes), await take(lanes)
    assert (first.progress, second.progress) == (one, two)
    waiting = asyncio.ensure_future(lanes.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    lanes.finish_first(first)
    lanes.give_back(first)
    assert (await waiting) is first
    assert one.commit_offset() == 1


async def test_settling_waits_for_who_is_in_the_lane() -> None:
    """And nobody gets in behind."""
    lanes, progress = Lanes(), Progress(0)
    lanes.put(deliveries(progress, 0, 1))
    lane = await take(lanes)
    settling = asyncio.ensure_future(lanes.settle(progress))
    await asyncio.sleep(0)
    assert not settling.done()
    lanes.finish_first(lane)
    lanes.give_back(lane)
    await settling
    assert len(lanes) == 0
    lanes.close()
    assert await lanes.take() is None


async def test_settling_an_empty_or_idle_lane_does_not_wait() -> None:
    """What waits in it is forgotten."""
    lanes, progress = Lanes(), Progress(0)
    await lanes.settle(progress)
    lanes.put(deliveries(progress, 0))
    await lanes.settle(progress)
    assert len(lanes) == 0


async def test_messages_of_a_dropped_queue_are_passed_over() -> None:
    """They are somebody else's."""
    lanes, dropped, kept = Lanes(), Progress(0), Progress(0)
    lanes.put(deliveries(dropped, 0))
    lanes.put(deliveries(kept, 0))
    dropped.dropped = True
    assert (await take(lanes)).progress is kept
    assert len(lanes) == 1


async def test_a_lane_rests_before_it_is_taken_again() -> None:
    """Its message is still the first."""
    lanes, progress = Lanes(), Progress(0)
    lanes.put(deliveries(progress, 0))
    lane = await take(lanes)
    lanes.give_back(lane, 0.01)
    waiting = asyncio.ensure_future(lanes.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert (await waiting) is lane
    assert lane.deliveries[0].message.queue_offset == 0


async def test_closing_ends_all_who_wait() -> None:
    """Each of them."""
    lanes = Lanes()
    waiting = [asyncio.ensure_future(lanes.take()) for _ in range(3)]
    await asyncio.sleep(0)
    lanes.close()
    assert await asyncio.gather(*waiting) == [None] * 3
