"""A transaction: an order in SQLite and a message about it, both or neither.

    python transaction_with_sqlite.py shop.db order-1 order-2 --namesrv 127.0.0.1:9876

It places the orders, and then answers transaction checks of the broker until SIGTERM or Ctrl-C. Start it without
orders after a crash. It should always run somewhere: the broker discards a message after 15 checks without a result
(transactionCheckMax), one every 30 s.

The order and the row `outcomes(transaction_id, 'COMMIT')` are one transaction of SQLite. The checker reads that row. If
there is none, it inserts 'ROLLBACK': the same primary key then refuses a local transaction that is late.

    a crash before the half message             nothing has happened
    a crash after it, before SQLite's commit    the check finds no row: the message is rolled back
    a crash after SQLite's commit               the check finds the row: the message is committed
    SQLite is locked during a check             UNKNOWN, and the broker checks again
    the same order twice                        the second one is rolled back

SQLite's default mode (`synchronous=FULL`) keeps committed rows through a power cut. Rows of `outcomes` may be deleted
after a day. Consumers may receive a message twice, as always.
"""

import argparse
import logging
import signal
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

from skylarkmq import ClientError, ClientSettings, Message, MessageExt, TransactionState, blocking

TOPIC = "PlacedOrders"
TABLES = (
    "orders (id TEXT PRIMARY KEY)",
    "outcomes (transaction_id TEXT PRIMARY KEY, state TEXT NOT NULL, at TEXT DEFAULT CURRENT_TIMESTAMP)",
)
INSERT_OUTCOME = "INSERT INTO outcomes (transaction_id, state) VALUES (?, ?)"
BUSY_S, CHECK_BUSY_S = 30.0, 1.0  # how long a local transaction, and a check, wait for other writers
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

log = logging.getLogger("shop")


class Shop:
    """The orders and the outcomes of their transactions."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(self._connected(BUSY_S)) as database, database:
            for table in TABLES:
                database.execute(f"CREATE TABLE IF NOT EXISTS {table}")

    def place(self, order: str, transaction_id: str) -> TransactionState:
        """Run the local transaction. If it raises, the broker checks later."""
        log.info("placing order=%s", order)
        try:
            with closing(self._connected(BUSY_S)) as database, database:
                database.execute(INSERT_OUTCOME, (transaction_id, TransactionState.COMMIT.name))
                database.execute("INSERT INTO orders VALUES (?)", (order,))
        except sqlite3.IntegrityError as error:  # the order exists, or a check has rolled back
            log.warning("not placed order=%s error=%s", order, error)
            return TransactionState.ROLLBACK
        log.info("stored order=%s", order)
        return TransactionState.COMMIT

    def check(self, message: MessageExt) -> TransactionState:
        """Return how the transaction of a half message ended. It ends here if it has not yet."""
        try:
            with closing(self._connected(CHECK_BUSY_S)) as database, database:
                rollback = (message.msg_id, TransactionState.ROLLBACK.name)
                database.execute(f"{INSERT_OUTCOME} ON CONFLICT DO NOTHING", rollback)
                select = "SELECT state FROM outcomes WHERE transaction_id = ?"
                state = TransactionState[database.execute(select, (message.msg_id,)).fetchone()[0]]
        except sqlite3.OperationalError:  # locked: perhaps by the local transaction
            state = TransactionState.UNKNOWN
        log.info("checked keys=%s state=%s", message.keys, state.name)
        return state

    def _connected(self, busy_s: float) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=busy_s)


def place_all(shop: Shop, producer: blocking.TransactionProducer, orders: list[str]) -> None:
    """Place orders. After an error the next order follows: the broker checks what has become of this one."""
    for order in orders:
        try:
            message = Message(TOPIC, order.encode(), keys=[order])
            result = producer.send_in_transaction(message, partial(shop.place, order))
        except (ClientError, sqlite3.Error) as error:
            log.error("failed order=%s error=%s", order, error)
        else:
            log.info("ended order=%s state=%s", order, result.state.name)


def main() -> None:
    """Place orders, and serve checks."""
    parser = argparse.ArgumentParser(description="Place orders, and serve the checks of their transactions.")
    parser.add_argument("database", type=Path, help="file of SQLite")
    parser.add_argument("orders", nargs="*", help="ids of orders to place")
    parser.add_argument("--namesrv", default="127.0.0.1:9876", help="name servers, host:port;host:port")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # before threads start: `sigwait` below receives them
    shop = Shop(arguments.database)
    with (
        blocking.connect(arguments.namesrv, settings=ClientSettings(heartbeat_s=5.0)) as mq,
        mq.transaction_producer("shop", checker=shop.check) as producer,
    ):
        producer.publish_queues(TOPIC)  # the brokers of the topic get the next heartbeat, and send their checks here
        place_all(shop, producer, arguments.orders)
        log.info("serving checks")
        signal.sigwait(STOP_SIGNALS)
    log.info("stopped")


if __name__ == "__main__":
    main()
