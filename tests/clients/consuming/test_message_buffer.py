"""Messages that wait for the application."""

import asyncio

import pytest

from skylarkmq.clients.consuming.message_buffer import Delivery, Inbox
from skylarkmq.clients.consuming.offset_tracker import Progress
from skylarkmq.protocol.message import MessageExt
from tests.clients.peer import until


def delivery(offset: int, progress: Progress) -> Delivery:
    progress.received(offset, 1)
    progress.position = offset + 1
    message = MessageExt("T", 0, offset, 0, b"", {}, 0, 0, 0, ("", 0), 0, ("", 0), 0, 0, 0, 1)
    return Delivery(message, progress)


async def test_first_in_first_out() -> None:
    """Messages come in the order in which they were put, what was put back comes first."""
    inbox, progress = Inbox(), Progress(0)
    made = [delivery(n, progress) for n in range(3)]
    inbox.put(made)
    first = await inbox.take()
    assert first is made[0]
    inbox.put_back(first)
    assert [inbox.take_nowait() for _ in range(4)] == [*made, None]


async def test_takers_wait_and_are_woken_one_by_one() -> None:
    """As many takers go on as there are messages."""
    inbox, progress = Inbox(), Progress(0)
    takers = [asyncio.create_task(inbox.take()) for _ in range(3)]
    await asyncio.sleep(0)
    inbox.put([delivery(n, progress) for n in range(2)])
    await until(lambda: sum(taker.done() for taker in takers) == 2)
    inbox.close()
    assert [await taker for taker in takers].count(None) == 1


async def test_a_taker_that_never_waits_takes_all() -> None:
    """Nobody else is woken for more than one look."""
    inbox, progress = Inbox(), Progress(0)
    taken: list[int] = []

    async def work(number: int) -> None:
        while await inbox.take() is not None:
            taken.append(number)

    workers = [asyncio.create_task(work(number)) for number in range(3)]
    await asyncio.sleep(0)
    inbox.put([delivery(n, progress) for n in range(2)])
    inbox.put([delivery(n, progress) for n in range(2, 5)])
    await until(lambda: len(taken) == 5)
    assert taken == [0] * 5
    inbox.close()
    await asyncio.gather(*workers)


async def test_a_cancelled_taker_loses_nothing() -> None:
    """If its turn had come, the next one gets it."""
    inbox, progress = Inbox(), Progress(0)
    first, second = (asyncio.create_task(inbox.take()) for _ in range(2))
    await asyncio.sleep(0)
    inbox.put([delivery(0, progress)])
    first.cancel()
    assert await second is not None
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_messages_of_a_dropped_queue_are_passed_over() -> None:
    """They belong to another member now."""
    inbox, mine, lost = Inbox(), Progress(0), Progress(0)
    inbox.put([delivery(0, lost), delivery(5, mine)])
    lost.dropped = True
    taken = await inbox.take()
    assert taken is not None
    assert taken.message.queue_offset == 5


async def test_loop_finishes_a_message_when_it_asks_for_the_next() -> None:
    """Leaving the loop leaves the last one unfinished, and the next loop gets it again."""
    inbox, progress = Inbox(), Progress(0)
    inbox.put([delivery(n, progress) for n in range(3)])
    loop = inbox.iterate()
    assert (await anext(loop)).queue_offset == 0
    assert progress.commit_offset() == 0
    assert (await anext(loop)).queue_offset == 1
    assert progress.commit_offset() == 1
    await loop.aclose()  # type: ignore[attr-defined]  # it is a generator
    assert progress.commit_offset() == 1
    assert (await anext(inbox.iterate())).queue_offset == 1


async def test_loop_ends_when_the_inbox_closes() -> None:
    """A stopped consumer ends the loops over it."""
    inbox = Inbox()
    inbox.close()
    assert [message async for message in inbox.iterate()] == []
