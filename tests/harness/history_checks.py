"""The guarantees of a history: one function for each, which yields its violations.

They compare what producers and handlers recorded with the content of the topics at the end, whatever the way of a
message through the broker.
"""

from collections import defaultdict
from collections.abc import Iterator

from tests.harness.history_events import (
    TO_DEAD_LETTERS,
    Broker,
    Ended,
    Got,
    Group,
    Process,
    Sending,
    Sent,
    Stored,
    Threw,
)
from tests.harness.history_plan import FIRST_RETRY_MS, LEVELS_MS
from tests.harness.history_view import DEAD, RETRY, Call, Finding, History


def ended(history: History) -> Iterator[Finding]:
    """No process ended unexpectedly, and every group was drained in time."""
    for event in history.of(Process):
        if event.state == "ended":
            yield Finding("ended", f"{event.name} ended unexpectedly: {event.why}", event.at)
    for one in history.of(Broker):
        if one.state == "ended":
            yield Finding("ended", "the broker ended unexpectedly", one.at)
    ends = history.of(Ended)
    if not ends:
        yield Finding("ended", "the history has no end")
    elif not ends[-1].drained:
        yield Finding("ended", "not every group was drained in time", ends[-1].at)
    for end in ends:
        for damage in end.damage:
            yield Finding("ended", f"the store is damaged: {damage}", end.at)


def intact(history: History) -> Iterator[Finding]:
    """Every stored or delivered message is equal to the message that was sent."""
    for record in history.stored.values():
        where = f"{record.topic}/{record.queue_id} #{record.offset}"
        topic = record.first_topic or record.topic
        yield from _sent_unchanged(history, record, topic, where)
        if record.topic.startswith((RETRY, DEAD)) and not record.first_topic:
            yield Finding("intact", f"{record.id} at {where} has no original topic")
    for call in history.calls():
        yield from _sent_unchanged(history, call.got, call.got.topic, str(call))


def _sent_unchanged(history: History, what: Stored | Got, topic: str, where: str) -> Iterator[Finding]:
    sending = history.sending.get(what.id)
    if sending is None:
        yield Finding("intact", f"{what.id!r} at {where} was never sent", what.at)
        return
    sent, found = _content(sending, sending.topic), _content(what, topic)
    if sent != found:
        yield Finding("intact", f"{what.id} at {where} was sent as {sent}, and is {found}", what.at)


def _content(of: Sending | Stored | Got, topic: str) -> tuple[str, int, str, int]:
    return topic, of.crc, of.tag, of.price


def kept(history: History) -> Iterator[Finding]:
    """Every acknowledged message is in its topic, and so is every delivered one."""
    for sent in history.of(Sent):
        sending = history.sending.get(sent.id)
        if sending is None or sending.transaction:
            continue
        if not history.copies[sending.topic, sent.id]:
            yield Finding("kept", f"{sent.id} was acknowledged, but is not in {sending.topic}", sent.at)
        if sent.offset >= 0:
            position = (sending.topic, sent.queue_id, sent.offset)
            found = history.stored.get(position)
            if found is None or found.id != sent.id:
                yield Finding("kept", f"{sent.id} is not at {position}, but {found and found.id}", sent.at)
    for call in history.calls():
        record = history.stored.get(call.position)
        if record is None or record.id != call.got.id:
            yield Finding("kept", f"{call} is not stored there, but {record and record.id}", call.got.at)


def gapless(history: History) -> Iterator[Finding]:
    """Queue offsets count up from 0."""
    queues: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for topic, queue_id, offset in sorted(history.stored):
        queues[topic, queue_id].append(offset)
    for (topic, queue_id), offsets in queues.items():
        if offsets != list(range(len(offsets))):
            missing = sorted(set(range(offsets[-1])).difference(offsets))
            yield Finding("gapless", f"{topic}/{queue_id} has no {missing[:5]}, and ends at {offsets[-1]}")


def handled(history: History) -> Iterator[Finding]:
    """Each group has handled every matching message, or has it as a dead letter."""
    for name, group in history.groups.items():
        done = {call.got.id for call in history.calls_of[name] if call.is_done}
        dead = {record.id for record in history.records_of[DEAD + name]}
        for topic in group.topics:
            for record in history.records_of[topic]:
                if history.wants(group, record) and record.id not in done | dead:
                    where = f"{topic}/{record.queue_id} #{record.offset}"
                    yield Finding("handled", f"{name} has not handled {record.id} of {where}")


def wanted(history: History) -> Iterator[Finding]:
    """No group received a message outside of its subscription."""
    for name, calls in history.calls_of.items():
        group = history.groups[name]
        for call in calls:
            if not history.wants(group, call.got):
                yield Finding("wanted", f"{name} got {call}, tag={call.got.tag!r} price={call.got.price}", call.got.at)


def retried(history: History) -> Iterator[Finding]:
    """Every redelivered message has failed before, as often as it states, and is not early."""
    for name, calls in history.calls_of.items():
        failed: dict[tuple[str, int], Threw] = {}
        for call in calls:
            if call.got.times:
                failure = failed.get((call.got.id, call.got.times - 1))
                yield from _failed_before(call, failure, is_new=_times_at(history, call) == call.got.times)
            if isinstance(call.end, Threw):  # of several copies, the first to fail may be redelivered first
                which = call.got.id, call.got.times
                failed[which] = min(failed.get(which, call.end), call.end, key=lambda failure: failure.at)
        limit = history.groups[name].max_times
        given_up = {which for (which, _), failure in failed.items() if failure.level == TO_DEAD_LETTERS}
        for record in history.records_of[RETRY + name]:
            if (record.id, record.times - 1) not in failed:
                yield Finding("retried", f"{record.id} in {record.topic} had not failed {record.times} times")
        for record in history.records_of[DEAD + name]:
            if record.id not in given_up and (limit is None or record.times <= limit):
                yield Finding(
                    "retried", f"{record.id} is a dead letter of {name} after {record.times} times of {limit}"
                )
            elif record.id not in given_up and (record.id, record.times - 1) not in failed:
                yield Finding("retried", f"{record.id} in {record.topic} had not failed {record.times} times")


