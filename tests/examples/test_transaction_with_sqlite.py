"""The transaction: an order and its message, both or neither, wherever the program is killed."""

import logging
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from skylarkmq import TransactionState
from tests.examples.databases import locked, rows, wait_for_rows
from tests.examples.program import EXAMPLES, started
from tests.examples.topics import bodies, create

pytestmark = [pytest.mark.daemon, pytest.mark.mq_broker(transactionTimeOut=500, transactionCheckInterval=500)]

PROGRAM = "transaction_with_sqlite.py"
TOPIC = "PlacedOrders"
ORDERS = "SELECT id FROM orders ORDER BY id"


def test_an_order_that_exists_is_rolled_back(namesrv: str, tmp_path: Path) -> None:
    """Both orders are stored and have a message; the one that is placed again has no second one."""
    shop = tmp_path / "shop.db"
    create(namesrv, TOPIC)
    with started(PROGRAM, shop, "order-1", "order-2", "order-1", "--namesrv", namesrv) as program:
        program.wait_for("serving checks")
        states = ["order-1 state=COMMIT", "order-2 state=COMMIT", "order-1 state=ROLLBACK"]
        assert program.lines_with("ended") == [f"ended order={state}" for state in states]
        assert program.stop() == 0
    assert rows(shop, ORDERS) == [("order-1",), ("order-2",)]
    assert bodies(namesrv, TOPIC) == [b"order-1", b"order-2"]


def test_a_program_killed_after_the_commit_of_sqlite_has_sent_its_message(namesrv: str, tmp_path: Path) -> None:
    """The order is committed, and the broker has not got the end: the check commits the message."""
    shop = tmp_path / "shop.db"
    create(namesrv, TOPIC)
    with started(PROGRAM, shop, "--namesrv", namesrv) as program:
        program.wait_for("serving checks")  # the tables exist
        assert program.stop() == 0
    with locked(shop) as release, started(PROGRAM, shop, "order-1", "--namesrv", namesrv) as program:
        program.wait_for("placing order=order-1")
        program.stall()
        release()
        wait_for_rows(shop, ORDERS)
        program.kill()
    assert bodies(namesrv, TOPIC) == []
    with started(PROGRAM, shop, "--namesrv", namesrv) as program:
        program.wait_for("checked keys=['order-1'] state=COMMIT")
        assert program.stop() == 0
    assert b"order-1" in bodies(namesrv, TOPIC)


def test_a_program_killed_before_the_commit_of_sqlite_has_sent_nothing(namesrv: str, tmp_path: Path) -> None:
    """The check returns UNKNOWN while the database is locked; then it rolls back."""
    shop = tmp_path / "shop.db"
    create(namesrv, TOPIC)
    with started(PROGRAM, shop, "--namesrv", namesrv) as program:
        program.wait_for("serving checks")
        with locked(shop), started(PROGRAM, shop, "order-1", "--namesrv", namesrv) as killed:
            killed.wait_for("placing order=order-1")
            killed.kill()
            program.wait_for("checked keys=['order-1'] state=UNKNOWN")
        program.wait_for("checked keys=['order-1'] state=ROLLBACK")
        assert program.stop() == 0
    assert rows(shop, ORDERS) == []
    assert bodies(namesrv, TOPIC) == []


def test_a_local_transaction_that_is_late_is_refused(tmp_path: Path) -> None:
    """A check has rolled back before: the order is not stored."""
    shop = runpy.run_path(str(EXAMPLES / PROGRAM))["Shop"](tmp_path / "shop.db")
    message = SimpleNamespace(msg_id="id-1", keys=["order-1"])
    assert shop.check(message) is TransactionState.ROLLBACK
    logging.disable()
    try:
        assert shop.place("order-1", "id-1") is TransactionState.ROLLBACK
    finally:
        logging.disable(logging.NOTSET)
    assert shop.check(message) is TransactionState.ROLLBACK
    assert shop.place("order-1", "id-2") is TransactionState.COMMIT
    assert rows(tmp_path / "shop.db", ORDERS) == [("order-1",)]
