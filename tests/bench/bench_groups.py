"""Cost of a large group: a thousand members that share a thousand queues, and ten thousand waiting pulls.

    python -m tests.bench.bench_groups
    python -m tests.bench.bench_groups --only leave --members 2000 --leavers 500
    python -m tests.bench.bench_groups --only polls --polls 20000

A fresh `mqbroker` runs on a temporary store; all clients are raw connections in one other process.

    leave   members join by a heartbeat. After NOTIFY_CONSUMER_IDS_CHANGED (40), each member sends
            GET_CONSUMER_LIST_BY_GROUP (38) and takes its share of the queues by average allocation, like Java's
            clients. When all members have settled, some leave at once, by UNREGISTER_CLIENT (35) or by closing the
            connection. A queue has no owner until another member has taken it.
    polls   pulls of empty queues wait: ten per queue, each of another group, repeated when they expire after 15 s. The
            broker idles with them for a while. Then 50 messages per second arrive, and each wakes ten pulls. A wake is
            timed from the send to the response of the pull.

Budgets: no queue without an owner for more than 5 s; idle polls below 5 % of a core, and their wakes below 5 ms (p99).
"""

import argparse
import asyncio
import json
import random
import struct
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

import msgspec
import uvloop

from skylarkmq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData
from skylarkmq.protocol.codes import PullSysFlag, RequestCode
from skylarkmq.protocol.command import JSON, RemotingCommand
from skylarkmq.protocol.filters.tag import subscribe
from skylarkmq.protocol.headers.consumer import ConsumerGroupHeader, UnregisterClientHeader
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.serialize import encode_command
from tests.bench.bench_send import TOPIC, BrokerProcess, call, create_topic, send_frame

GROUP: Final = "bench-group"
SETTLED_S: Final = 2.0
"""Seconds without a change after which the group counts as settled."""
SUSPEND_MS: Final = 15_000
GROUPS: Final = 10
WAKES_PER_S: Final = 50
AT_ONCE: Final = 50
NOTICE: Final = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED

_LENGTHS: Final = struct.Struct(">II")


class Head(msgspec.Struct):
    """The used fields of a response's header."""

    code: int
    opaque: int
    flag: int = 0


class Ids(msgspec.Struct, rename={"ids": "consumerIdList"}):
    """The response to GET_CONSUMER_LIST_BY_GROUP (38)."""

    ids: list[str]


_HEAD: Final = msgspec.json.Decoder(Head)
_IDS: Final = msgspec.json.Decoder(Ids)


class Client(asyncio.Protocol):
    """A connection; whole frames are passed to `on_frame`."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._begun = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # of a socket, which can

    def data_received(self, data: bytes) -> None:
        self._begun += data
        at, begun = 0, self._begun
        while len(begun) - at >= 8:
            length, word = _LENGTHS.unpack_from(begun, at)
            if len(begun) - at < 4 + length:
                break
            body_at = at + 8 + (word & 0xFFFFFF)
            self.on_frame(_HEAD.decode(begun[at + 8 : body_at]), begun[body_at : at + 4 + length])
            at += 4 + length
        del begun[:at]

    def on_frame(self, head: Head, body: bytearray) -> None:
        """Handle a frame."""

    def send(self, command: RemotingCommand, opaque: int = 0) -> None:
        """Write a request."""
        assert self._transport is not None
        command.opaque = opaque
        self._transport.write(encode_command(command))

    def hang_up(self) -> None:
        """Close the connection."""
        assert self._transport is not None
        self._transport.close()


async def connected(clients: list[Client], port: int) -> None:
    """Connect all clients, some at a time."""
    loop = asyncio.get_running_loop()
    for at in range(0, len(clients), AT_ONCE):
        some = clients[at : at + AT_ONCE]
        await asyncio.gather(*(loop.create_connection(partial(_itself, it), "127.0.0.1", port) for it in some))


def _itself(client: Client) -> Client:
    return client


# --------------------------------------------------------------------------------------------------------------- leave


class Ownership:
    """The owner of each queue, and how long each queue had none since `begin`."""

    def __init__(self, queues: int) -> None:
        self.owners = [0] * queues
        self.changed_s = time.monotonic()
        self._lost_s: dict[int, float] = {}
        self.gaps_s: list[float] = []

    def begin(self) -> None:
        self.gaps_s.clear()
        self._lost_s.clear()

    def change(self, before: range, after: range) -> None:
        """Record that a member's queues changed."""
        if before == after:
            return
        now_s = self.changed_s = time.monotonic()
        for queue in after:
            self.owners[queue] += 1
            lost_s = self._lost_s.pop(queue, None)
            if lost_s is not None:
                self.gaps_s.append(now_s - lost_s)
        for queue in before:
            self.owners[queue] -= 1
            if not self.owners[queue]:
                self._lost_s[queue] = now_s

    @property
    def is_settled(self) -> bool:
        """Whether every queue has one owner."""
        return all(owners == 1 for owners in self.owners)


