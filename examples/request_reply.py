"""Request and reply: a service that quotes prices, and a caller that waits for its reply for a limited time.

    python request_reply.py serve --namesrv 127.0.0.1:9876
    python request_reply.py ask coffee --timeout-s 3

`ask` prints the reply and exits with 0, or with 1 if there is none in time. After a time-out the request may have been
handled or not, and may still be handled: repeat only requests that may be handled twice, as this one may. A reply to
a caller that waits no longer is dropped.

    a crash of the service before its reply     the broker delivers the request again; if the caller has timed out
                                                until then, it is ignored
    a crash of it after its reply               the same: the second reply is dropped
    a crash of the caller                       the broker refuses the reply: the service logs that and goes on
    no service runs                             the request waits in its queue; a service that starts later ignores it

The time-out of a request is compared with the clock of the service: the clocks of the machines must agree.
"""

import argparse
import asyncio
import json
import logging
import signal
import sys
import time

import skylarkmq
from skylarkmq import BrokerError, ClientError, ConsumeFrom, Message, PushConsumer, ReceivedMessage

TOPIC = "Quotes"
CENTS = {"coffee": 420, "tea": 350}

log = logging.getLogger("quotes")


def quote(item: str) -> bytes:
    """Return the reply to a request. An error is a reply, too: otherwise the caller would wait for its timeout."""
    cents = CENTS.get(item)
    return json.dumps({"error": f"there is no {item}"} if cents is None else {"cents": cents}).encode()


def is_expired(message: ReceivedMessage) -> bool:
    """Return whether the caller waits no longer. TTL: the time-out of the request, in ms."""
    return time.time() * 1000 > message.born_timestamp + int(message.properties.get("TTL", 0))


async def serve(namesrv: str) -> None:
    """Reply to requests until SIGTERM or SIGINT."""

    async def handle(message: ReceivedMessage) -> None:
        item = message.body.decode(errors="replace")
        if is_expired(message):
            log.info("ignored, expired item=%s", item)
            return
        try:
            await consumer.reply(message, quote(item))
        except BrokerError as error:  # the caller has gone; errors of the connection send the message back
            log.info("not delivered item=%s error=%s", item, error)
        else:
            log.info("replied item=%s", item)

    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with skylarkmq.connect(namesrv) as mq:
        consumer: PushConsumer = mq.consumer("quotes", topics=TOPIC, handler=handle, consume_from=ConsumeFrom.FIRST)
        async with consumer:
            log.info("ready")
            await stopping.wait()


async def ask(namesrv: str, item: str, timeout_s: float) -> int:
    """Print the reply. Return the exit code."""
    async with skylarkmq.connect(namesrv) as mq, mq.producer("quote-callers") as producer:
        try:
            reply = await producer.request(Message(TOPIC, item.encode()), timeout_s=timeout_s)
        except ClientError as error:  # mostly RequestTimeout
            log.error("%s", error)
            return 1
    print(reply.body.decode())
    return 0


def main() -> int:
    """Run the service or the caller."""
    parser = argparse.ArgumentParser(description="Ask for prices, or quote them.")
    parser.add_argument("--namesrv", default="127.0.0.1:9876", help="name servers, host:port;host:port")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve", help="reply to requests")
    asking = commands.add_parser("ask", help="send a request")
    asking.add_argument("item")
    asking.add_argument("--timeout-s", type=float, default=3.0)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if arguments.command == "ask":
        return asyncio.run(ask(arguments.namesrv, arguments.item, arguments.timeout_s))
    asyncio.run(serve(arguments.namesrv))
    return 0


if __name__ == "__main__":
    sys.exit(main())
