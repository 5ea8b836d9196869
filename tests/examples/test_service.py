"""The consumer service: a clean end in the middle of a handler, and no bill twice after kills."""

import signal
from pathlib import Path

import pytest

from skylarkmq import Message
from tests.examples.databases import locked, rows, wait_for_rows
from tests.examples.program import started
from tests.examples.topics import lag, send

pytestmark = pytest.mark.daemon

PROGRAM = "service.py"
BILLS = "SELECT * FROM bills ORDER BY order_id"


def order(number: int) -> Message:
    return Message("Orders", b'{"id": "order-%d", "cents": %d}' % (number, number))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_service_finishes_and_commits_the_message_in_hand(
    number: signal.Signals, namesrv: str, tmp_path: Path
) -> None:
    """The signal arrives in the middle of a handler: the bill is written, and the order is not redelivered."""
    bills = tmp_path / "bills.db"
    with started(PROGRAM, bills, "--namesrv", namesrv) as service:
        service.wait_for("ready")
        with locked(bills):
            send(namesrv, [order(1)])
            service.wait_for("billing order=order-1")
            service.send_signal(number)
            service.wait_for("stopping")
        assert service.wait() == 0
    assert rows(bills, BILLS) == [("order-1", 1)]
    assert lag(namesrv, "billing", "Orders") == 0
    with started(PROGRAM, bills, "--namesrv", namesrv) as service:
        send(namesrv, [order(2)])
        service.wait_for("billed order=order-2 new=True")
        assert service.stop() == 0
        assert "order-1" not in service.output
    assert lag(namesrv, "billing", "Orders") == 0


def test_an_order_has_one_bill_wherever_the_service_is_killed(namesrv: str, tmp_path: Path) -> None:
    """Killed before the commit in SQLite, then between this commit and the acknowledgment: the order is redelivered."""
    bills = tmp_path / "bills.db"
    with started(PROGRAM, bills, "--namesrv", namesrv) as service:
        service.wait_for("ready")
        with locked(bills):
            send(namesrv, [order(1)])
            service.wait_for("billing order=order-1")
            service.kill()
    assert rows(bills, BILLS) == []
    with locked(bills) as release, started(PROGRAM, bills, "--namesrv", namesrv) as service:
        service.wait_for("billing order=order-1")
        service.stall()
        release()
        wait_for_rows(bills, BILLS)
        service.kill()
    with started(PROGRAM, bills, "--namesrv", namesrv) as service:
        service.wait_for("billed order=order-1 new=False")
        assert service.stop() == 0
    assert rows(bills, BILLS) == [("order-1", 1)]


def test_a_body_that_is_no_order_is_redelivered_later(namesrv: str, tmp_path: Path) -> None:
    """The log names the message; the orders after it get their bills."""
    bills = tmp_path / "bills.db"
    (bad,) = send(namesrv, [Message("Orders", b'{"id": "order-1"}')])
    send(namesrv, [order(2)])
    with started(PROGRAM, bills, "--namesrv", namesrv) as service:
        service.wait_for("billed order=order-2 new=True")
        assert service.stop() == 0
        (line,) = service.lines_with("message not acknowledged")
    assert bad.msg_id in line
    assert "cents" in line
    assert lag(namesrv, "billing", "Orders") == 0


def test_without_a_name_server_the_service_ends(tmp_path: Path) -> None:
    """Its supervisor starts it again."""
    with started(PROGRAM, tmp_path / "bills.db", "--namesrv", "127.0.0.1:9") as service:
        assert service.wait() == 1
        assert "ConnectFailed" in service.output
