"""The message buffer: order, waiting takers, messages that are skipped."""

import asyncio

import pytest

from skylarkmq.clients.sdk.consuming.message_buffer import MessageBuffer
from skylarkmq.clients.sdk.consuming.offset_tracker import OffsetTracker
from skylarkmq.clients.sdk.consuming.received_message import ReceivedMessage
from tests.clients.peer import until


def received(offset: int, tracker: OffsetTracker) -> ReceivedMessage:
    tracker.received(offset, 1)
    tracker.position = offset + 1
    return ReceivedMessage("T", 0, offset, 0, b"", {}, 0, 0, 0, ("", 0), 0, ("", 0), 0, 0, 0, 1, tracker=tracker)


async def test_messages_are_taken_in_the_order_of_their_arrival() -> None:
    """A message that was put back is first."""
    buffer, tracker = MessageBuffer(), OffsetTracker(0)
    made = [received(n, tracker) for n in range(3)]
    buffer.put(made)
    first = await buffer.take()
    assert first is made[0]
    buffer.put_back(first)
    assert [buffer.take_nowait() for _ in range(4)] == [*made, None]


async def test_as_many_takers_are_woken_as_there_are_messages() -> None:
    """The others wait; `close` ends their wait."""
    buffer, tracker = MessageBuffer(), OffsetTracker(0)
    takers = [asyncio.create_task(buffer.take()) for _ in range(3)]
    await asyncio.sleep(0)
    buffer.put([received(n, tracker) for n in range(2)])
    await until(lambda: sum(taker.done() for taker in takers) == 2)
    buffer.close()
    assert [await taker for taker in takers].count(None) == 1


async def test_a_taker_that_never_waits_takes_all_messages() -> None:
    """The other takers are woken for none of them."""
    buffer, tracker = MessageBuffer(), OffsetTracker(0)
    taken: list[int] = []

    async def work(number: int) -> None:
        while await buffer.take() is not None:
            taken.append(number)

    workers = [asyncio.create_task(work(number)) for number in range(3)]
    await asyncio.sleep(0)
    buffer.put([received(n, tracker) for n in range(2)])
    buffer.put([received(n, tracker) for n in range(2, 5)])
    await until(lambda: len(taken) == 5)
    assert taken == [0] * 5
    buffer.close()
    await asyncio.gather(*workers)


async def test_a_canceled_taker_loses_no_message() -> None:
    """Another taker is woken instead."""
    buffer, tracker = MessageBuffer(), OffsetTracker(0)
    first, second = (asyncio.create_task(buffer.take()) for _ in range(2))
    await asyncio.sleep(0)
    buffer.put([received(0, tracker)])
    first.cancel()
    assert await second is not None
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_messages_of_a_dropped_queue_are_skipped() -> None:
    """They belong to another member."""
    buffer, mine, lost = MessageBuffer(), OffsetTracker(0), OffsetTracker(0)
    buffer.put([received(0, lost), received(5, mine)])
    lost.dropped = True
    taken = await buffer.take()
    assert taken is not None
    assert taken.queue_offset == 5


async def test_an_acknowledged_message_that_was_put_back_is_skipped() -> None:
    """A message that the loop has left can still be acknowledged."""
    buffer, tracker = MessageBuffer(), OffsetTracker(0)
    first, second = received(0, tracker), received(1, tracker)
    buffer.put([second])
    buffer.put_back(first)
    assert buffer.next_offset(tracker) == 0
    first.finish()
    assert buffer.next_offset(tracker) == 1
    assert buffer.take_nowait() is second
    assert buffer.next_offset(tracker) is None


async def test_a_closed_buffer_returns_no_message() -> None:
    """Neither a waiting one, nor one that is put back."""
    buffer, tracker = MessageBuffer(), OffsetTracker(0)
    buffer.put([received(0, tracker)])
    buffer.close()
    buffer.put_back(received(1, tracker))
    assert await buffer.take() is None
    assert len(buffer) == 0