class Member(Client):
    """One member of the group."""

    def __init__(self, number: int, ownership: Ownership) -> None:
        super().__init__()
        self.client_id = f"10.0.{number // 256}.{number % 256}@{number:05}#{random.getrandbits(48)}"
        self._ownership = ownership
        self._queues = range(0)
        self._is_asking = False
        self._is_stale = False
        self.requests = 0
        self.notices = 0

    def beat(self) -> None:
        data = ConsumerData(group_name=GROUP, subscription_data_set=[subscribe(TOPIC, "*", 1)])
        body = HeartbeatData(self.client_id, [], [data]).encode()
        self.send(RemotingCommand.request(RequestCode.HEART_BEAT, body=body))

    def on_frame(self, head: Head, body: bytearray) -> None:
        if head.code == NOTICE and not head.flag & 1:
            self.notices += 1
            self._is_stale = True
        elif body:
            self._is_asking = False
            self._own(average(sorted(_IDS.decode(body).ids), self.client_id, len(self._ownership.owners)))
        if self._is_stale and not self._is_asking:
            self._is_stale, self._is_asking = False, True
            self.requests += 1
            self.send(RemotingCommand.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader(GROUP)))

    def leave(self, *, unregisters: bool) -> None:
        self._own(range(0))
        self._is_asking = True  # no further requests
        if unregisters:
            header = UnregisterClientHeader(self.client_id, consumer_group=GROUP)
            self.send(RemotingCommand.request(RequestCode.UNREGISTER_CLIENT, header))
        self.hang_up()

    def _own(self, queues: range) -> None:
        self._ownership.change(self._queues, queues)
        self._queues = queues


def average(ids: list[str], own: str, queues: int) -> range:
    """Return a member's share by average allocation."""
    index, size, more = ids.index(own), queues // len(ids), queues % len(ids)
    begin = index * size + min(index, more)
    return range(begin, begin + size + (index < more))


async def leave(broker: BrokerProcess, options: argparse.Namespace) -> dict[str, object]:
    """Join, settle, leave, settle."""
    ownership = Ownership(options.queues)
    members = [Member(number, ownership) for number in range(options.members)]
    joined, cpu_s = time.monotonic(), broker.cpu_s()
    await connected(list(members), broker.port)
    for member in members:
        member.beat()
    await wait_settled(ownership)
    figures: dict[str, object] = {
        "members": options.members,
        "queues": options.queues,
        "settled_after_join_s": round(ownership.changed_s - joined, 2),
        "broker_cpu_s_of_join": round(broker.cpu_s() - cpu_s, 2),
        "notices_of_join": sum(member.notices for member in members),
    }
    leavers = random.sample(members, min(options.leavers, len(members) - 1))
    stayers = [member for member in members if member not in leavers]
    requests, notices = (sum(getattr(member, what) for member in stayers) for what in ("requests", "notices"))
    ownership.begin()
    left, cpu_s = time.monotonic(), broker.cpu_s()
    for number, member in enumerate(leavers):
        member.leave(unregisters=number % 2 == 0)
    await wait_settled(ownership)
    gaps_s = ownership.gaps_s
    figures |= {
        "leavers": len(leavers),
        "settled_after_leave_s": round(ownership.changed_s - left, 2),
        "longest_unowned_s": round(max(gaps_s, default=0), 3),
        "queues_unowned_meanwhile": len(gaps_s),
        "broker_cpu_s_of_leave": round(broker.cpu_s() - cpu_s, 2),
        "notices_of_leave": sum(member.notices for member in stayers) - notices,
        "requests_of_leave": sum(member.requests for member in stayers) - requests,
    }
    for member in stayers:
        member.hang_up()
    return figures


async def wait_settled(ownership: Ownership, timeout_s: float = 120) -> None:
    """Wait until every queue has had one owner for a while."""
    deadline = time.monotonic() + timeout_s
    while not ownership.is_settled or time.monotonic() - ownership.changed_s < SETTLED_S:
        if time.monotonic() > deadline:
            raise SystemExit(f"not settled within {timeout_s:g} s: {ownership.owners.count(0)} queues without owner")
        await asyncio.sleep(0.05)


# --------------------------------------------------------------------------------------------------------------- polls


