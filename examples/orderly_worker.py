"""An orderly worker: it applies the events of each order one by one, in the order in which they were sent.

    python orderly_worker.py orders.db --namesrv 127.0.0.1:9876

Producers send the events of an order with `message_group=order`, so they are in one queue:
{"order": "order-7", "step": 2, "state": "paid"}. The steps of an order are 1, 2, 3 and so on. The worker updates the
table `orders`, in which another program inserts each order with step 0.

If an order is not in the table yet, the handler returns LATER: the queue pauses for 1 s, then the same message follows,
and no later event overtakes it. The other queues go on. After 60 repetitions, about a minute, the event becomes a dead
letter, and so do the order's later events, because they do not follow its last step: send them again in their order.

    a crash before the commit in SQLite     the event is delivered again, as the first of its queue
    a crash after it, before the offset     the last events of the queue are delivered again, in order; those that the
    is committed (every 5 s)                order has passed change nothing
    kill -9, power                          the locks of its queues expire in the broker after 60 s
                                            (rebalanceLockMaxLiveTime); then other workers go on with them
    SIGTERM, Ctrl-C                         running handlers finish, offsets are committed, queues are free at once
"""

import argparse
import logging
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from skylarkmq import LATER, ConsumeFrom, ConsumerSettings, Later, ReceivedMessage, blocking

SETTINGS = ConsumerSettings(suspend_pause_s=1.0, max_reconsume_times=60, stop_timeout_s=20.0)
BUSY_S = 10.0  # how long a handler waits for other writers of the database
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

log = logging.getLogger("worker")


class Event(msgspec.Struct):
    """The body of a message. Decoding checks the types."""

    order: str
    step: int
    state: str


class Orders:
    """The table of orders, with the last step of each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(self._connected()) as database, database:
            columns = "id TEXT PRIMARY KEY, step INTEGER NOT NULL DEFAULT 0, state TEXT NOT NULL DEFAULT 'new'"
            database.execute(f"CREATE TABLE IF NOT EXISTS orders ({columns})")

    def handle(self, message: ReceivedMessage) -> Later | None:
        """Apply an event if it is the next one of its order. Runs in a thread of the consumer."""
        event: Event = message.value
        log.info("applying order=%s step=%d attempt=%d", event.order, event.step, message.reconsume_times + 1)
        last = self._advance(event)
        if last is None or event.step > last + 1:
            log.info("waiting order=%s step=%d last=%s", event.order, event.step, last)
            return LATER
        log.info("applied order=%s step=%d new=%s", event.order, event.step, event.step > last)
        return None

    def _advance(self, event: Event) -> int | None:
        """Commit an event if it is the next one. Return the step before, or None if there is no such order."""
        with closing(self._connected()) as database, database:
            database.execute("BEGIN IMMEDIATE")  # no other writer between reading and writing
            row = database.execute("SELECT step FROM orders WHERE id = ?", (event.order,)).fetchone()
            last: int | None = None if row is None else row[0]
            if last is not None and event.step == last + 1:
                update = "UPDATE orders SET step = ?, state = ? WHERE id = ?"
                database.execute(update, (event.step, event.state, event.order))
            return last

    def _connected(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=BUSY_S)


def main() -> None:
    """Apply events until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description="Apply the events of orders, in order.")
    parser.add_argument("database", type=Path, help="file of SQLite")
    parser.add_argument("--namesrv", default="127.0.0.1:9876", help="name servers, host:port;host:port")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # before threads start: `sigwait` below receives them
    with (
        blocking.connect(arguments.namesrv) as mq,
        mq.consumer(
            "order-worker",
            topics="OrderEvents",
            handler=Orders(arguments.database).handle,
            deserializer=msgspec.json.Decoder(Event).decode,
            orderly=True,
            consume_from=ConsumeFrom.FIRST,
            settings=SETTINGS,
        ),
    ):
        log.info("ready")
        signal.sigwait(STOP_SIGNALS)
        log.info("stopping")
    log.info("stopped")


if __name__ == "__main__":
    main()
