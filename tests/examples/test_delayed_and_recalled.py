"""Reminders: delivered after their delay, recalled before it, and ignored if the recall fails."""

from pathlib import Path

import pytest

from tests.examples.databases import execute
from tests.examples.program import run, started
from tests.examples.topics import bodies, create, lag

pytestmark = pytest.mark.daemon

PROGRAM = "delayed_and_recalled.py"
TOPIC = "Reminders"
SOON_S, LATE_S = "1", "15"


def command(namesrv: str, shop: Path, *arguments: str) -> str:
    """Run a command, and return its output."""
    code, output = run(PROGRAM, shop, *arguments, "--namesrv", namesrv)
    assert code == 0, output
    return output


@pytest.mark.mq_broker(recallMessageEnable=True)
def test_a_recalled_reminder_is_not_delivered(namesrv: str, tmp_path: Path) -> None:
    """The reminder of a later order arrives, and the recalled one has not come before it."""
    shop = tmp_path / "shop.db"
    create(namesrv, TOPIC)
    command(namesrv, shop, "place", "unpaid", "--delay-s", SOON_S)
    command(namesrv, shop, "place", "paid", "--delay-s", LATE_S)
    assert "recalled order=paid" in command(namesrv, shop, "pay", "paid")
    command(namesrv, shop, "place", "last", "--delay-s", LATE_S)
    with started(PROGRAM, shop, "remind", "--namesrv", namesrv) as service:
        service.wait_for("reminding order=unpaid")
        service.wait_for("reminding order=last")
        assert service.stop() == 0
        assert len(service.lines_with("order=")) == 2
    assert bodies(namesrv, TOPIC) == [b"unpaid", b"last"]


def test_a_paid_order_gets_no_reminder_if_the_recall_fails(namesrv: str, tmp_path: Path) -> None:
    """Refused by the broker, and without a handle, as after a crash between the send and the update."""
    shop = tmp_path / "shop.db"
    create(namesrv, TOPIC)
    for order in ("refused", "crashed", "unpaid"):
        command(namesrv, shop, "place", order, "--delay-s", SOON_S)
    assert "not recalled order=refused" in command(namesrv, shop, "pay", "refused")
    execute(shop, "UPDATE orders SET recall_handle = NULL WHERE id = 'crashed'")
    assert "recalled" not in command(namesrv, shop, "pay", "crashed")
    with started(PROGRAM, shop, "remind", "--namesrv", namesrv) as service:
        for _ in range(3):
            service.wait_for(" order=")
        assert service.stop() == 0
        assert sorted(service.lines_with("ignored, paid")) == [
            "ignored, paid order=crashed",
            "ignored, paid order=refused",
        ]
        assert service.lines_with("reminding") == ["reminding order=unpaid"]
    assert lag(namesrv, "reminders", TOPIC) == 0
