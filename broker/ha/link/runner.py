"""The shell of the core: events in, one at a time; effects carried out, in their order.

`Node.step` decides, and each effect has its place here:

    StoreState          written in a thread, then StateStored
    KeepEpochs          written at once: it has to be on the disk before the effects behind it
    Read, Swap          the store of decisions
    Connect, Send,
    Feed, Close         the links
    Write, SetEnd,
    BeginTerm, Show     the log
    Restart, Stop       the owner: the process ends its work on this store

An error of the disk in any of them is SyncFailed: what is on the disk is unknown then, and the core takes the store out
of the set. A disk without space, or one that creates no segment in time, is as it was: the node restarts, with the same
store. Events that arrive while an event is being handled wait their turn. Show alone may end later than its effect: a
follower that catches up makes records visible in slices, and handles other events in between. Nothing that follows a
Show depends on it.

A follower begins with a Show SHOW_DELAY_S later, up to the newest end: it dispatches records, which takes longer than
their write, and the leader waits for the acknowledgement of those that have arrived meanwhile. No truncation removes
what a Show has named.
"""

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable
from time import CLOCK_BOOTTIME, clock_gettime
from typing import Final, Protocol, TypeVar

from skylarkmq.broker.ha.core.epochs import EpochHistory
from skylarkmq.broker.ha.core.events import (
    BeginTerm,
    Close,
    Connect,
    Copied,
    Effect,
    EndSet,
    Event,
    Feed,
    HaState,
    KeepEpochs,
    Read,
    Restart,
    Send,
    SetEnd,
    Show,
    StateStored,
    Stop,
    StoreState,
    Swap,
    SyncFailed,
    Tick,
    Write,
    Written,
)
from skylarkmq.broker.ha.core.messages import Ack, Data, Message
from skylarkmq.broker.ha.core.node import Node
from skylarkmq.broker.ha.link.threads import DiskCalls
from skylarkmq.broker.store.files.errors import SegmentNotReadyError

FULL_DISK: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS))
"""Errors of a write that leave the disk as it was."""
TICK_S: Final = 0.1
SHOW_DELAY_S: Final = 0.01

log = logging.getLogger(__name__)

AnyEffect = TypeVar("AnyEffect", bound=Effect)


class TermFailed(Exception):
    """The epoch record cannot be written. The disk is as it was."""


class DamagedLogError(Exception):
    """The log has bytes that it cannot have: an operator has to act."""


class ReplicatedLog(Protocol):
    """The log of this node's store. All methods raise OSError, or DamagedLogError."""

    def write(self, offset: int, payload: bytes | memoryview) -> Written:
        """Append received bytes."""

    def copy(self, offset: int, payload: bytes | memoryview) -> int | None:
        """Append received bytes, and sync the log before this returns. Return its end, or None if nothing was done: the
        bytes begin an epoch, or a thread has to sync."""

    def set_end(self, end: int) -> None:
        """Truncate the log, on the disk; an empty log begins there instead."""

    def begin_term(self, epoch: int, in_sync: tuple[str, ...]) -> Written:
        """Append the epoch record. Raises TermFailed."""

    def show(self, end: int) -> bool:
        """Acknowledge the log up to `end` and make it visible. Return whether that is done: if not, call again."""


class StateFiles(Protocol):
    """`haState` and `epochFileCheckpoint`. Both methods block, and raise OSError."""

    def keep_state(self, state: HaState) -> None:
        """Replace `haState`."""

    def keep_epochs(self, epochs: EpochHistory) -> None:
        """Replace `epochFileCheckpoint`."""


class Decisions(Protocol):
    """The record of the group. Each request gives exactly one event."""

    def ask(self, request: Read | Swap) -> None:
        """Carry out a request."""

    def step(self, now: float) -> None:
        """Time has passed, on the clock of the core."""


class Messenger(Protocol):
    """The links."""

    def connect(self, node: str) -> None:
        """Connect to a peer."""

    def send(self, link: int, message: Message) -> None:
        """Send a message."""

    def feed(self, link: int, epoch: int, start: int) -> None:
        """Send the log from `start` on."""

    def close(self, link: int, reason: str) -> None:
        """Close a link."""

    def step(self, now: float) -> None:
        """Time has passed, on the clock of the loop."""


