"""A consumer service that ends cleanly: it writes a bill for each message of the topic Orders.

    python service.py bills.db --namesrv 127.0.0.1:9876

Bodies are JSON such as {"id": "order-1", "cents": 420}. Any number of these services share the topic's queues.

SIGTERM and Ctrl-C end it: it takes no more messages, finishes and acknowledges those in hand, commits the offsets, and
exits with 0. A handler that needs more than `stop_timeout_s` is canceled, and its message is delivered again.

A message may be delivered twice, so the key of the order is the primary key of its bill:

    a crash before the commit in SQLite     no bill: the broker delivers the order again, to any service of the group
    a crash after it, before the offset     the order is delivered again, and the bill that exists stays as it is
    is committed (every 5 s)
    SQLite cannot write (locked, full)      the exception sends the order back: the broker delivers it again after 10 s,
                                            30 s, 1 min and so on; after 16 times it is a dead letter
    a body that is no order                 the same: the handler is not called, and the log names the message
    no name server at the start             the program ends with 1: let its supervisor start it again
"""

import argparse
import asyncio
import logging
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

import skylarkmq
from skylarkmq import ConsumeFrom, ConsumerSettings, ReceivedMessage

SETTINGS = ConsumerSettings(
    concurrency=8,
    stop_timeout_s=20.0,  # less than the 30 s after which Kubernetes kills a container
)
BUSY_S = 10.0  # how long a handler waits for other writers of the database

log = logging.getLogger("service")


class Order(msgspec.Struct):
    """The body of a message. Decoding checks the types."""

    id: str
    cents: int


class Billing:
    """Writes bills to a database."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(self._connected()) as database, database:
            database.execute("CREATE TABLE IF NOT EXISTS bills (order_id TEXT PRIMARY KEY, cents INTEGER NOT NULL)")

    async def handle(self, message: ReceivedMessage) -> None:
        """Write the bill of an order. The message is acknowledged when this returns."""
        order: Order = message.value
        log.info("billing order=%s attempt=%d", order.id, message.reconsume_times + 1)
        is_new = await asyncio.to_thread(self._write, order)
        log.info("billed order=%s new=%s", order.id, is_new)

    def _write(self, order: Order) -> bool:
        """Commit the bill; return False if the order has one already."""
        with closing(self._connected()) as database, database:
            insert = "INSERT INTO bills VALUES (?, ?) ON CONFLICT DO NOTHING"
            return database.execute(insert, (order.id, order.cents)).rowcount == 1

    def _connected(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=BUSY_S)


async def serve(namesrv: str, billing: Billing) -> None:
    """Handle messages until SIGTERM or SIGINT."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    decode = msgspec.json.Decoder(Order).decode
    async with (
        skylarkmq.connect(namesrv) as mq,
        mq.consumer(
            "billing",
            topics="Orders",
            handler=billing.handle,
            deserializer=decode,
            consume_from=ConsumeFrom.FIRST,
            settings=SETTINGS,
        ),
    ):
        log.info("ready")
        await stopping.wait()
        log.info("stopping")
    log.info("stopped")


def main() -> None:
    """Run the service."""
    parser = argparse.ArgumentParser(description="Write a bill for each order.")
    parser.add_argument("database", type=Path, help="file of SQLite")
    parser.add_argument("--namesrv", default="127.0.0.1:9876", help="name servers, host:port;host:port")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(serve(arguments.namesrv, Billing(arguments.database)))


if __name__ == "__main__":
    main()
