"""One node of a group without disks and network: a test passes events, and looks at the effects.

The group is `g`, with nodes n1, n2, n3 and their stores a, b, c. The driven node is n1 with store a. Its log has
`LOG_END` bytes of epoch 1, unless a test passes another one.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from skylarkmq.broker.ha.core.epochs import Epoch, EpochHistory
from skylarkmq.broker.ha.core.events import (
    BeginTerm,
    Close,
    Connect,
    Effect,
    Event,
    HaState,
    Life,
    LifeRenewed,
    LifeSeen,
    Linked,
    Reached,
    Read,
    Received,
    RecordRead,
    Send,
    StateStored,
    StoreState,
    Swap,
    Swapped,
    Synced,
    Tick,
    Unlinked,
    Written,
)
from skylarkmq.broker.ha.core.identity import Identity
from skylarkmq.broker.ha.core.local import Log
from skylarkmq.broker.ha.core.messages import Ack, Hello, Message, Welcome
from skylarkmq.broker.ha.core.node import Node
from skylarkmq.broker.ha.core.record import GroupRecord, Member
from skylarkmq.broker.ha.core.timings import Timings

LOG_END: Final = 1000
HISTORY: Final = EpochHistory((Epoch(1, 0),))
MEMBERS: Final = {"n1": Member("a"), "n2": Member("b"), "n3": Member("c")}
TIMINGS: Final = Timings()

Kind = TypeVar("Kind")


def record(epoch: int = 1, leader: str = "n2", in_sync: str = "abc", **fields: Any) -> GroupRecord:
    """Return a record of the group; `in_sync` has one letter for each store."""
    given: dict[str, Any] = {"in_sync": tuple(in_sync), "members": MEMBERS, "min": 2} | fields
    return GroupRecord(epoch=epoch, leader=leader, **given)


def hello(store_id: str = "b", node: str = "n2", **fields: Any) -> Hello:
    """Return the HELLO of n2, whose log equals that of a leader of epoch 2."""
    given: dict[str, Any] = {
        "group": "g",
        "promised": 1,
        "epochs": HISTORY,
        "start": 0,
        "end": LOG_END,
        "format": 1,
    } | fields
    return Hello(node=node, store_id=store_id, **given)


class Driven:
    """A node, its clock, and the effects of its last step."""

    def __init__(
        self,
        state: HaState | None = None,
        log: Log | None = None,
        founds: Callable[[str], GroupRecord] | None = None,
        *,
        has_static_leader: bool = False,
    ) -> None:
        self.now = 100.0
        me = Identity("g", "n1", "run", TIMINGS, founds, has_static_leader=has_static_leader)
        self.node = Node(me, state or HaState(1, "a", 0), log or Log(0, LOG_END, HISTORY), self.now)
        self.effects: list[Effect] = []
        self.revision = 0

    def step(self, event: Event) -> list[Effect]:
        """Pass one event; return its effects."""
        self.effects = self.node.step(self.now, event)
        return self.effects

    def run(self, seconds: float, *events: Event) -> list[Effect]:
        """Let time pass in ticks of 0.1 s, with these events before each; return all effects."""
        effects: list[Effect] = []
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            for event in (*events, Tick()):
                effects += self.step(event)
        self.effects = effects
        return effects

    def healthy(self, seconds: float) -> list[Effect]:
        """Let time pass; the other nodes and the store of decisions respond."""
        effects: list[Effect] = []
        for _ in range(round(seconds * 10)):
            effects += self.run(0.1, LifeRenewed(self.now), Reached("n2"), Reached("n3"))
        return effects

    def until(self, kind: type[Effect], *events: Event) -> float:
        """Let time pass, with reads of the record that show no change, until an effect of this kind comes.

        Return the seconds it took.
        """
        began = self.now
        while not self.all(kind):
            assert self.now - began < 60, f"no {kind.__name__}"
            self.run(0.1, *events)
            if self.all(Read):
                self.read_again()
        return self.now - began

    def relink(self, link: int) -> list[Effect]:
        """End the link, if there is one, and establish the one that the node asks for."""
        self.step(Unlinked(link - 1))
        self.run(0.6)
        return self.step(Linked(link, self.the(Connect).node))

    def receive(self, link: int, message: Message) -> list[Effect]:
        """Pass a message."""
        return self.step(Received(link, message))

    def read(self, value: GroupRecord | None) -> list[Effect]:
        """Respond to a read with this record, at a new revision."""
        self.revision += 1
        return self.step(RecordRead(value, self.revision))

    def read_again(self) -> list[Effect]:
        """Respond to a read with the revision that the node has."""
        return self.step(RecordRead(self.node.decisions.record, self.revision))

    def swapped(self) -> list[Effect]:
        """Respond to a swap with success."""
        self.revision += 1
        return self.step(Swapped(self.revision))

    def took_effect(self, swap: Swap) -> list[Effect]:
        """Respond to a read after this swap has taken effect."""
        return self.read(swap.record)

    def store_state(self) -> list[Effect]:
        """Carry out the StoreState of the last step."""
        return self.step(StateStored(self.the(StoreState).state))

    def all(self, kind: type[Kind]) -> list[Kind]:
        """Return the effects of one kind."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def the(self, kind: type[Kind]) -> Kind:
        """Return the only effect of one kind."""
        (effect,) = self.all(kind)
        return effect

    def sent(self, kind: type[Kind]) -> list[Kind]:
        """Return the messages of one kind that the last step sent."""
        return [effect.message for effect in self.all(Send) if isinstance(effect.message, kind)]

    def closed(self) -> dict[int, str]:
        """Return the links that the last step closed, with the reasons."""
        return {effect.link: effect.reason for effect in self.all(Close)}


