"""The decisions of a group without a store of decisions (`haStore=none`): an operator decides which node
leads.

The first node of `haPeers` leads. It keeps the record of the group in a file of its own store, `haRecord`, and changes
it as it would change the record in a store of decisions: one request at a time, and durable before it takes effect. The
other nodes read the leader from their settings; they never read the record, and never begin a term.

To let another node lead, an operator stops the old leader for good, copies its `haRecord` to a node whose store is in
`inSync`, and names that node first in `haPeers` on all nodes. A record that names another node as leader counts as a
resignation of that node. A node that is not in the set does not begin a term: it may lack acknowledged messages.

Copies of one record may lead to two leaders, of which one is not the newest: an operator copied the record, or restored
the directory of a leader from a backup. Three measures keep their logs apart:

- Each term leaves out a random number of epochs. So terms that begin with copies of one record have different epochs,
  and a follower of the one does not take the other for it. A leader that takes over leaves out more epochs than a
  leader that restarts, so an older leader that is started again has the lower epoch.
- A follower gives up its own `haRecord` before it promises an epoch above it (`FollowerFiles`).
- A leader stops when a node with a higher promise links to it (`core.leader`).

`min` and `acks` of the record follow the settings of the leader: the swap of each term writes them.

Source: docs/reference/wire.md, "Replication link".
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import msgspec

from skylarkmq.broker.base.errors import DaemonEnded
from skylarkmq.broker.ha.core.epochs import EpochHistory
from skylarkmq.broker.ha.core.events import (
    Event,
    LifeRenewed,
    Reached,
    Read,
    RecordRead,
    Swap,
    Swapped,
    SwapRefused,
    SwapUnknown,
)
from skylarkmq.broker.ha.core.record import GroupRecord
from skylarkmq.broker.ha.link.threads import DiskCalls

log = logging.getLogger(__name__)

FOLLOWERS_REVISION: Final = 1

_RECORD_IS_MISSING: Final = (
    "the store belongs to a group, and its record is not here: copy haRecord from the former leader, name "
    "the former leader first in haPeers, or start without haPeers"
)
MAX_SKIPPED_EPOCHS: Final = 1 << 12
"""A leader leaves out from 1 to so many epochs before its term."""
TAKE_OVER_EPOCHS: Final = 1 << 16
"""A leader that takes over leaves out so many epochs more: an older leader would need 16 restarts to pass it."""
_NEWER_RECORD: Final = "copy haRecord from the node that led last, or name that node first in haPeers"


class SkippedEpochs(NamedTuple):
    """How many epochs to leave out before a term."""

    by_restart: int  # this node led before
    by_take_over: int  # another node led before


def random_skips(random_below: Callable[[int], int]) -> SkippedEpochs:
    """Return the numbers for one start. `random_below` returns a random number below its argument."""
    skipped = 1 + random_below(MAX_SKIPPED_EPOCHS)
    return SkippedEpochs(skipped, TAKE_OVER_EPOCHS + skipped)


class Revised(msgspec.Struct, frozen=True, rename="camel"):
    """The content of `haRecord`."""

    revision: int
    record: GroupRecord


_decode: Final = msgspec.json.Decoder(Revised).decode


def encode_revised(revised: Revised) -> bytes:
    """Return the content of the file."""
    return msgspec.json.encode(revised, order="sorted") + b"\n"


def decode_revised(content: bytes) -> Revised:
    """Return the record of a file. Raises ValueError if it has another shape."""
    return _decode(content)


def load_revised(file: "RecordFile") -> Revised | None:
    """Return the record of a file; None without a file. Raises OSError, and DaemonEnded if it is damaged."""
    content = file.load()
    try:
        return None if content is None else decode_revised(content)
    except msgspec.MsgspecError as error:
        advice = "restore it, or let another node of the group lead"
        raise DaemonEnded(f"haRecord is damaged ({error}): {advice}", may_restart=False) from None


def problem_of_leader(revised: Revised | None, node: str, store_id: str, epochs: EpochHistory) -> str | None:
    """Return why a node with this store and this log may not lead, and the next step; None if it may.

    `revised`: its `haRecord`; None without that file.
    """
    if revised is None:
        return _RECORD_IS_MISSING if epochs.entries else None
    record = revised.record
    if record.epoch < epochs.last:
        return f"haRecord has epoch {record.epoch}, and the log has epoch {epochs.last}: {_NEWER_RECORD}"
    if store_id in record.in_sync:
        return None
    reason = f"store {store_id} is not in the set of the group's record (inSync of haRecord)"
    if nodes := [name for name in record.others_in_sync(store_id) if name != node]:
        return f"{reason}: copy haRecord to a node of the set ({', '.join(nodes)}), and name it first in haPeers"
    return f"{reason}, and neither is a store of another node: start without haPeers to serve the messages on this disk"


class RecordFile(Protocol):
    """A small file that is replaced as a whole."""

    def load(self) -> bytes | None:
        """Return the content; None without a file. Raises OSError."""

    def save(self, data: bytes) -> None:
        """Replace the content; blocks. Raises OSError."""


class LeaderDecisions:
    """The record on the disk of the node that leads. The file is written in a thread.

    `minimum` and `acks` are the leader's settings, which replace `min` and `acks` of the record. Raises OSError, and
    DaemonEnded for a damaged file.
    """

    def __init__(
        self,
        node: str,
        file: RecordFile,
        disk: DiskCalls,
        post: Callable[[Event], None],
        *,
        minimum: int,
        acks: str,
        skipped: SkippedEpochs,
    ) -> None:
        self._node = node
        self._minimum = minimum
        self._acks = acks
        self._file = file
        self._post = post
        self._disk = disk
        self._current = self._former = load_revised(file)
        self._skipped = 0
        if self._former is not None:
            leader = self._former.record.leader
            self._skipped = skipped.by_restart if leader == node else skipped.by_take_over
            if leader not in ("", node):
                log.warning("this node takes over the group's record node=%s former_leader=%s", node, leader)

    def __repr__(self) -> str:
        return f"<LeaderDecisions {self._current!r:.200}>"

    @property
    def record(self) -> GroupRecord | None:
        """The record as it is on the disk."""
        return None if self._current is None else self._current.record

    def ask(self, request: Read | Swap) -> None:
        """Carry out a request; exactly one event follows, later."""
        if isinstance(request, Read):
            asyncio.get_running_loop().call_soon(self._post, self._seen())
            return
        current = self._current
        if request.revision != (0 if current is None else current.revision) or request.absent is not None:
            asyncio.get_running_loop().call_soon(self._post, SwapRefused())
            return
        revised = Revised(request.revision + 1, request.record)
        self._disk.run(lambda: self._file.save(encode_revised(revised)), lambda error: self._saved(revised, error))

    def step(self, now: float) -> None:
        """Time has passed: the record is on this machine, so the sign of life is always renewed. An operator decided
        that this node leads, so it need not reach the other members first."""
        self._post(LifeRenewed(now))
        for node in () if self._current is None else self._current.record.members:
            if node != self._node:
                self._post(Reached(node))

    def _seen(self) -> RecordRead:
        if self._current is None:
            return RecordRead(None, 0)
        record = msgspec.structs.replace(self._current.record, min=self._minimum, acks=self._acks)
        if self._current is self._former:  # this process has not begun a term
            leader = self._node if record.leader == self._node else ""
            record = msgspec.structs.replace(record, leader=leader, epoch=record.epoch + self._skipped)
        return RecordRead(record, self._current.revision)

    def _saved(self, revised: Revised, error: OSError | None) -> None:
        if error is None:
            self._current = revised
            self._post(Swapped(revised.revision))
        else:
            log.error("the group's record cannot be written error=%s", error)
            self._post(SwapUnknown())


class FollowerDecisions:
    """The follower's view: a record that names the leader, with an empty set."""

    def __init__(self, leader: str, minimum: int, post: Callable[[Event], None]) -> None:
        self._record = GroupRecord(epoch=0, leader=leader, in_sync=(), members={}, min=minimum)
        self._post = post

    def __repr__(self) -> str:
        return f"<FollowerDecisions leader={self._record.leader}>"

    def ask(self, request: Read | Swap) -> None:
        """Respond with the record; a follower that is not in the set never swaps."""
        if isinstance(request, Read):
            asyncio.get_running_loop().call_soon(self._post, RecordRead(self._record, FOLLOWERS_REVISION))
        else:
            asyncio.get_running_loop().call_soon(self._post, SwapRefused())

    def step(self, now: float) -> None:
        """Nothing is due."""
