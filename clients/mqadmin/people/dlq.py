"""`mqadmin dlq`: dead letters, the messages that a group could not handle: list, show, and send them again."""

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Annotated, Final, NamedTuple

import typer
from msgspec import Meta

from skylarkmq.clients.mqadmin.commands import Commands
from skylarkmq.clients.mqadmin.failures import Failures, not_found, usage_error
from skylarkmq.clients.mqadmin.people.completion import LettersArgument
from skylarkmq.clients.mqadmin.people.confirmation import Yes, confirm
from skylarkmq.clients.mqadmin.people.filters import NameFilter, name_matches
from skylarkmq.clients.mqadmin.people.message import MAX_LIMIT, PRODUCER_GROUP
from skylarkmq.clients.mqadmin.people.output import (
    Json,
    Result,
    Rows,
    Watch,
    print_result,
    progress,
    show,
    time_text,
    utc_text,
)
from skylarkmq.clients.mqadmin.people.stored_message import MessageRow, message_of, row_of
from skylarkmq.clients.mqadmin.time_arguments import moment_argument
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.admin.dead_letters import copy_of, has_text, letters_in, origin_topic
from skylarkmq.clients.sdk.admin.gathering import gathered
from skylarkmq.clients.sdk.admin.queue_ranges import QueueRange, ranges_of, total_of
from skylarkmq.clients.sdk.admin.topic_kinds import DEAD_LETTERS, kind_of
from skylarkmq.clients.sdk.base.errors import ClientError, NoRoute
from skylarkmq.clients.sdk.producing.producer import Producer
from skylarkmq.clients.terminal.printed_output import Summary, counted
from skylarkmq.protocol.codes import DLQ_PREFIX
from skylarkmq.protocol.message import MessageExt

COMMANDS = Commands()

_GROUP, _TOPIC = _TARGETS = ("group", "topic")

Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Stored from this time on.")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Stored before this time.")]
Contains = Annotated[str, typer.Option("--contains", metavar="TEXT", help="With this text in id, keys, tag or body.")]
_NO_LETTERS: Final = "No dead letters."


class LetterGroup(Summary, frozen=True, kw_only=True):
    """A group with dead letters."""

    group: Annotated[str, Meta(description="name of the group")]
    letters: Annotated[int, Meta(description="stored dead letters, including letters that were sent again")]
    last_stored: Annotated[str | None, Meta(description="when the last one was stored, UTC")]
    last_stored_ms: Annotated[int, Meta(description="the same as Unix time in ms; 0: not known")]


class LetterGroups(Result, frozen=True, kw_only=True):
    """The groups that have dead letters."""

    groups: Annotated[list[LetterGroup], Meta(description="sorted by name")]

    def tables(self) -> Iterator[Rows]:
        """Yield one table."""
        rows = [(each.group, each.letters, time_text(each.last_stored_ms)) for each in self.groups]
        yield Rows("", ("Group", "Dead letters", "Last stored"), rows, _NO_LETTERS)


class Letter(Summary, frozen=True, kw_only=True):
    """One dead letter."""

    message: Annotated[MessageRow, Meta(description="the letter as it is stored")]
    origin_topic: Annotated[
        str | None, Meta(description="topic that it came from; null if the letter does not name it")
    ]
    redeliveries: Annotated[int, Meta(description="how often it was redelivered before")]


class Letters(Result, frozen=True, kw_only=True):
    """Dead letters of one group."""

    group: Annotated[str, Meta(description="name of the group")]
    letters: Annotated[list[Letter], Meta(description="queue by queue")]
    is_cut: Annotated[bool, Meta(description="whether there are more than --limit")]

    def tables(self) -> Iterator[Rows]:
        """Yield one table."""
        columns = ("Id", "From topic", "Stored", "Redeliveries", "Keys", "Tag", "Body")
        rows = [
            (
                each.message.id,
                each.origin_topic,
                time_text(each.message.stored_ms),
                each.redeliveries,
                " ".join(each.message.keys),
                each.message.tag,
                each.message.preview,
            )
            for each in self.letters
        ]
        yield Rows(f"Dead letters of group {self.group}", columns, rows, _NO_LETTERS)
        if self.is_cut:
            yield Rows("There are more: raise --limit, or narrow the search.")


class Resent(Result, frozen=True, kw_only=True):
    """Dead letters that were sent again."""

    group: Annotated[str, Meta(description="name of the group")]
    target: Annotated[str, Meta(description="`group`: only this group gets the copies; `topic`: all of the topic")]
    sent: Annotated[int, Meta(description="letters that were sent again")]
    failed: Annotated[int, Meta(description="letters that could not be sent; stderr has the reason of each")]

    def tables(self) -> Iterator[Rows]:
        """Yield one line."""
        failed = f", {self.failed:,} failed" if self.failed else ""
        yield Rows(f"Sent {counted(self.sent, 'dead letter')} of group {self.group} again{failed}.")


class Filter(NamedTuple):
    """Which letters: stored in [since, until) (Unix ms; None: any time), with a text."""

    since_ms: int | None
    until_ms: int | None
    text: str

    @classmethod
    def of(cls, since: str | None, until: str | None, text: str) -> "Filter":
        """Return the filter of the options. CommandFailed for an invalid time."""
        since_ms, until_ms = (None if each is None else moment_argument(each) for each in (since, until))
        return cls(since_ms, until_ms, text)

    def accepts(self, letter: MessageExt) -> bool:
        """Return whether a letter has the text."""
        return has_text(letter, self.text)


# ------------------------------------------------------------------------------------------------------------- to read


