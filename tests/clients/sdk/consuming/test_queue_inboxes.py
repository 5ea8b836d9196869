"""The inboxes of an orderly consumer: one message of a queue at a time."""

import asyncio

from skylarkmq.clients.sdk.consuming.offset_tracker import OffsetTracker
from skylarkmq.clients.sdk.consuming.queue_inboxes import QueueInbox, QueueInboxes
from skylarkmq.clients.sdk.consuming.received_message import ReceivedMessage
from tests.harness.limits import WAIT_LIMIT_S


def messages(tracker: OffsetTracker, *offsets: int) -> list[ReceivedMessage]:
    made = []
    for offset in offsets:
        message = ReceivedMessage("T", 0, offset, 0, b"", {}, 0, 0, 0, ("", 0), 0, ("", 0), 0, 0, 0, 1, tracker=tracker)
        tracker.received(offset, 1)
        made.append(message)
    return made


async def take(inboxes: QueueInboxes) -> QueueInbox:
    async with asyncio.timeout(WAIT_LIMIT_S):
        inbox = await inboxes.take()
    assert inbox is not None
    return inbox


async def test_a_taken_inbox_is_not_taken_again() -> None:
    """Its second message waits until the inbox is put back; that of another queue does not."""
    inboxes, one, two = QueueInboxes(), OffsetTracker(0), OffsetTracker(0)
    inboxes.put(messages(one, 0, 1))
    inboxes.put(messages(two, 0))
    first, second = await take(inboxes), await take(inboxes)
    assert (first.tracker, second.tracker) == (one, two)
    waiting = asyncio.ensure_future(inboxes.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    inboxes.finish_first(first)
    inboxes.put_back(first)
    assert (await waiting) is first
    assert one.commit_offset() == 1


async def test_settle_waits_for_the_worker_of_the_inbox() -> None:
    """No worker takes the inbox afterwards."""
    inboxes, tracker = QueueInboxes(), OffsetTracker(0)
    inboxes.put(messages(tracker, 0, 1))
    inbox = await take(inboxes)
    settling = asyncio.ensure_future(inboxes.settle(tracker))
    await asyncio.sleep(0)
    assert not settling.done()
    inboxes.finish_first(inbox)
    inboxes.put_back(inbox)
    await settling
    assert len(inboxes) == 0
    inboxes.close()
    assert await inboxes.take() is None


async def test_settle_does_not_wait_for_an_idle_inbox() -> None:
    """Its waiting messages are dropped."""
    inboxes, tracker = QueueInboxes(), OffsetTracker(0)
    await inboxes.settle(tracker)
    inboxes.put(messages(tracker, 0))
    await inboxes.settle(tracker)
    assert len(inboxes) == 0


async def test_messages_of_a_dropped_queue_are_skipped() -> None:
    """They belong to another member."""
    inboxes, dropped, kept = QueueInboxes(), OffsetTracker(0), OffsetTracker(0)
    inboxes.put(messages(dropped, 0))
    inboxes.put(messages(kept, 0))
    dropped.dropped = True
    assert (await take(inboxes)).tracker is kept
    assert len(inboxes) == 1


async def test_an_inbox_that_pauses_is_taken_after_the_pause() -> None:
    """Its first message is still the same."""
    inboxes, tracker = QueueInboxes(), OffsetTracker(0)
    inboxes.put(messages(tracker, 0))
    inbox = await take(inboxes)
    inboxes.put_back(inbox, 0.01)
    waiting = asyncio.ensure_future(inboxes.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert (await waiting) is inbox
    assert inbox.messages[0].queue_offset == 0


async def test_close_ends_the_wait_of_all_workers() -> None:
    """Each of them gets None."""
    inboxes = QueueInboxes()
    waiting = [asyncio.ensure_future(inboxes.take()) for _ in range(3)]
    await asyncio.sleep(0)
    inboxes.close()
    assert await asyncio.gather(*waiting) == [None] * 3