def follower(value: GroupRecord | None = None, **arguments: Any) -> Driven:
    """Return a node that has read the record."""
    driven = Driven(**arguments)
    driven.run(0.1)
    driven.read(value or record())
    return driven


def linked(**arguments: Any) -> Driven:
    """Return a follower whose HELLO was sent to n2 over link 1."""
    driven = follower(**arguments)
    driven.run(0.1)
    assert driven.the(Connect).node == "n2"
    driven.step(Linked(1, "n2"))
    return driven


def following(epoch: int = 1, **arguments: Any) -> Driven:
    """Return a follower that has adopted the WELCOME of this epoch, at its log's end."""
    driven = linked(**arguments)
    local = driven.node.local
    driven.receive(1, Welcome(epoch, local.written, 0, local.epochs))
    if epoch > 1:
        driven.store_state()
    assert driven.sent(Ack) == [Ack(epoch, local.written, local.written)]
    return driven


def campaigning(value: GroupRecord | None = None, **arguments: Any) -> Driven:
    """Return a node whose record has no leader, after its read: its promise is about to be stored."""
    driven = follower(value or record(leader=""), **arguments)
    driven.run(1, Reached("n2"), Reached("n3"))
    driven.read_again()
    return driven


def leading(value: GroupRecord | None = None, **arguments: Any) -> Driven:
    """Return the leader of epoch 2: its epoch record is at LOG_END, 8 bytes long, and synced."""
    driven = campaigning(value, **arguments)
    driven.store_state()
    driven.swapped()
    written(driven, driven.the(BeginTerm).epoch)
    for node, store_id in (("n2", "b"), ("n3", "c")):
        driven.step(LifeSeen(node, Life(store_id, None)))
    return driven


def written(driven: Driven, epoch: int) -> None:
    """Write and sync the epoch record."""
    at = driven.node.local.written
    driven.step(Written(at + 8, (Epoch(epoch, at),)))
    driven.step(Synced(at + 8))


def welcomed(driven: Driven, link: int, store_id: str = "b", node: str = "n2") -> None:
    """Let a follower with an equal log link to the leader, and acknowledge where its data begin."""
    driven.receive(link, hello(store_id, node))
    start = driven.sent(Welcome)[0].start
    driven.receive(link, Ack(driven.node.leading or 0, start, start))


def acknowledged(driven: Driven, link: int, end: int) -> list[Effect]:
    """Let a follower acknowledge."""
    return driven.receive(link, Ack(driven.node.leading or 0, end, end))