@COMMANDS.add("list", "List groups with dead letters.", "mqadmin dlq list", "mqadmin dlq list --watch 10")
async def list_groups(
    admin: Admin,
    text: NameFilter = "",
    as_json: Json = False,
    watch: Watch = None,
) -> None:
    """Print a row for each group."""

    async def read() -> LetterGroups:
        names = [name.removeprefix(DLQ_PREFIX) for name in await admin.topics() if kind_of(name) == DEAD_LETTERS]
        wanted = [name for name in names if name_matches(name, text)]
        with progress("groups", len(wanted)) as advance:
            rows = await gathered([partial(_group_row, admin, name, advance) for name in wanted])
        return LetterGroups(groups=[row for row in rows if row.letters])

    await show(read, as_json=as_json, watch=watch)


async def _group_row(admin: Admin, group: str, advance: Callable[[], None]) -> LetterGroup:
    try:
        offsets = list((await admin.topic_config.statistics(DLQ_PREFIX + group)).offset_table.values())
    except NoRoute:  # deleted meanwhile
        offsets = []
    advance()
    last_ms = max((each.last_update_timestamp for each in offsets), default=0)
    return LetterGroup(
        group=group,
        letters=sum(each.max_offset - each.min_offset for each in offsets),
        last_stored=utc_text(last_ms),
        last_stored_ms=last_ms,
    )


@COMMANDS.add(
    "show",
    "Show the dead letters of a group.",
    "mqadmin dlq show billing",
    "mqadmin dlq show billing --contains order-17",
)
async def show_letters(
    admin: Admin,
    group: LettersArgument,
    since: Since = None,
    until: Until = None,
    text: Contains = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=MAX_LIMIT, help="Letters at most.")] = 32,
    as_json: Json = False,
) -> None:
    """Print the letters of a filter."""
    wanted = Filter.of(since, until, text)
    found: list[Letter] = []
    async for letter in _matching(admin, await _ranges(admin, group, wanted), wanted):
        if len(found) == limit:
            print_result(Letters(group=group, letters=found, is_cut=True), as_json=as_json)
            return
        found.append(
            Letter(message=row_of(letter), origin_topic=origin_topic(letter), redeliveries=letter.reconsume_times)
        )
    print_result(Letters(group=group, letters=found, is_cut=False), as_json=as_json)


# ----------------------------------------------------------------------------------------------------------- to resend


@COMMANDS.add(
    "resend",
    "Send dead letters again: by id, by a filter, or all.",
    "mqadmin dlq resend billing 7F0000010001...",
    "mqadmin dlq resend billing --since 2h --yes",
    "mqadmin dlq resend billing --all --to topic",
)
async def resend(
    admin: Admin,
    group: LettersArgument,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of letters.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All letters of the group.")] = False,
    since: Since = None,
    until: Until = None,
    text: Contains = "",
    target: Annotated[
        str,
        typer.Option("--to", metavar="group|topic", help="The receivers: this group, or all groups of the topic."),
    ] = _GROUP,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Send copies; the dead letters stay where they are. One that cannot be sent is a line on stderr."""
    wanted = Filter.of(since, until, text)
    ways = [bool(ids), every, any(wanted)]
    if sum(ways) != 1:
        raise usage_error("give ids of letters, or --all, or a filter: --since, --until, --contains.")
    if target not in _TARGETS:
        raise usage_error(f"{target!r} is not a target; use {' or '.join(_TARGETS)}.")
    ranges = await _ranges(admin, group, wanted)
    total = len(ids) if ids else total_of(ranges)
    where = f"group {group}" if target == _GROUP else "all groups of the topics that they came from"
    most = "up to " if any(wanted) else ""
    letters_text = f"{most}{counted(total, 'dead letter')} of group {group}"
    confirm(f"Copies of {letters_text} will be sent to {where}.", is_agreed=yes)
    letters = _by_id(admin, group, ids) if ids else _matching(admin, ranges, wanted)
    failures, counts = Failures(), [0, 0]
    async with Producer(PRODUCER_GROUP, client=admin.client) as producer:
        with progress("dead letters", total) as advance:
            async for letter in letters:
                try:
                    await producer.send(copy_of(letter, group if target == _GROUP else None))
                    counts[0] += 1
                except ClientError as error:
                    failures.add(error)
                    counts[1] += 1
                advance()
    print_result(Resent(group=group, target=target, sent=counts[0], failed=counts[1]), as_json=as_json)
    failures.raise_if_any()


async def _ranges(admin: Admin, group: str, wanted: Filter) -> list[QueueRange]:
    """Return where the letters of a filter are. CommandFailed if the group has none."""
    try:
        return await ranges_of(admin, DLQ_PREFIX + group, wanted.since_ms, wanted.until_ms)
    except NoRoute as error:
        if error.topic is None:
            raise
        raise not_found(
            f"group {group} has no dead letters. `mqadmin dlq list` lists the groups that have some."
        ) from error


async def _matching(admin: Admin, ranges: list[QueueRange], wanted: Filter) -> AsyncIterator[MessageExt]:
    async for each in letters_in(admin, ranges, wanted.accepts):
        yield each.message


async def _by_id(admin: Admin, group: str, ids: list[str]) -> AsyncIterator[MessageExt]:
    """Yield letters by id. CommandFailed for one that does not exist or is of another group, before any is sent."""
    letters = [await message_of(admin, each, DLQ_PREFIX + group) for each in ids]
    for letter in letters:
        if letter.topic != DLQ_PREFIX + group:  # an offset id names any message
            raise not_found(f"message {letter.msg_id} is in {letter.topic}, and is not a dead letter of group {group}.")
    for letter in letters:
        yield letter