def _times_at(history: History, call: Call) -> int:
    record = history.stored.get(call.position)
    return record.times if record is not None else -1


def _failed_before(call: Call, failure: Threw | None, *, is_new: bool) -> Iterator[Finding]:
    """`is_new`: the message has a new record, which had to wait; otherwise its member could not send it back."""
    got = call.got
    if failure is None:
        yield Finding("retried", f"{got.group} got {call}, without that many failures", got.at)
    elif is_new and got.ms < failure.ms + _retry_ms(failure):
        yield Finding("retried", f"{got.group} got {call} only {got.ms - failure.ms} ms after its failure", got.at)


def _retry_ms(failure: Threw) -> int:
    return LEVELS_MS[failure.level - 1] if 0 < failure.level <= len(LEVELS_MS) else FIRST_RETRY_MS


def in_order(history: History) -> Iterator[Finding]:
    """In an orderly queue messages are handled one after another."""
    for name, group in history.groups.items():
        if not group.orderly:
            continue
        queues: defaultdict[tuple[str, int], list[Call]] = defaultdict(list)
        for call in history.calls_of[name]:
            queues[call.got.topic, call.got.queue_id].append(call)
        for (topic, queue_id), calls in queues.items():
            records = [record for record in history.records_of[topic] if record.queue_id == queue_id]
            offsets = [record.offset for record in records if history.wants(group, record)]
            yield from _never_overtaken(group, offsets, calls)
            yield from _never_two_at_once(history, calls)


def _never_overtaken(group: Group, offsets: list[int], calls: list[Call]) -> Iterator[Finding]:
    """`offsets`: the matching offsets of the queue, in order."""
    steps = sorted(
        [(call.got.at, 1, call) for call in calls] + [(call.end.at, 0, call) for call in calls if call.end],
        key=lambda step: step[:2],
    )
    done: set[int] = set()
    first = 0  # in `offsets`, not done
    for at, is_begin, call in steps:
        if not is_begin:
            if call.is_done or _is_given_up(call, group):
                done.add(call.got.offset)
            while first < len(offsets) and offsets[first] in done:
                first += 1
        elif first < len(offsets) and call.got.offset > offsets[first]:
            yield Finding("in_order", f"{call} started before #{offsets[first]} was done", at)


def _is_given_up(call: Call, group: Group) -> bool:
    return isinstance(call.end, Threw) and group.max_times is not None and call.got.times >= group.max_times


def _never_two_at_once(history: History, calls: list[Call]) -> Iterator[Finding]:
    """Two members never handle messages of a queue at once.

    Exception: a broker that ends, or does not respond, cannot keep the lock for a handler that still runs.
    """
    running: Call | None = None
    until = 0
    faults = [fault.at for fault in history.faults]
    for call in calls:
        at = call.got.at
        is_cut_off = running is not None and any(running.got.at < fault < at for fault in faults)
        if running is not None and at < until and running.got.recorder != call.got.recorder and not is_cut_off:
            yield Finding("in_order", f"{call} started before {running} was done", at)
        running = call
        until = call.end.at if call.end else history.ends_ns.get(call.got.recorder, at)


def in_rows(history: History) -> Iterator[Finding]:
    """Messages of one message group are in one queue, in order."""
    last: dict[str, Sent] = {}
    for sending in sorted(history.sending.values(), key=lambda sending: (sending.key, sending.number)):
        sent = history.sent.get(sending.id)
        if not sending.key or sent is None:
            continue
        before = last.get(sending.key)
        if before is not None and before.queue_id != sent.queue_id:
            yield Finding("in_rows", f"{sent.id} went to another queue than {before.id}", sent.at)
        elif before is not None and before.offset >= sent.offset:
            yield Finding("in_rows", f"{sent.id} is before {before.id}", sent.at)
        last[sending.key] = sent


def in_time(history: History) -> Iterator[Finding]:
    """Deferred messages are never early."""
    for record in history.stored.values():
        sending = history.sending.get(record.id)
        if sending is not None and record.store_ms < sending.not_before_ms:
            early_ms = sending.not_before_ms - record.store_ms
            yield Finding("in_time", f"{record.id} was stored {early_ms} ms too early", record.at)
    for call in history.calls():
        sending = history.sending.get(call.got.id)
        if sending is not None and call.got.ms < sending.not_before_ms:
            yield Finding("in_time", f"{call} came {sending.not_before_ms - call.got.ms} ms too early", call.got.at)


def atomic(history: History) -> Iterator[Finding]:
    """Committed transactions are delivered, rolled back ones never, and each ends eventually."""
    for sending in history.sending.values():
        if not sending.transaction:
            continue
        message_id, copies = sending.id, history.copies[sending.topic, sending.id]
        committed, rolled_back = history.is_committed(message_id), history.is_rolled_back(message_id)
        if copies and not committed:
            yield Finding("atomic", f"{message_id} was delivered without a commit", copies[0].at)
        if copies and rolled_back:
            yield Finding("atomic", f"{message_id} was delivered, but rolled back", copies[0].at)
        if message_id in history.sent and committed and not copies:
            yield Finding("atomic", f"{message_id} was committed, but never delivered", history.sent[message_id].at)
        if message_id in history.sent and not committed and not rolled_back:
            yield Finding("atomic", f"{message_id} was never checked", history.sent[message_id].at)
