"""Checks of one consumer group: online, equal subscriptions, lag, retries and dead letters."""

import asyncio
from collections.abc import Mapping
from typing import Final

from skylarkmq.clients.mqadmin.doctor.findings import Check, NotExamined, Outcomes, error, warning
from skylarkmq.clients.mqadmin.doctor.subject import NotAvailable, Subject
from skylarkmq.clients.sdk.base.errors import BrokerError, ClientError, NoRoute
from skylarkmq.clients.terminal.printed_output import counted
from skylarkmq.protocol.bodies.client_state import ConsumerRunningInfo
from skylarkmq.protocol.bodies.enums import MessageModel
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.stats import OffsetWrapper
from skylarkmq.protocol.codes import DLQ_PREFIX, RETRY_PREFIX

MAX_MEMBERS: Final = 50
"""Members whose subscriptions are requested."""


async def group_online(subject: Subject) -> Outcomes:
    """The group exists, may consume, has a member, and its members subscribe to the topic that is given."""
    group = _group(subject)
    config = await subject.group_config(group)
    if config is not None and not config.consume_enable:
        next_step = f"Allow it: mqadmin updateSubGroup -c <cluster> -g {group} -s true"
        yield error(group, "the group may not consume (consumeEnable is false)", next_step)
    members = await subject.members(group)
    if members is None:
        state = "the group does not exist" if config is None else "the group has no member: it consumes nothing"
        next_step = "Start a consumer of this group. Check its group name and its name server."
        yield error(group, state, next_step)
    elif (topic := subject.wanted.topic) is not None and topic not in members.subscription_table:
        subscribed = ", ".join(sorted(set(members.subscription_table) - {RETRY_PREFIX + group})) or "nothing"
        what = f"the group does not subscribe to {topic}, but to {subscribed}"
        yield error(group, what, "Subscribe to the topic in all members of the group.")


async def subscriptions(subject: Subject) -> Outcomes:
    """All members of the group have the same subscriptions: a broker keeps the subscriptions of the last heartbeat for
    all."""
    group = _group(subject)
    members = await subject.members(group)
    if members is None:
        raise NotAvailable(f"group {group} is not online")
    clients = sorted(member.client_id for member in members.connection_set)
    if len(clients) > MAX_MEMBERS:
        yield NotExamined(group, f"the subscriptions of {len(clients) - MAX_MEMBERS} of {len(clients)} members")
    infos = await asyncio.gather(*(_running_info(subject, group, client) for client in clients[:MAX_MEMBERS]))
    members_by_subscriptions: dict[frozenset[tuple[str, str, str]], list[str]] = {}
    for client, info in zip(clients, infos, strict=False):
        if isinstance(info, ClientError):
            yield NotExamined(f"{group} {client}", f"the member does not report its subscriptions: {info}")
        else:
            members_by_subscriptions.setdefault(_subscribed(info, group), []).append(client)
    if len(members_by_subscriptions) > 1:
        kinds = "; ".join(
            f"{_shown(wanted)} of {', '.join(clients)}" for wanted, clients in members_by_subscriptions.items()
        )
        next_step = "Start all members with the same topics and expressions, or use another group for the others."
        yield error(group, f"its members have different subscriptions, so messages are lost: {kinds}", next_step)


async def lag(subject: Subject) -> Outcomes:
    """The group consumes at least as fast as messages arrive: its lag in each topic is read twice."""
    group = _group(subject)
    await subject.known_states()
    members = await subject.members(group)
    if members is not None and members.message_model is MessageModel.BROADCASTING:
        raise NotAvailable(f"the members of group {group} broadcast: each keeps its own offsets")
    first = await _offsets(subject, group)
    await asyncio.sleep(subject.wanted.sample_s)
    second = await _offsets(subject, group)
    for topic in sorted({queue.topic for queue in second}):
        before, after = (_lag(table, topic) for table in (first, second))
        progress = _consumed(second, topic) - _consumed(first, topic)
        where, interval = f"{group} {topic}", f"{subject.wanted.sample_s:g} s"
        if topic == RETRY_PREFIX + group:
            if after > 0:
                next_step = "Read the log of the consumers: their handler failed, or took too long."
                yield warning(group, f"{counted(after, 'message')} to be delivered again", next_step)
        elif after > 0 and progress <= 0 and before > 0:
            what = f"the lag is {counted(after, 'message')}, and none was acknowledged within {interval}"
            next_step = f"Check that the handlers return: mqadmin consumerStatus -g {group}"
            yield error(where, what, next_step)
        elif after > before:
            what = f"the lag grew within {interval} from {before:,} to {counted(after, 'message')}"
            yield warning(where, what, "Add members, up to the number of queues, or make the handler faster.")


async def dead_letters(subject: Subject) -> Outcomes:
    """The group has no dead letters: messages that failed as often as the group allows."""
    group = _group(subject)
    await subject.known_states()
    topic = DLQ_PREFIX + group
    try:
        table = await subject.admin.topic_offsets(topic)
    except NoRoute:
        return
    count = sum(offsets.max_offset - offsets.min_offset for offsets in table.values())
    if count > 0:
        next_step = f"Read them: mqadmin dlq show {group}. Correct the handler, then: mqadmin dlq resend {group} --all"
        yield warning(group, counted(count, "dead letter"), next_step)


def _group(subject: Subject) -> str:
    if subject.wanted.group is None:
        raise NotAvailable("no group is given (-g)")
    return subject.wanted.group


async def _running_info(subject: Subject, group: str, client_id: str) -> ConsumerRunningInfo | ClientError:
    try:
        return await subject.admin.group_config.running_info(group, client_id)
    except ClientError as problem:
        return problem


def _subscribed(info: ConsumerRunningInfo, group: str) -> frozenset[tuple[str, str, str]]:
    """Return topic, kind of expression and expression of each subscription."""
    return frozenset(
        (each.topic, each.expression_type, each.sub_string)
        for each in info.subscription_set
        if each.topic != RETRY_PREFIX + group
    )


def _shown(wanted: frozenset[tuple[str, str, str]]) -> str:
    return ", ".join(f"{topic} ({expression})" for topic, _, expression in sorted(wanted)) or "nothing"


async def _offsets(subject: Subject, group: str) -> Mapping[MessageQueue, OffsetWrapper]:
    """Return the offsets of a group. NotAvailable if it has no offsets."""
    try:
        stats = await subject.admin.offsets.progress(group, subject.wanted.topic)
    except (NoRoute, BrokerError) as problem:
        raise NotAvailable(f"group {group} has no offsets: {problem}") from problem
    return stats.offset_table


def _lag(table: Mapping[MessageQueue, OffsetWrapper], topic: str) -> int:
    rows = (row for queue, row in table.items() if queue.topic == topic)
    return sum(row.broker_offset - row.consumer_offset for row in rows)


def _consumed(table: Mapping[MessageQueue, OffsetWrapper], topic: str) -> int:
    return sum(row.consumer_offset for queue, row in table.items() if queue.topic == topic)


CHECKS: Final = (
    Check("group online", group_online),
    Check("subscriptions", subscriptions),
    Check("lag", lag),
    Check("dead letters", dead_letters),
)