class Poller(Client):
    """Pulls of one group, one per queue; `woken` is called with the queue of each response that has a message."""

    def __init__(self, group: str, queues: range, woken: Callable[[int], None]) -> None:
        super().__init__()
        self._group = group
        self._queues = queues
        self._woken = woken
        self._offsets = dict.fromkeys(queues, 0)

    def pull_all(self) -> None:
        for queue in self._queues:
            self._pull(queue)

    def on_frame(self, head: Head, body: bytearray) -> None:
        if body:
            self._woken(head.opaque)
            self._offsets[head.opaque] += 1
        self._pull(head.opaque)

    def _pull(self, queue: int) -> None:
        header = PullMessageHeader(
            consumer_group=self._group,
            topic=TOPIC,
            queue_id=queue,
            queue_offset=self._offsets[queue],
            max_msg_nums=32,
            sys_flag=PullSysFlag.SUSPEND | PullSysFlag.SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=SUSPEND_MS,
            sub_version=0,
            subscription="*",
        )
        self.send(RemotingCommand.request(RequestCode.PULL_MESSAGE, header), opaque=queue)


async def polls(broker: BrokerProcess, options: argparse.Namespace) -> dict[str, object]:
    """Park, wait, wake."""
    queues = options.polls // GROUPS
    begun_s: dict[int, float] = {}
    waits_ms: list[float] = []

    def woken(queue: int) -> None:
        if queue in begun_s:  # only messages of this phase
            waits_ms.append((time.monotonic() - begun_s[queue]) * 1000)

    pollers = [
        Poller(f"bench-{group}", range(at, min(at + GROUPS, queues)), woken)
        for group in range(GROUPS)
        for at in range(0, queues, GROUPS)
    ]
    await connected(list(pollers), broker.port)
    spread_s = SUSPEND_MS / 1000 / len(pollers)
    for poller in pollers:  # evenly spread, as in the long run
        poller.pull_all()
        await asyncio.sleep(spread_s)
    cpu_s, began_s = broker.cpu_s(), time.monotonic()
    await asyncio.sleep(options.seconds)
    idle_percent = (broker.cpu_s() - cpu_s) / (time.monotonic() - began_s) * 100
    sender = Client()
    await connected([sender], broker.port)
    woken_queues = random.sample(range(1, queues), min(options.wakes, queues - 1))  # queue 0 had a message before
    for queue in woken_queues:
        begun_s[queue] = time.monotonic()
        assert sender._transport is not None
        sender._transport.write(send_frame(0, queue, b"x" * 100, JSON))
        await asyncio.sleep(1 / WAKES_PER_S)
    await asyncio.sleep(1)
    cuts = quantiles(waits_ms, n=100)
    return {
        "polls": GROUPS * queues,
        "poll_connections": len(pollers),
        "idle_cpu_percent": round(idle_percent, 2),
        "wakes": len(waits_ms),
        "wake_p50_ms": round(cuts[49], 2),
        "wake_p99_ms": round(cuts[98], 2),
        "wake_max_ms": round(max(waits_ms), 2),
    }


PARTS: Final[dict[str, Callable[[BrokerProcess, argparse.Namespace], Any]]] = {"leave": leave, "polls": polls}


def main() -> None:
    """Measure, and print the figures."""
    options = parse_arguments()
    figures: dict[str, object] = {}
    for name in options.only:
        with tempfile.TemporaryDirectory(prefix="bench-groups-") as directory:
            broker = BrokerProcess(Path(directory))
            try:
                call(broker.port, create_topic(options.queues if name == "leave" else options.polls // GROUPS))
                figures |= uvloop.run(PARTS[name](broker, options))
            finally:
                broker.stop()
    print(json.dumps(figures) if options.json else "\n".join(f"{name:28} {value}" for name, value in figures.items()))


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(PARTS), default=sorted(PARTS))
    parser.add_argument("--members", type=at_least(2), default=1_000)
    parser.add_argument("--queues", type=at_least(1), default=1_000)
    parser.add_argument("--leavers", type=at_least(1), default=100, help="at most all members but one")
    parser.add_argument("--polls", type=at_least(2 * GROUPS), default=10_000)
    parser.add_argument("--seconds", type=float, default=30, help="how long the broker idles with its polls")
    parser.add_argument("--wakes", type=at_least(1), default=500, help="messages that wake ten polls each, one a queue")
    parser.add_argument("--json", action="store_true", help="figures as one JSON object")
    return parser.parse_args()


def at_least(least: int) -> Callable[[str], int]:
    """Return the parser of a whole number that is at least `least`."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, not {value}")
        return value

    return number


if __name__ == "__main__":
    main()
