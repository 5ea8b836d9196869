"""Checks of delayed messages."""

import asyncio

from skylarkmq import Admin, Message, blocking
from skylarkmq.broker.app.in_process import InProcessBroker
from skylarkmq.clients.mqadmin.doctor.deferred import CHECKS
from skylarkmq.clients.mqadmin.doctor.examination import examine
from skylarkmq.clients.mqadmin.doctor.findings import Report
from skylarkmq.clients.mqadmin.doctor.subject import State, Subject, Target
from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from tests.clients.mqadmin.doctor.conftest import QUICK, ScriptedCluster
from tests.clients.peer import refuse

HOUR_MS = 3_600_000
LEVEL_OF_2_HOURS = 18


class Later(Subject):
    """A cluster as it would be if its brokers had delivered nothing for some hours."""

    def __init__(self, admin: Admin, hours: int) -> None:
        super().__init__(admin, QUICK)
        self._hours = hours

    async def states(self) -> dict[Target, State | ClientError]:
        """Return the states without the times of the brokers, so that the clock of this host counts."""
        return {target: self._later(state) for target, state in (await super().states()).items()}

    def _later(self, state: State | ClientError) -> State:
        assert isinstance(state, State)
        table = {key: value for key, value in state.table.items() if key != "runtime"}
        moved = self._hours * HOUR_MS
        return State(table, state.sent_ms + moved, state.received_ms + moved)


def test_a_delayed_message_whose_time_has_passed_is_late(broker: InProcessBroker) -> None:
    """By the time at which it was stored, and the delay of its level."""
    with blocking.Admin(namesrv=broker.namesrv) as admin, blocking.Producer("p", namesrv=broker.namesrv) as producer:
        admin.create_topic("Reminders", queues=1)
        producer.send(Message("Reminders", b"1"), delay_level=LEVEL_OF_2_HOURS)

    async def report(hours: int) -> Report:
        async with Admin(namesrv=broker.namesrv) as admin:
            return await examine(Later(admin, hours), lambda _: None, CHECKS)

    in_time, late = (asyncio.run(report(hours)) for hours in (1, 3))
    assert (in_time.findings, in_time.not_examined) == ([], [])
    (finding,) = late.findings
    assert (finding.severity.value, finding.check) == ("warning", "delayed messages")
    assert finding.what.startswith("messages of delay level 18 are 3")
    assert late.not_examined == []


def test_delayed_messages_that_cannot_be_read_are_not_examined(cluster: ScriptedCluster) -> None:
    """The reason is that of the broker."""
    cluster.runtime["scheduleMessageOffset_3"] = "5,7"
    cluster.routes["SCHEDULE_TOPIC_XXXX"] = cluster.routes["Orders"]
    cluster.peer.on(RequestCode.PULL_MESSAGE, refuse(ResponseCode.NO_PERMISSION, "not you"))
    report = cluster.report()
    assert report.findings == []
    (reason,) = (each.reason for each in report.not_examined if each.check == "delayed messages")
    assert reason.startswith("the messages of delay level 3 cannot be read: ")


def test_the_progress_of_levels_is_read_with_care(cluster: ScriptedCluster) -> None:
    """Levels without messages, unknown levels, and values that are no numbers."""
    cluster.runtime.update(
        scheduleMessageOffset_1="7,7",
        scheduleMessageOffset_99="5,7",
        scheduleMessageOffset_0="5,7",
        scheduleMessageOffset_2="all",
        scheduleMessageOffset_x="1,2",
    )
    report = cluster.report()
    assert report.findings == []
    assert [each for each in report.not_examined if each.check == "delayed messages"] == []