class Runner:
    """Runs one node. `ended` is called once, with the reason, when the node has to restart or stop. `stepped` is called
    after the effects of an event, and of those that it caused.

    Set before `start`: `decisions`, because decisions need `post`.
    """

    decisions: Decisions

    def __init__(
        self,
        node: Node,
        replicated: ReplicatedLog,
        files: StateFiles,
        disk: DiskCalls,
        links: Messenger,
        ended: Callable[[Restart | Stop], None],
        now: Callable[[], float] = lambda: clock_gettime(CLOCK_BOOTTIME),
        stepped: Callable[[], None] = lambda: None,
    ) -> None:
        self.node = node
        self._log = replicated
        self._files = files
        self._disk = disk
        self._links = links
        self._ended = ended
        self._now = now
        self._events: deque[Event] = deque()
        self._is_stepping = False
        self._runs = True
        self._timer: asyncio.TimerHandle | None = None
        self._show_to = 0
        self._next_show: asyncio.Handle | None = None  # the next slice of what is to be shown
        self._stepped = stepped

    def __repr__(self) -> str:
        return f"<Runner {type(self.node.role).__name__} runs={self._runs}>"

    def start(self) -> None:
        """Begin: time passes from now on."""
        self._tick()

    def stop(self) -> None:
        """Carry out no more effects."""
        self._runs = False
        if self._timer is not None:
            self._timer.cancel()

    def post(self, event: Event) -> None:
        """Pass an event to the core, after those that wait, and carry out the effects. No-op after `stop`."""
        if not self._runs:
            return
        self._events.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._events and self._runs:
                for effect in self.node.step(self._now(), self._events.popleft()):
                    if not self._is_carried_out(effect, self._carry_out):
                        break
        finally:
            self._is_stepping = False
        self._stepped()

    def copy(self, link: int, data: Data) -> bool:
        """Append DATA, sync it and acknowledge it, if core and log allow that. Return False if nothing was done.

        This is the path of a message that a producer waits for: between the arrival of its bytes and the
        acknowledgement there is no more than these steps.
        """
        if not self._runs or self._is_stepping or not self.node.may_copy(link, data):
            return False
        try:
            end = self._log.copy(data.offset, data.payload)
        except OSError as error:
            self._failed("Write", error)
            return True
        if end is None:
            return False
        self._links.send(link, Ack(data.epoch, end, end))
        self.post(Copied(link, end, data.committed))
        return True

    def _tick(self) -> None:
        if self._runs:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(TICK_S, self._tick)
            self.decisions.step(self._now())
            self._links.step(loop.time())
            self.post(Tick())

    def _is_carried_out(self, effect: AnyEffect, carry_out: Callable[[AnyEffect], None]) -> bool:
        """Carry out an effect. False: it failed or ended the node, so the effects behind it must not take place."""
        try:
            carry_out(effect)
            return self._runs
        except OSError as error:
            self._failed(type(effect).__name__, error)
        except TermFailed as error:
            self._end(Restart(str(error)))
        except DamagedLogError as error:
            self._end(Stop(f"{error}: start this node with an empty directory"))
        return False

    def _end(self, why: Restart | Stop) -> None:
        self.stop()
        self._ended(why)

    def _carry_out(self, effect: Effect) -> None:  # noqa: C901 - one case for each effect
        match effect:
            case Send(link, message):
                self._links.send(link, message)
            case Write(offset, payload):
                self.post(self._log.write(offset, payload))
            case Show():
                self._show(effect)
            case StoreState(state):
                self._disk.run(lambda: self._files.keep_state(state), lambda error: self._stored(state, error))
            case KeepEpochs(epochs):
                self._files.keep_epochs(epochs)
            case Read() | Swap():
                self.decisions.ask(effect)
            case Connect(node):
                self._links.connect(node)
            case Feed(link, epoch, start):
                self._links.feed(link, epoch, start)
            case Close(link, reason):
                self._links.close(link, reason)
            case SetEnd(end):
                self._log.set_end(end)
                self.post(EndSet(end))
            case BeginTerm(epoch, in_sync):
                log.info("term begins epoch=%d in_sync=%s", epoch, ",".join(in_sync))
                self.post(self._log.begin_term(epoch, in_sync))
            case Restart() | Stop():
                self._end(effect)

    def _show(self, show: Show) -> None:
        """Make the log visible up to `end`. A log that is far behind does so in slices, between other events."""
        self._show_to = show.end
        if self._next_show is not None:
            return
        if self.node.leading is None:
            self._next_show = asyncio.get_running_loop().call_later(SHOW_DELAY_S, self._show_more)
        else:
            self._show_slice(show)

    def _show_slice(self, show: Show) -> None:
        if not self._log.show(show.end):
            self._next_show = asyncio.get_running_loop().call_soon(self._show_more)

    def _show_more(self) -> None:
        self._next_show = None
        if self._runs:
            self._is_carried_out(Show(self._show_to), self._show_slice)

    def _stored(self, state: HaState, error: OSError | None) -> None:
        if not self._runs:
            return
        if error is None:
            self.post(StateStored(state))
        else:
            self._failed("StoreState", error)

    def _failed(self, effect: str, error: OSError) -> None:
        """The disk refused an effect."""
        log.critical("replication failed effect=%s error=%s", effect, error)
        if error.errno in FULL_DISK or isinstance(error, SegmentNotReadyError):
            self._end(Restart(f"the disk takes no writes ({error})"))
        else:
            self._events.clear()  # events from before the failure must have no more effects
            self.post(SyncFailed())
