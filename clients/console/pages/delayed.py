"""Messages that are delivered later: by delay level and by time, which can be canceled."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skylarkmq.clients.console.actions import Question, confirmed, refused
from skylarkmq.clients.console.fields import required
from skylarkmq.clients.console.paging import paging
from skylarkmq.clients.console.rendering import respond
from skylarkmq.clients.console.state import cluster_of
from skylarkmq.clients.console.waiting_messages import delay_levels, waiting_timers
from skylarkmq.clients.sdk.admin.message_bodies import preview_of
from skylarkmq.clients.sdk.base.clocks import now_ms
from skylarkmq.clients.sdk.base.errors import InvalidArgument


async def delayed(request: Request) -> Response:
    """Serve the page."""
    admin = cluster_of(request).admin
    levels = await delay_levels(admin)
    timers, is_cut = await waiting_timers(admin, now_ms())
    page, level_page = paging(request, len(timers)), paging(request, len(levels), "levels")
    return respond(
        request, "delayed.html", levels=level_page.of(levels), level_paging=level_page, timers=page.of(timers),
        paging=page, is_cut=is_cut, preview_of=preview_of,
    )  # fmt: skip


async def cancel(request: Request) -> Response:
    """Cancel a timer message."""
    try:
        topic, handle = required(request, "topic", "The topic"), required(request, "handle", "The handle")
    except InvalidArgument as error:
        return refused(request, "/delayed", error)

    async def run() -> str:
        producer = await cluster_of(request).producer()
        msg_id = await producer.recall(topic, handle)
        return f"Message {msg_id} is canceled: its broker drops it when it is due."

    effect = "Its broker drops it when it is due. This works on brokers with recallMessageEnable=true."
    question = Question(f"Cancel a message of {topic}?", effect, "Cancel the message", "/delayed", True)
    return await confirmed(request, question, run, "/delayed")


ROUTES = [Route("/delayed", delayed), Route("/delayed/cancel", cancel, methods=["POST"])]
