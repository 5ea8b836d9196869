"""Dead letters: the groups that have some, the letters of one group, and resends of one letter or of all of a filter.

All letters of a filter are sent by a job, which goes on when the page is closed; the page shows its progress.
"""

from functools import partial
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skylarkmq.clients.console.actions import Choice, Question, confirmed, refused
from skylarkmq.clients.console.cluster import Cluster, containing
from skylarkmq.clients.console.fields import optional_time, required
from skylarkmq.clients.console.jobs import Job
from skylarkmq.clients.console.pages.messages import message_at
from skylarkmq.clients.console.paging import paging
from skylarkmq.clients.console.rendering import address, form_of, path_of, respond
from skylarkmq.clients.console.state import cluster_of
from skylarkmq.clients.sdk.admin.dead_letters import copy_of, has_text, letters_in, origin_topic
from skylarkmq.clients.sdk.admin.gathering import gathered
from skylarkmq.clients.sdk.admin.message_bodies import preview_of
from skylarkmq.clients.sdk.admin.queue_ranges import QueueRange, part_of, ranges_of, read, total_of
from skylarkmq.clients.sdk.admin.topic_kinds import DEAD_LETTERS
from skylarkmq.clients.sdk.base.errors import InvalidArgument, NoRoute
from skylarkmq.clients.terminal.printed_output import counted
from skylarkmq.protocol.codes import DLQ_PREFIX
from skylarkmq.protocol.message import MessageExt

MAX_SCANNED: Final = 20_000
"""Letters that a text filter reads at most for a page."""
TARGET: Final = Choice(
    "target", "Send to", (("group", "this group only"), ("topic", "the topic that it came from: all its groups"))
)


class Filter(NamedTuple):
    """Which letters: stored in a range of time, with a text in id, keys, tags or body."""

    since: str = ""
    until: str = ""
    text: str = ""

    @classmethod
    def of(cls, values: Any) -> "Filter":
        """Return the filter in the fields of a form or an address. InvalidArgument for an invalid time."""
        found = cls(*(values.get(name, "").strip() for name in cls._fields))
        optional_time(found.since), optional_time(found.until)
        return found

    def accepts(self, letter: MessageExt) -> bool:
        """Return whether a letter of the range has the text."""
        return has_text(letter, self.text)


async def dead_letters(request: Request) -> Response:
    """Serve the list of groups with dead letters."""
    cluster = cluster_of(request)
    text = request.query_params.get("q", "").strip()
    found = await containing((await cluster.topics())[DEAD_LETTERS], text)
    page = paging(request, len(found))
    rows = await gathered([partial(_row, cluster, name.removeprefix(DLQ_PREFIX)) for name in page.of(found)])
    return respond(request, "dead_letters.html", rows=rows, paging=page, query=text)


async def _row(cluster: Cluster, group: str) -> tuple[str, int, int]:
    """Return the group, the number of its letters, and when the last one was stored."""
    try:
        offsets = (await cluster.admin.topic_config.statistics(DLQ_PREFIX + group)).offset_table.values()
    except NoRoute:  # deleted meanwhile
        return group, 0, 0
    count = sum(each.max_offset - each.min_offset for each in offsets)
    return group, count, max((each.last_update_timestamp for each in offsets), default=0)


async def letters(request: Request) -> Response:
    """Serve the letters of one group."""
    cluster = cluster_of(request)
    group = request.path_params["group"]
    wanted = Filter.of(request.query_params)
    ranges, is_unknown = await _ranges(cluster, group, wanted)
    is_cut = False
    if wanted.text:
        found = [letter async for letter in letters_in(cluster.admin, ranges, wanted.accepts, MAX_SCANNED)]
        is_cut = total_of(ranges) > MAX_SCANNED
        page = paging(request, len(found))
        rows = page.of(found)
    else:
        page = paging(request, total_of(ranges))
        rows, is_cut = await read(cluster.admin, part_of(ranges, page.start, page.stop))
    return respond(
        request, "letters.html", group=group, rows=[each.message for each in rows], paging=page, wanted=wanted,
        is_cut=is_cut, is_unknown=is_unknown, job=cluster.jobs.get(_job_name(group)),
        preview_of=preview_of, origin_topic=origin_topic,
    )  # fmt: skip


async def _ranges(cluster: Cluster, group: str, wanted: Filter) -> tuple[list[QueueRange], bool]:
    """Return the ranges of a filter, and whether the group has no topic of dead letters."""
    since_ms, until_ms = optional_time(wanted.since), optional_time(wanted.until)
    try:
        return await ranges_of(cluster.admin, DLQ_PREFIX + group, since_ms, until_ms), False
    except NoRoute as error:
        if error.topic is None:
            raise
        return [], True


async def resend(request: Request) -> Response:
    """Send one letter again."""
    group = request.path_params["group"]
    back = path_of("dead-letters", group)
    try:
        letter_id = required(request, "id", "The id")
        target = _target(request, group)
    except InvalidArgument as error:
        return refused(request, back, error)

    async def run() -> str:
        cluster = cluster_of(request)
        letter = await message_at(cluster, letter_id)
        result = await (await cluster.producer()).send(copy_of(letter, target))
        return f"Message {letter.msg_id} is sent again: queue {result.queue}, offset {result.queue_offset}."

    effect = f"Group {group}, or all groups of the topic, get a copy. The dead letter stays where it is."
    question = Question(f"Send the dead letter {letter_id} again?", effect, "Send it again", back, choice=TARGET)
    return await confirmed(request, question, run, back)


async def resend_all(request: Request) -> Response:
    """Send all letters of a filter again, as a job."""
    cluster = cluster_of(request)
    group = request.path_params["group"]
    back = path_of("dead-letters", group)
    try:
        wanted = Filter.of(form_of(request))
        target = _target(request, group)
        ranges, _ = await _ranges(cluster, group, wanted)
    except InvalidArgument as error:
        return refused(request, back, error)
    back = address(back, **{name: value for name, value in wanted._asdict().items() if value})
    total = total_of(ranges)

    async def run() -> str:
        async def work(job: Job) -> str:
            producer = await cluster.producer()
            sent = 0
            async for letter in letters_in(cluster.admin, ranges, wanted.accepts):
                await producer.send(copy_of(letter.message, target))
                sent += 1
                job.done = sent
            return f"{counted(sent, 'dead letter')} of {group} {'is' if sent == 1 else 'are'} sent again."

        cluster.jobs.start(_job_name(group), f"Dead letters of {group}", total, work)
        return "The dead letters are being sent. This page shows the progress."

    chosen = "those of the filter" if any(wanted) else "all"
    effect = (
        f"Group {group}, or all groups of their topics, get copies of {chosen}, up to {total:,}. "
        "The dead letters stay where they are."
    )
    question = Question(f"Send dead letters of {group} again?", effect, "Send them again", back, True, TARGET)
    return await confirmed(request, question, run, back)


def _job_name(group: str) -> str:
    return f"resend {group}"


def _target(request: Request, group: str) -> str | None:
    """Return the group that gets the copies; None: all groups of the topics that they came from."""
    target = form_of(request).get("target", "group")
    if target not in dict(TARGET.values):
        raise InvalidArgument(f"{target!r} is not a place for dead letters: choose one from the list.")
    return group if target == "group" else None


ROUTES = [
    Route("/dead-letters", dead_letters),
    Route("/dead-letters/{group}", letters),
    Route("/dead-letters/{group}/resend", resend, methods=["POST"]),
    Route("/dead-letters/{group}/resend-all", resend_all, methods=["POST"]),
]
