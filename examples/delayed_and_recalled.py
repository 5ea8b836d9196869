"""A delayed message, and one that is recalled before its time: reminders of orders that are not paid.

    python delayed_and_recalled.py shop.db place order-1 --delay-s 1800     stores an order, and sends its reminder
    python delayed_and_recalled.py shop.db pay order-1                      marks it as paid, and recalls the reminder
    python delayed_and_recalled.py shop.db remind                           a service: receives the reminders

The broker needs `recallMessageEnable`. It delivers at the second after the delay, after at most 3 days
(`timerMaxDelaySec`); RocketMQ 4.9 ignores the delay.

A recall may fail or come too late, so the service reads whether the order is paid. A recall only saves a delivery:

    a crash after the order, before its send    an order without a reminder: `place` it again
    a crash after the send, before the handle   the reminder cannot be recalled; if the order is paid, it is ignored
    is stored
    a crash after `paid`, before the recall     the same
    a crash of the service during a reminder    the broker delivers it again: a customer may be reminded twice
"""

import argparse
import logging
import signal
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

from skylarkmq import ClientError, ConsumeFrom, Message, ReceivedMessage, blocking

TOPIC = "Reminders"
TABLE = "orders (id TEXT PRIMARY KEY, is_paid INTEGER NOT NULL DEFAULT 0, recall_handle TEXT)"
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

log = logging.getLogger("reminders")


class Shop:
    """The orders, and their reminders."""

    def __init__(self, path: Path, mq: blocking.MessageQueueClient) -> None:
        self._path = path
        self._mq = mq
        self._execute(f"CREATE TABLE IF NOT EXISTS {TABLE}")

    def place(self, order: str, delay: timedelta) -> None:
        """Store an order, and send its reminder."""
        self._execute("INSERT INTO orders (id) VALUES (?) ON CONFLICT DO NOTHING", order)
        with self._mq.producer("shop") as producer:
            sent = producer.send(Message(TOPIC, order.encode(), keys=[order]), delay=delay)
        self._execute("UPDATE orders SET recall_handle = ? WHERE id = ?", sent.recall_handle, order)
        log.info("placed order=%s", order)

    def pay(self, order: str) -> None:
        """Mark an order as paid, and recall its reminder."""
        self._execute("UPDATE orders SET is_paid = 1 WHERE id = ?", order)
        has_handle = "SELECT recall_handle FROM orders WHERE id = ? AND recall_handle IS NOT NULL"
        with self._mq.producer("shop") as producer:
            for (handle,) in self._execute(has_handle, order):
                try:
                    producer.recall(TOPIC, handle)
                    log.info("recalled order=%s", order)
                except ClientError as error:  # delivered already, not allowed, or no connection
                    log.warning("not recalled order=%s error=%s", order, error)
        log.info("paid order=%s", order)

    def handle(self, message: ReceivedMessage) -> None:
        """Remind the customer, unless the order is paid. Runs in a thread of the consumer."""
        order = message.body.decode()
        if self._execute("SELECT 1 FROM orders WHERE id = ? AND NOT is_paid", order):
            log.info("reminding order=%s", order)  # a real shop sends a mail here
        else:
            log.info("ignored, paid order=%s", order)

    def remind(self) -> None:
        """Receive reminders until SIGTERM or SIGINT."""
        with self._mq.consumer("reminders", topics=TOPIC, handler=self.handle, consume_from=ConsumeFrom.FIRST):
            signal.sigwait(STOP_SIGNALS)

    def _execute(self, statement: str, *values: str | None) -> list[Any]:
        with closing(sqlite3.connect(self._path)) as database, database:
            return database.execute(statement, values).fetchall()


def main() -> None:
    """Run a command."""
    parser = argparse.ArgumentParser(description="Remind customers of orders that are not paid.")
    parser.add_argument("database", type=Path, help="file of SQLite")
    parser.add_argument("command", choices=["place", "pay", "remind"])
    parser.add_argument("order", nargs="?", help="of place and pay")
    parser.add_argument("--delay-s", type=float, default=1800.0, help="time from `place` to the reminder")
    parser.add_argument("--namesrv", default="127.0.0.1:9876", help="name servers, host:port;host:port")
    arguments = parser.parse_args()
    if arguments.command != "remind" and not arguments.order:
        parser.error(f"{arguments.command} needs an order")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if arguments.command == "remind":
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # before threads start: `sigwait` receives them
    with blocking.connect(arguments.namesrv) as mq:
        shop = Shop(arguments.database, mq)
        if arguments.command == "place":
            shop.place(arguments.order, timedelta(seconds=arguments.delay_s))
        elif arguments.command == "pay":
            shop.pay(arguments.order)
        else:
            shop.remind()


if __name__ == "__main__":
    main()
