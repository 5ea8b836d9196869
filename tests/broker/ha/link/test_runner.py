"""The shell of the core: effects in order, and what follows a failed one."""

import asyncio
import errno
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from skylarkmq.broker.ha.core.epochs import EpochHistory
from skylarkmq.broker.ha.core.events import (
    Copied,
    Effect,
    EndSet,
    Event,
    HaState,
    Restart,
    SetEnd,
    Show,
    Stop,
    SyncFailed,
    Tick,
    Write,
    Written,
)
from skylarkmq.broker.ha.core.messages import Ack, Data, Message
from skylarkmq.broker.ha.core.node import Node
from skylarkmq.broker.ha.link.runner import SHOW_DELAY_S, DamagedLogError, Runner
from skylarkmq.broker.ha.link.threads import DiskCalls
from skylarkmq.broker.store.files.errors import SegmentNotReadyError

FAILED = Restart("a sync of the log failed", new_store=True)
NO_LINKS: Any = None  # these nodes send nothing


class ScriptedNode:
    """A core with one response to a tick, and one to a failure."""

    role = None
    leading: int | None = 1

    def __init__(self, *effects: Effect) -> None:
        self.effects = list(effects)
        self.events: list[Event] = []

    def step(self, now: float, event: Event) -> list[Effect]:
        self.events.append(event)
        if isinstance(event, SyncFailed):
            return [FAILED]
        return self.effects if isinstance(event, Tick) else []


class FailingLog:
    """A log whose writes fail."""

    def __init__(self, failure: Exception) -> None:
        self.failure = failure
        self.calls: list[str] = []

    def write(self, offset: int, payload: bytes | memoryview) -> Written:
        self.calls.append(f"write {offset}")
        raise self.failure

    def copy(self, offset: int, payload: bytes | memoryview) -> int | None:
        self.calls.append(f"copy {offset}")
        raise self.failure

    def set_end(self, end: int) -> None:
        self.calls.append(f"end {end}")

    def begin_term(self, epoch: int, in_sync: tuple[str, ...]) -> Written:
        raise AssertionError

    def show(self, end: int) -> bool:
        self.calls.append(f"show {end}")
        return True


class NoFiles:
    def keep_state(self, state: HaState) -> None:
        raise AssertionError

    def keep_epochs(self, epochs: EpochHistory) -> None:
        raise AssertionError


def run(failure: Exception, *effects: Effect) -> tuple[list[Event], list[str], list[Restart | Stop]]:
    """Return the events of the core, the calls of the log, and the ends, after a tick with these effects."""
    node, log, ends = ScriptedNode(*effects), FailingLog(failure), list[Restart | Stop]()
    with ThreadPoolExecutor(1) as threads:
        disk = DiskCalls(threads)
        runner = Runner(cast("Node", cast("Any", node)), log, NoFiles(), disk, NO_LINKS, ends.append, lambda: 0.0)
        runner.post(Tick())
    return node.events, log.calls, ends


EFFECTS = (SetEnd(5), Write(5, b"x"), Write(6, b"y"), Show(7))


def test_after_a_failed_effect_no_other_takes_place() -> None:
    """Neither the later effects of the step, nor events from before: the core gets the failure next."""
    events, calls, ends = run(OSError(errno.EIO, "Input/output error"), *EFFECTS)
    assert calls == ["end 5", "write 5"]
    assert events == [Tick(), SyncFailed()]
    assert EndSet(5) not in events
    assert ends == [FAILED]


@pytest.mark.parametrize(
    ("failure", "end"),
    [
        (OSError(errno.ENOSPC, "full"), Restart),
        (SegmentNotReadyError("commitlog/0", 5.0), Restart),
        (DamagedLogError("the log is damaged"), Stop),
    ],
)
def test_an_end_without_the_core_ends_the_step(failure: Exception, end: type) -> None:
    """A disk that is full or slow is as it was, and a damaged log needs an operator."""
    events, calls, ends = run(failure, *EFFECTS)
    assert (events, calls) == ([Tick()], ["end 5", "write 5"])
    assert [type(why) for why in ends] == [end]


def test_after_a_stop_no_event_reaches_the_core() -> None:
    """Nor is it kept: a connection that ends later, or a sync that completes, posts its event all the same."""
    node, ends = ScriptedNode(), list[Restart | Stop]()
    with ThreadPoolExecutor(1) as threads:
        log = FailingLog(OSError())
        runner = Runner(
            cast("Node", cast("Any", node)), log, NoFiles(), DiskCalls(threads), NO_LINKS, ends.append, lambda: 0.0
        )
        runner.post(Tick())
        runner.stop()
        runner.post(SyncFailed())
    assert node.events == [Tick()]
    assert not runner._events
    assert ends == []


class CopyingNode(ScriptedNode):
    """A core that allows each copy."""

    def may_copy(self, link: int, data: Data) -> bool:
        return True


class CopyingLog(FailingLog):
    """A log that copies all bytes, or none."""

    def __init__(self, *, copies: bool) -> None:
        super().__init__(OSError())
        self.copies = copies

    def copy(self, offset: int, payload: bytes | memoryview) -> int | None:
        return offset + len(payload) if self.copies else None


