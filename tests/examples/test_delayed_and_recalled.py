"""Reminders: delivered after their delay, recalled before it, and ignored if the recall fails."""

from pathlib import Path

import pytest

from skylarkmq.broker.in_process import InProcessBroker
from tests.examples.databases import execute
from tests.examples.program import run, started
from tests.examples.topics import bodies, create, lag

pytestmark = pytest.mark.daemon

PROGRAM = "delayed_and_recalled.py"
TOPIC = "Reminders"
SOON_S, LATE_S = "1", "15"


def command(mq_broker: InProcessBroker, shop: Path, *arguments: str) -> str:
    """Run a command, and return its output."""
    code, output = run(PROGRAM, shop, *arguments, "--namesrv", mq_broker.namesrv)
    assert code == 0, output
    return output


@pytest.mark.mq_broker(recallMessageEnable=True)
def test_a_recalled_reminder_is_not_delivered(mq_broker: InProcessBroker, tmp_path: Path) -> None:
    """The reminder of a later order arrives, and the recalled one has not come before it."""
    shop = tmp_path / "shop.db"
    create(mq_broker.namesrv, TOPIC)
    command(mq_broker, shop, "place", "unpaid", "--delay-s", SOON_S)
    command(mq_broker, shop, "place", "paid", "--delay-s", LATE_S)
    assert "recalled order=paid" in command(mq_broker, shop, "pay", "paid")
    command(mq_broker, shop, "place", "last", "--delay-s", LATE_S)
    with started(PROGRAM, shop, "remind", "--namesrv", mq_broker.namesrv) as service:
        service.wait_for("reminding order=unpaid")
        service.wait_for("reminding order=last")
        assert service.stop() == 0
        assert len(service.lines_with("order=")) == 2
    assert bodies(mq_broker.namesrv, TOPIC) == [b"unpaid", b"last"]


def test_a_paid_order_gets_no_reminder_if_the_recall_fails(mq_broker: InProcessBroker, tmp_path: Path) -> None:
    """Refused by the broker, and without a handle, as after a crash between the send and the update."""
    shop = tmp_path / "shop.db"
    create(mq_broker.namesrv, TOPIC)
    for order in ("refused", "crashed", "unpaid"):
        command(mq_broker, shop, "place", order, "--delay-s", SOON_S)
    assert "not recalled order=refused" in command(mq_broker, shop, "pay", "refused")
    execute(shop, "UPDATE orders SET recall_handle = NULL WHERE id = 'crashed'")
    assert "recalled" not in command(mq_broker, shop, "pay", "crashed")
    with started(PROGRAM, shop, "remind", "--namesrv", mq_broker.namesrv) as service:
        for _ in range(3):
            service.wait_for(" order=")
        assert service.stop() == 0
        assert sorted(service.lines_with("ignored, paid")) == [
            "ignored, paid order=crashed",
            "ignored, paid order=refused",
        ]
        assert service.lines_with("reminding") == ["reminding order=unpaid"]
    assert lag(mq_broker.namesrv, "reminders", TOPIC) == 0
