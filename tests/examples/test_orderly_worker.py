"""The orderly worker: the events of an order in order, whatever fails or dies in between."""

import signal
from pathlib import Path

import pytest

from skylarkmq import Message, blocking
from tests.examples.databases import execute, locked, rows, wait_for_rows
from tests.examples.program import started
from tests.examples.topics import lag, send

pytestmark = pytest.mark.daemon

PROGRAM = "orderly_worker.py"
TOPIC = "OrderEvents"


def events(order: str, *steps: int) -> list[Message]:
    """Return the events of an order."""
    body = '{{"order": "{}", "step": {}, "state": "s{}"}}'
    return [Message(TOPIC, body.format(order, step, step).encode()) for step in steps]


def insert(database: Path, order: str) -> None:
    """Insert an order, as the program does that takes orders."""
    execute(database, f"INSERT INTO orders (id) VALUES ('{order}')")


@pytest.fixture
def database(namesrv: str, tmp_path: Path) -> Path:
    """Return a database with the worker's table."""
    path = tmp_path / "orders.db"
    with started(PROGRAM, path, "--namesrv", namesrv) as worker:
        worker.wait_for("ready")
        assert worker.stop() == 0
    return path


def test_an_order_that_cannot_go_on_holds_up_its_queue_only(namesrv: str, database: Path) -> None:
    """Its first event is repeated until it succeeds, and its later ones follow in order. Other queues go on."""
    insert(database, "punctual")
    with blocking.Producer("tests", namesrv=namesrv) as producer:
        queues = producer.publish_queues(TOPIC)
    send(namesrv, events("late", 1, 2, 3), queue=queues[0])
    with started(PROGRAM, database, "--namesrv", namesrv) as worker:
        worker.wait_for("waiting order=late step=1 last=None")
        send(namesrv, events("punctual", 1, 2), queue=queues[1])
        worker.wait_for("applied order=punctual step=2 new=True")
        worker.wait_for("waiting order=late step=1 last=None")
        insert(database, "late")
        worker.wait_for("applied order=late step=3 new=True")
        assert worker.stop() == 0
        outcomes = worker.lines_with("waiting order=late") + worker.lines_with("applied order=late")
    assert set(outcomes[:-3]) == {"waiting order=late step=1 last=None"}
    assert outcomes[-3:] == [f"applied order=late step={step} new=True" for step in (1, 2, 3)]
    assert rows(database, "SELECT * FROM orders ORDER BY id") == [("late", 3, "s3"), ("punctual", 2, "s2")]
    assert lag(namesrv, "order-worker", TOPIC) == 0


@pytest.mark.mq_broker(rebalanceLockMaxLiveTime=1000)
def test_a_killed_worker_skips_and_repeats_no_step(namesrv: str, database: Path) -> None:
    """Killed between the commit in SQLite and the acknowledgment: the next worker gets the event again, and goes on."""
    insert(database, "order-7")
    send(namesrv, events("order-7", 1, 2, 3), group="order-7")
    with locked(database) as release, started(PROGRAM, database, "--namesrv", namesrv) as worker:
        worker.wait_for("applying order=order-7 step=1")
        worker.stall()
        release()
        wait_for_rows(database, "SELECT 1 FROM orders WHERE step = 1")
        worker.kill()
    assert rows(database, "SELECT step FROM orders") == [(1,)]
    with started(PROGRAM, database, "--namesrv", namesrv) as worker:
        worker.wait_for("applied order=order-7 step=3 new=True")
        news = [line.rpartition("=")[2] for line in worker.lines_with("applied order=order-7")]
        assert news == ["False", "True", "True"]
        assert worker.stop() == 0
    assert rows(database, "SELECT step, state FROM orders") == [(3, "s3")]


def test_events_stay_in_order_when_a_worker_is_stopped(namesrv: str, database: Path) -> None:
    """SIGTERM in the middle of an event: it is applied and committed, and the next worker goes on with the next one."""
    insert(database, "order-7")
    send(namesrv, events("order-7", 1, 2), group="order-7")
    with locked(database) as release, started(PROGRAM, database, "--namesrv", namesrv) as worker:
        worker.wait_for("applying order=order-7 step=1")
        worker.send_signal(signal.SIGTERM)
        worker.wait_for("stopping")
        release()
        assert worker.wait() == 0
    assert rows(database, "SELECT step FROM orders") == [(1,)]
    assert lag(namesrv, "order-worker", TOPIC) == 1
    with started(PROGRAM, database, "--namesrv", namesrv) as worker:
        worker.wait_for("applied order=order-7 step=2 new=True")
        assert worker.stop() == 0
        assert worker.lines_with("order=order-7 step=1") == []
