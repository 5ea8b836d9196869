"""The results of `mqadmin group`: lists, details, lag, and moved queues."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from skylarkmq.clients.mqadmin.people.output import Result, Rows, time_text
from skylarkmq.clients.terminal.printed_output import Summary, counted


class GroupRow(Summary, frozen=True, kw_only=True):
    """One group of a list."""

    name: Annotated[str, Meta(description="name")]
    members: Annotated[int, Meta(description="connected members")]
    lag: Annotated[
        int | None, Meta(description="messages that it has not acknowledged; null: the group never had a member")
    ]
    messages_per_second: Annotated[float, Meta(description="rate of acknowledgments")]
    max_retries: Annotated[int, Meta(description="redeliveries of a message before it becomes a dead letter")]
    is_enabled: Annotated[bool, Meta(description="whether the brokers deliver messages to it")]


class GroupList(Result, frozen=True, kw_only=True):
    """The consumer groups of a cluster."""

    groups: Annotated[list[GroupRow], Meta(description="sorted by name")]

    def tables(self) -> Iterator[Rows]:
        """Yield one table."""
        columns = ("Group", "Members", "Lag", "Messages/s", "Retries", "Enabled")
        rows = [
            (each.name, each.members, each.lag, each.messages_per_second, each.max_retries, _yes(each.is_enabled))
            for each in self.groups
        ]
        yield Rows("", columns, rows, "No groups.")


class Member(Summary, frozen=True, kw_only=True):
    """A connected member of a group."""

    client_id: Annotated[str, Meta(description="id of the client")]
    address: Annotated[str, Meta(description="its address, ip:port")]
    language: Annotated[str, Meta(description="language of its client")]
    version: Annotated[str, Meta(description="version of its client")]


class GroupTopic(Summary, frozen=True, kw_only=True):
    """The progress of a group in one topic."""

    topic: Annotated[str, Meta(description="name of the topic")]
    subscription: Annotated[str | None, Meta(description="tags or filter of the members; null: no member subscribes")]
    lag: Annotated[int, Meta(description="messages that the group has not acknowledged")]


class GroupDetails(Result, frozen=True, kw_only=True):
    """One consumer group."""

    name: Annotated[str, Meta(description="name")]
    max_retries: Annotated[int, Meta(description="redeliveries of a message before it becomes a dead letter")]
    is_enabled: Annotated[bool, Meta(description="whether the brokers deliver messages to it")]
    is_ordered: Annotated[bool, Meta(description="whether it consumes in order")]
    may_broadcast: Annotated[bool, Meta(description="whether each of its members may receive all messages")]
    members: Annotated[list[Member], Meta(description="connected members")]
    topics: Annotated[list[GroupTopic], Meta(description="topics in which it has offsets or subscriptions")]

    def tables(self) -> Iterator[Rows]:
        """Yield settings, members and topics."""
        settings = [
            ("Redeliveries", f"{self.max_retries:,}"),
            ("Enabled", _yes(self.is_enabled)),
            ("In order", _yes(self.is_ordered)),
            ("May broadcast", _yes(self.may_broadcast)),
        ]
        yield Rows(f"Group {self.name}", ("Setting", "Value"), settings)
        members = [(each.client_id, each.address, each.language, each.version) for each in self.members]
        yield Rows("Members", ("Client", "Address", "Language", "Version"), members, "No member is connected.")
        rows = [(each.topic, each.subscription, each.lag) for each in self.topics]
        yield Rows("Topics", ("Topic", "Subscription", "Lag"), rows, "No offsets and no subscriptions.")


class QueueLag(Summary, frozen=True, kw_only=True):
    """The progress of a group in one queue."""

    topic: Annotated[str, Meta(description="name of the topic")]
    broker: Annotated[str, Meta(description="name of the broker")]
    queue: Annotated[int, Meta(description="id of the queue")]
    lag: Annotated[int, Meta(description="messages that the group has not acknowledged")]
    committed: Annotated[int, Meta(description="committed offset")]
    next_offset: Annotated[int, Meta(description="offset of the next message to be stored")]
    last_consumed: Annotated[str | None, Meta(description="store time of the last acknowledged message, UTC")]
    last_consumed_ms: Annotated[int, Meta(description="the same as Unix time in ms; 0: not known")]
    client_id: Annotated[str | None, Meta(description="the member that reads the queue; null without --members")]


class GroupLag(Result, frozen=True, kw_only=True):
    """How far a group is behind."""

    group: Annotated[str, Meta(description="name of the group")]
    lag: Annotated[int, Meta(description="messages that it has not acknowledged, in all queues")]
    messages_per_second: Annotated[float, Meta(description="rate of acknowledgments")]
    members: Annotated[int, Meta(description="connected members")]
    members_requested: Annotated[
        int, Meta(description="members whose queues were requested: at most 100; 0 without --members")
    ]
    queues: Annotated[list[QueueLag], Meta(description="its queues")]

    def tables(self) -> Iterator[Rows]:
        """Yield the totals and one table."""
        rate = f"{self.messages_per_second:,.1f} messages/s"
        yield Rows(f"Group {self.group}: lag {self.lag:,}, {counted(self.members, 'member')}, {rate}")
        if 0 < self.members_requested < self.members:
            yield Rows(f"The queues of {self.members_requested:,} of {self.members:,} members were requested.")
        columns = ["Topic", "Broker", "Queue", "Lag", "Committed", "Next offset", "Last consumed"]
        rows: list[list[object]] = [
            [
                each.topic,
                each.broker,
                each.queue,
                each.lag,
                each.committed,
                each.next_offset,
                time_text(each.last_consumed_ms),
            ]
            for each in self.queues
        ]
        if any(each.client_id for each in self.queues):
            columns.append("Member")
            for row, each in zip(rows, self.queues, strict=True):
                row.append(each.client_id)
        yield Rows("", columns, rows, "It has no committed offsets.")


class QueueMove(Summary, frozen=True, kw_only=True):
    """The new offset of one queue."""

    broker: Annotated[str, Meta(description="name of the broker")]
    queue: Annotated[int, Meta(description="id of the queue")]
    offset: Annotated[int, Meta(description="committed offset from now on")]


class GroupReset(Result, frozen=True, kw_only=True):
    """A group that was moved."""

    group: Annotated[str, Meta(description="name of the group")]
    topic: Annotated[str, Meta(description="name of the topic")]
    queues: Annotated[list[QueueMove], Meta(description="its queues")]

    def tables(self) -> Iterator[Rows]:
        """Yield one table."""
        rows = [(each.broker, each.queue, each.offset) for each in self.queues]
        heading = f"Group {self.group} is moved in topic {self.topic}"
        yield Rows(heading, ("Broker", "Queue", "Offset"), rows, "The topic has no queues.")


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"