class NotedMessages:
    """Links of which only the sent messages matter."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Message]] = []

    def send(self, link: int, message: Message) -> None:
        self.sent.append((link, message))


DATA = Data(3, 5, 2, b"xy")


def copy(log: FailingLog) -> tuple[bool, list[Event], list[tuple[int, Message]], list[Restart | Stop]]:
    """Return whether DATA was taken, the events of the core, what was sent, and the ends."""
    node, links, ends = CopyingNode(), NotedMessages(), list[Restart | Stop]()
    with ThreadPoolExecutor(1) as threads:
        runner = Runner(
            cast("Node", cast("Any", node)),
            log,
            NoFiles(),
            DiskCalls(threads),
            cast("Any", links),
            ends.append,
            lambda: 0.0,
        )
        is_taken = runner.copy(8, DATA)
    return is_taken, node.events, links.sent, ends


def test_data_are_acknowledged_as_soon_as_they_are_synced() -> None:
    """The core handles them afterwards."""
    assert copy(CopyingLog(copies=True)) == (True, [Copied(8, 7, 2)], [(8, Ack(3, 7, 7))], [])


def test_data_that_the_log_does_not_sync_at_once_become_an_event() -> None:
    """Nothing has happened then."""
    assert copy(CopyingLog(copies=False)) == (False, [], [], [])


@pytest.mark.parametrize(
    ("failure", "events", "end"),
    [
        (OSError("the log cannot be synced: no space"), [SyncFailed()], FAILED),
        (OSError(errno.ENOSPC, "full"), [], Restart("the disk takes no writes ([Errno 28] full)")),
    ],
)
def test_a_failed_copy_is_not_acknowledged(failure: OSError, events: list[Event], end: Restart) -> None:
    """After a failed sync the store counts as lost; a write without space leaves it as it was."""
    assert copy(FailingLog(failure)) == (True, events, [], [end])


class LongLog(FailingLog):
    """A log that shows one byte at a time, up to byte `damaged`."""

    def __init__(self, damaged: int) -> None:
        super().__init__(OSError())
        self.shown = 0
        self.damaged = damaged

    def show(self, end: int) -> bool:
        if self.shown == self.damaged:
            raise DamagedLogError("the log is damaged")
        self.shown += 1
        return self.shown >= end


class TickingNode(ScriptedNode):
    """A core that shows one byte more with each tick."""

    def step(self, now: float, event: Event) -> list[Effect]:
        super().step(now, event)
        return [Show(2 + len(self.events))]


@pytest.mark.parametrize("damaged", [5, 100])
async def test_other_events_are_handled_while_a_long_log_is_shown(damaged: int) -> None:
    """One slice at a time, up to the latest end; and what a later slice finds ends the node as well."""
    node, log, ends = TickingNode(), LongLog(damaged), list[Restart | Stop]()
    with ThreadPoolExecutor(1) as threads:
        runner = Runner(
            cast("Node", cast("Any", node)), log, NoFiles(), DiskCalls(threads), NO_LINKS, ends.append, lambda: 0.0
        )
        runner.post(Tick())
        assert log.shown == 1
        for _ in range(5):
            runner.post(Tick())
        assert (log.shown, len(node.events)) == (1, 6)
        for _ in range(20):
            await asyncio.sleep(0)
        assert log.shown == min(8, damaged)
        assert [type(why) for why in ends] == [Stop] * (damaged < 8)
        if damaged > 8:
            runner.post(Tick())
            assert log.shown == 9
            runner.stop()


class ShowingLog(FailingLog):
    """A log that shows, or fails to."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__(failure or OSError())
        self.show_failure = failure

    def show(self, end: int) -> bool:
        if self.show_failure is not None:
            raise self.show_failure
        return super().show(end)


async def run_shows(
    log: ShowingLog, leading: int | None, *, stops: bool = False
) -> tuple[list[str], list[str], list[Restart | Stop]]:
    """Return the calls of a log just after two Shows, those some iterations later, and the ends."""
    node, ends = ScriptedNode(Show(7), Show(9)), list[Restart | Stop]()
    node.leading = leading
    with ThreadPoolExecutor(1) as threads:
        runner = Runner(
            cast("Node", cast("Any", node)), log, NoFiles(), DiskCalls(threads), NO_LINKS, ends.append, lambda: 0.0
        )
        runner.post(Tick())
        at_once = log.calls.copy()
        if stops:
            runner.stop()
        await asyncio.sleep(3 * SHOW_DELAY_S)
    return at_once, log.calls, ends


async def test_a_leader_shows_at_once() -> None:
    """Producers wait for it."""
    at_once, calls, _ = await run_shows(ShowingLog(), leading=1)
    assert at_once == calls == ["show 7", "show 9"]


async def test_a_follower_shows_later_and_only_the_newest() -> None:
    """The leader waits for acknowledgements; after a stop nothing is shown."""
    at_once, calls, _ = await run_shows(ShowingLog(), leading=None)
    assert (at_once, calls) == ([], ["show 9"])
    assert await run_shows(ShowingLog(), leading=None, stops=True) == ([], [], [])


@pytest.mark.parametrize(
    ("failure", "end"),
    [(OSError(errno.EIO, "no disk"), FAILED), (OSError(errno.ENOSPC, "full"), Restart), (DamagedLogError("x"), Stop)],
)
async def test_a_show_that_fails_later_ends_the_node(failure: Exception, end: Restart | type) -> None:
    """As if it had been carried out at once."""
    _, calls, ends = await run_shows(ShowingLog(failure), leading=None)
    assert calls == []
    assert ends == [end] if isinstance(end, Restart) else [type(why) for why in ends] == [end]
