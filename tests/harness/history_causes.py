"""Causes of duplicates and of offsets that go back: the faults shortly before.

A cause explains events until `LASTS_NS` after its end: brokers take a while to detect lost clients, and the members of
a group to rebalance. The first applicable cause is counted:

    failed       the handler had failed with the message before (a member that is not orderly keeps a message that it
                 could not send back, but that needs one of the causes below)
    stored       the message is in the topic more than once (see below)
    killed       a member of the group was killed, or paused so long that it expired
    broker       the broker was killed, stopped or paused
    members      a member joined or left the group
    trouble      the SDK warned about a connection, a lock or a commit

Why a message is in a topic more than once: before its acknowledgment a fault hit the broker or the connection, so the
SDK sent it again (`broker`, `trouble`); while it waited for its time or its next delivery, or for the end of its
transaction, or soon after, the broker was killed (`crash`: a clean stop repeats nothing); or the response to its
negative acknowledgment was lost.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tests.harness.history_events import TO_DEAD_LETTERS, Offsets, Ready, Threw, Warned
from tests.harness.history_view import DEAD, RETRY, SECOND_NS, Call, Finding, History, Position

LASTS_NS: Final = 6 * SECOND_NS
MARGIN_NS: Final = SECOND_NS
WAITS_NS: Final = 60 * SECOND_NS
FOREVER_NS: Final = 1 << 63
BEGINNINGS: Final = frozenset({"killing", "stopping", "pausing", "ended"})
ENDS: Final = frozenset({"ready", "resumed"})
CRASHES: Final = frozenset({"killing", "ended"})
TO_A_MEMBER: Final = {"spawned": "members", "stopping": "members", "stopped": "members"}


class Causes:
    """Times of the faults: sorted, by (cause, target); the target "" is the broker."""

    def __init__(self, history: History) -> None:
        self._times: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for fault in history.faults:
            if fault.state in BEGINNINGS | ENDS:
                self._times["broker", ""].append(fault.at)
            if fault.state in CRASHES:
                self._times["crash", ""].append(fault.at)
        groups = {process.name: process.group for process in history.processes}
        for process in history.processes:
            cause = TO_A_MEMBER.get(process.state, "killed")
            self._times[cause, groups[process.name]].append(process.at)
        for ready in history.of(Ready):
            self._times["members", groups.get(ready.recorder, "")].append(ready.at)
        for warning in history.of(Warned):
            self._times["trouble", groups.get(warning.recorder, "")].append(warning.at)
            self._times["trouble", warning.recorder].append(warning.at)
        for times in self._times.values():
            times.sort()

    def between(self, since: int, until: int, *pairs: tuple[str, str]) -> str:
        """Return the first of these causes that started in that time; "" if none did."""
        for cause, whom in pairs:
            times = self._times[cause, whom]
            at = bisect_left(times, since)
            if at < len(times) and times[at] <= until:
                return cause
        return ""

    def of_group(self, since: int, until: int, group: str) -> str:
        """Return the cause why a group received a message again."""
        pairs = ("killed", group), ("broker", ""), ("members", group), ("trouble", group)
        return self.between(since - LASTS_NS, until, *pairs)


class Duplicate(NamedTuple):
    """A duplicate in a topic or a group. An unexplained one has the cause ""."""

    topic_or_group: str
    cause: str
    text: str
    at: int


def duplicates(history: History) -> Iterator[Duplicate]:
    """Yield every duplicate, not counting the first copy."""
    causes = Causes(history)
    for name, calls in history.calls_of.items():
        yield from _deliveries(history, causes, name, calls)
    yield from _records(history, causes)


def _deliveries(history: History, causes: Causes, group: str, calls: Iterable[Call]) -> Iterator[Duplicate]:
    first: dict[str, Call] = {}
    last: dict[Position, Call] = {}
    for call in calls:
        got = call.got
        before = last.get(call.position)
        if before is not None:
            cause = causes.of_group(before.got.at, got.at, group)
            if before.threw and (cause or history.groups[group].orderly):
                cause = "failed"
            yield Duplicate(group, cause, f"{call}, again after {got.at - before.got.at} ns", got.at)
        elif got.id in first:
            cause = "failed" if got.retried else "stored"
            yield Duplicate(group, cause, str(call), got.at)
        first.setdefault(got.id, call)
        last[call.position] = call


def _records(history: History, causes: Causes) -> Iterator[Duplicate]:
    """Yield extra records: each message has one record in its topic, and one per failure in a retry topic."""
    copies: defaultdict[tuple[str, str, int], list[int]] = defaultdict(list)
    for record in history.stored.values():
        copies[record.topic, record.id, record.times].append(record.store_ms)
    for (topic, message_id, times), store_ms in copies.items():
        for _ in store_ms[1:]:
            if topic.startswith((RETRY, DEAD)):
                cause = _why_back_twice(history, causes, topic, message_id, times)
            else:
                cause = _why_stored_twice(history, causes, message_id)
            yield Duplicate(topic, cause, f"{message_id} times={times} is stored {len(store_ms)} times in {topic}", 0)


def _why_back_twice(history: History, causes: Causes, topic: str, message_id: str, times: int) -> str:
    group = topic.removeprefix(RETRY).removeprefix(DEAD)
    most = history.groups[group].max_times
    # A message that its handler sends to the dead letters at once counts as redelivered as often as the group allows.
    ends = [
        call.end
        for call in history.calls_of[group]
        if call.got.id == message_id
        and isinstance(call.end, Threw)
        and (call.got.times == times - 1 or (call.end.level == TO_DEAD_LETTERS and most == times - 1))
    ]
    if len(ends) > 1:
        return "failed"
    at = ends[0].at if ends else 0
    return causes.of_group(at, at + LASTS_NS, group) or causes.between(at, at + WAITS_NS, ("crash", ""))


def _why_stored_twice(history: History, causes: Causes, message_id: str) -> str:
    sending = history.sending.get(message_id)
    if sending is None:
        return ""
    sent = history.sent.get(message_id)
    until = sent.at if sent is not None else sending.at + LASTS_NS
    cause = causes.between(sending.at, until, ("broker", ""), ("trouble", sending.recorder))
    if not cause and (sending.transaction or sending.not_before_ms):
        cause = causes.between(sending.at, sending.at + WAITS_NS, ("crash", ""))
    return cause


def explained(history: History) -> Iterator[Finding]:
    """No message comes twice without a cause."""
    for one in duplicates(history):
        if not one.cause:
            yield Finding("explained", f"twice without a failure in {one.topic_or_group}: {one.text}", one.at)


def counted(history: History) -> Counter[tuple[str, str]]:
    """Return the number of duplicates, by (topic or group, cause)."""
    return Counter((one.topic_or_group, one.cause) for one in duplicates(history))


# ------------------------------------------------------------------------------------------------------------ offsets


def forward(history: History) -> Iterator[Finding]:
    """Committed offsets never go back.

    Exceptions: a crash may lose the latest commits, and in a group that is not orderly a queue's former owner may
    commit after the new one.
    """
    causes = Causes(history)
    seen: defaultdict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)  # key, queue -> (at, offset)
    for event in history.of(Offsets):
        for key, row in event.table.items():
            for queue_id, offset in row.items():
                earlier = seen[key, queue_id]
                floor = _least_offset(history, earlier, event.at)
                group = key.rpartition("@")[2]
                if offset < floor and not _is_handover(history, causes, group, earlier[-1][0], event.at):
                    text = f"{key} queue {queue_id} went back from {floor} to {offset}"
                    yield Finding("forward", text, event.at)
                while earlier and earlier[-1][1] > offset:
                    earlier.pop()  # later values do not depend on offsets that are gone
                earlier.append((event.at, offset))


def _least_offset(history: History, earlier: list[tuple[int, int]], at: int) -> int:
    """Return the least offset that may be committed at that time, from the offsets seen earlier."""
    if not earlier:
        return 0
    last_at, offset = earlier[-1]
    crashes = [fault.at for fault in history.faults if fault.state == "killing"]
    if bisect_left(crashes, at) == bisect_left(crashes, last_at):
        return offset
    takes_back_ns = history.saves_ms * 1_000_000 + MARGIN_NS
    return max(
        (seen for seen_at, seen in earlier if _next_after(crashes, seen_at) >= seen_at + takes_back_ns), default=0
    )


def _next_after(times: list[int], at: int) -> int:
    index = bisect_left(times, at)
    return times[index] if index < len(times) else FOREVER_NS


def _is_handover(history: History, causes: Causes, group: str, since: int, until: int) -> bool:
    known = history.groups.get(group)
    if known is not None and known.orderly:
        return False
    return bool(causes.of_group(since, until, group))


def lateness_ms(history: History) -> list[int]:
    """Return how late each deferred message was stored, by its first copy; sorted."""
    late: dict[str, int] = {}
    for record in history.stored.values():
        sending = history.sending.get(record.id)
        if sending is not None and sending.not_before_ms and not record.first_topic:
            late_ms = record.store_ms - sending.not_before_ms
            late[record.id] = min(late.get(record.id, late_ms), late_ms)
    return sorted(late.values())
