"""What a node's owner passes to the core (events), and what the core asks for (effects).

Effects are carried out in order. Those that reach a disk or the store of decisions finish later, and each then gives an
event: StoreState gives StateStored, SetEnd gives EndSet, BeginTerm and Write give Written and later Synced, Read gives
RecordRead or ReadFailed, Swap gives Swapped, SwapRefused or SwapUnknown, Connect gives Linked or LinkFailed.

DATA that continues a synced log may be acknowledged without Write: see Copied.

A link is one connection, named by a number that its owner chooses and never uses again. A link that the core closed
gives no further event. After SetEnd no Synced comes for bytes that it removed.
"""

from typing import TypeAlias

import msgspec

from skylarkmq.broker.ha.core.epochs import Epoch, EpochHistory
from skylarkmq.broker.ha.core.messages import Message, Number, Promise
from skylarkmq.broker.ha.core.record import GroupRecord


class HaState(msgspec.Struct, frozen=True, rename="camel"):
    """The file `haState`. `committed`: an offset up to which the log is known to be committed.

    A store that founds a group with messages that it acknowledged alone has to start with its end as `committed`.
    """

    promised: Promise
    store_id: str
    committed: Number


# Events


class Tick(msgspec.Struct, frozen=True):
    """Time has passed. At least every 0.1 s."""


class StateStored(msgspec.Struct, frozen=True):
    """`haState` has this content on the disk."""

    state: HaState


class Written(msgspec.Struct, frozen=True):
    """The log was extended to `end`, in the page cache. `epochs`: those whose first record is in the new bytes."""

    end: int
    epochs: tuple[Epoch, ...] = ()


class Synced(msgspec.Struct, frozen=True):
    """The log is on the disk up to `end`."""

    end: int


class SyncFailed(msgspec.Struct, frozen=True):
    """A sync or write of the log or of `haState` failed: the content of the disk is unknown."""


class EndSet(msgspec.Struct, frozen=True):
    """The log now ends at `end`, on the disk."""

    end: int


class StartSet(msgspec.Struct, frozen=True):
    """Retention removed the log's bytes before `start`."""

    start: int


class RecordRead(msgspec.Struct, frozen=True):
    """A linearizable read: the record at this revision, or None."""

    record: GroupRecord | None
    revision: int


class ReadFailed(msgspec.Struct, frozen=True):
    """The store of decisions did not respond."""


class Swapped(msgspec.Struct, frozen=True):
    """The swap took effect and made this revision."""

    revision: int


class SwapRefused(msgspec.Struct, frozen=True):
    """The record has another revision than expected, or the key that had to be absent exists."""


class SwapUnknown(msgspec.Struct, frozen=True):
    """No response: the swap took effect, did not, or still may."""


class Life(msgspec.Struct, frozen=True):
    """A node's sign of life. `leading`: the epoch in which it leads; None for a follower."""

    store_id: str
    leading: int | None


class LifeSeen(msgspec.Struct, frozen=True):
    """The store of decisions has this sign of life for a node; None: it expired."""

    node: str
    life: Life | None


class LifeRenewed(msgspec.Struct, frozen=True):
    """This node's own sign of life was renewed by a request sent at `asked_at`."""

    asked_at: float


class Reached(msgspec.Struct, frozen=True):
    """A member responded to a ping."""

    node: str


class Linked(msgspec.Struct, frozen=True):
    """The connection that this node asked for is established."""

    link: int
    node: str


class LinkFailed(msgspec.Struct, frozen=True):
    """`refused`: the machine is there, and no process listens."""

    node: str
    refused: bool


class Unlinked(msgspec.Struct, frozen=True):
    """A link ended."""

    link: int


class Received(msgspec.Struct, frozen=True):
    """A message arrived."""

    link: int
    message: Message


class Copied(msgspec.Struct, frozen=True):
    """`Node.may_copy` allowed it: DATA of a link, up to `end`, was appended, synced, and acknowledged on this link.

    The bytes begin no epoch. `committed`: what DATA had.
    """

    link: int
    end: int
    committed: int


class Heard(msgspec.Struct, frozen=True):
    """Bytes arrived that are no whole message yet, or this node does not read from the link now: its disk is slow."""

    link: int


Event: TypeAlias = (
    Tick | StateStored | Written | Synced | SyncFailed | EndSet | StartSet | RecordRead | ReadFailed | Swapped
    | SwapRefused | SwapUnknown | LifeSeen | LifeRenewed | Reached | Linked | LinkFailed | Unlinked | Received
    | Copied | Heard
)  # fmt: skip


# Effects


class StoreState(msgspec.Struct, frozen=True):
    """Replace `haState`."""

    state: HaState


class KeepEpochs(msgspec.Struct, frozen=True):
    """Replace `epochFileCheckpoint`, before the effects that follow.

    A recovery takes the epochs that begin before the log's first byte from this file, and all others from the log.
    """

    epochs: EpochHistory


class Read(msgspec.Struct, frozen=True):
    """Read the record, linearizably."""


class Swap(msgspec.Struct, frozen=True):
    """Write the record if it has this revision (0: if no record exists) and the node `absent` has no sign of life."""

    record: GroupRecord
    revision: int
    absent: str | None


class Connect(msgspec.Struct, frozen=True):
    """Connect to a member."""

    node: str


class Send(msgspec.Struct, frozen=True):
    """Send a message."""

    link: int
    message: Message


class Feed(msgspec.Struct, frozen=True):
    """Send the log from `start` on over this link, in DATA of this epoch, and all that is appended later."""

    link: int
    epoch: int
    start: int


class Close(msgspec.Struct, frozen=True):
    """Close a link, after what was sent before."""

    link: int
    reason: str


class Write(msgspec.Struct, frozen=True):
    """Append received bytes to the log, at this offset, which is its end. A view is valid until this is carried out."""

    offset: int
    payload: bytes | memoryview


class SetEnd(msgspec.Struct, frozen=True):
    """Truncate the log to `end`; an empty log begins there instead."""

    end: int


class BeginTerm(msgspec.Struct, frozen=True):
    """Append the epoch record, and serve as the leader once it is committed."""

    epoch: int
    in_sync: tuple[str, ...]


class Show(msgspec.Struct, frozen=True):
    """Acknowledge the log up to `end` and make it visible: it is committed (with `acks` "leader": synced here)."""

    end: int


class Restart(msgspec.Struct, frozen=True):
    """End this process's work on the store and start again as a follower. `new_store`: with a new store id."""

    reason: str
    new_store: bool = False


class Stop(msgspec.Struct, frozen=True):
    """An operator has to act."""

    reason: str


Effect: TypeAlias = (
    StoreState | KeepEpochs | Read | Swap | Connect | Send | Feed | Close | Write | SetEnd | BeginTerm | Show | Restart
    | Stop
)  # fmt: skip
