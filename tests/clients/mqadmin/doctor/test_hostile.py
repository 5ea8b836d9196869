"""Values that no broker reports by itself: the doctor reads them or leaves them out, and never fails on one."""

import pytest

from tests.clients.mqadmin.doctor.conftest import ScriptedCluster

VALUES = ("9" * 5000, "nan", "inf", "-1e999", "1.2.3", "\u00b2", "\x1b[2J", "")
STATE = (
    "bootTimestamp", "commitLogDiskRatio", "dispatchBehindBytes", "remainHowManyDataToFlush",
    "pageCacheLockTimeMills", "sendThreadPoolQueueHeadWaitTimeMills", "timerReadBehind", "brokerActive",
)  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=ascii)
def test_any_text_is_read_as_a_number_or_left_out(cluster: ScriptedCluster, value: str) -> None:
    """In the state, the settings, and the progress of delay levels."""
    cluster.runtime.update(dict.fromkeys(STATE, value))
    cluster.runtime["runtime"] = f"[ {value} days, 0 hours, 0 minutes, 0 seconds ]"
    cluster.runtime.update({"scheduleMessageOffset_1": f"{value},{value}9", f"scheduleMessageOffset_{value}": "0,1"})
    cluster.settings.update({"messageDelayLevel": f"{value}s 1s", "diskMaxUsedSpaceRatio": value})
    result = cluster.doctor()
    assert result.code in {0, 6, 7}
    assert "Not examined" in result.out
    assert "\x1b" not in result.out + result.err


def test_the_metrics_page_has_no_password_in_its_address(cluster: ScriptedCluster) -> None:
    """A report contains the address, so such an address is refused."""
    result = cluster.doctor("--metrics", "http://operator:secret@127.0.0.1:1/metrics")
    assert (result.code, result.out) == (1, "")
    assert result.err == "mqadmin: --metrics takes no user and no password: give http://host:port/metrics.\n"
