"""Transactions in doubt: half messages without a decision, and those whose checks were given up."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skylarkmq.clients.console.actions import Question, confirmed, refused
from skylarkmq.clients.console.fields import required
from skylarkmq.clients.console.pages.messages import message_at
from skylarkmq.clients.console.paging import paging
from skylarkmq.clients.console.rendering import respond
from skylarkmq.clients.console.state import cluster_of
from skylarkmq.clients.console.waiting_messages import check_again, open_transactions
from skylarkmq.clients.sdk.admin.message_bodies import preview_of
from skylarkmq.clients.sdk.admin.queue_ranges import part_of, ranges_of, read, total_of
from skylarkmq.clients.sdk.base.errors import InvalidArgument, NoRoute
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.message import PropertyName


async def transactions(request: Request) -> Response:
    """Serve the page."""
    cluster = cluster_of(request)
    found, is_cut = await open_transactions(cluster.admin)
    try:
        ranges = await ranges_of(cluster.admin, SystemTopic.TRANSACTION_CHECK_MAX, None, None)
    except NoRoute as error:
        if error.topic is None:
            raise
        ranges = []
    page, discarded_page = paging(request, len(found)), paging(request, total_of(ranges), "discarded")
    discarded, _ = await read(cluster.admin, part_of(ranges, discarded_page.start, discarded_page.stop))
    return respond(
        request, "transactions.html", transactions=page.of(found), paging=page, is_cut=is_cut,
        discarded=[each.message for each in discarded], discarded_paging=discarded_page, preview_of=preview_of,
        names=PropertyName,
    )  # fmt: skip


async def check(request: Request) -> Response:
    """Have a broker ask for the decision of a transaction again."""
    try:
        half_id = required(request, "id", "The id")
    except InvalidArgument as error:
        return refused(request, "/transactions", error)

    async def run() -> str:
        cluster = cluster_of(request)
        half = await message_at(cluster, half_id)
        await check_again(cluster.admin.client, half)
        return f"The producers of transaction {half.msg_id} are asked again, with a full number of checks."

    effect = "Its broker stores the half message again, and sends a check to a producer of its group."
    question = Question("Check the transaction again?", effect, "Check it again", "/transactions")
    return await confirmed(request, question, run, "/transactions")


ROUTES = [Route("/transactions", transactions), Route("/transactions/check", check, methods=["POST"])]
