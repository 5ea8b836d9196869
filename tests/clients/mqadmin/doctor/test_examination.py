"""How checks run: limits of time, and failures of one check."""

import asyncio

import pytest

from skylarkmq.clients.mqadmin.doctor.findings import Check, Outcomes, error, note, warning
from skylarkmq.clients.mqadmin.doctor.subject import NotAvailable, Subject
from skylarkmq.clients.sdk.base.errors import BrokerError, ClientError, ConnectionLost
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from tests.clients.mqadmin.doctor.conftest import examined

NOWHERE = "127.0.0.1:1"


async def endless(_: Subject) -> Outcomes:
    yield warning("here", "first", "wait")
    await asyncio.Event().wait()


async def quick(_: Subject) -> Outcomes:
    yield note("here", "second", "nothing")
    yield error("here", "third", "run")


def test_a_check_ends_at_its_limit_and_keeps_what_it_found() -> None:
    """The other checks run; errors come first."""
    report = examined(NOWHERE, Check("endless", endless), Check("quick", quick), limit_s=0.05)
    assert [(its.check, its.what) for its in report.findings] == [
        ("quick", "third"),
        ("endless", "first"),
        ("quick", "second"),
    ]
    (limited,) = report.not_examined
    assert (limited.check, limited.reason.startswith("the check did not end within ")) == ("endless", True)


@pytest.mark.parametrize(
    ("problem", "is_finding"),
    [
        (ConnectionLost("gone"), True),
        (BrokerError.of(RequestCode.GET_BROKER_CONFIG, ResponseCode.NO_PERMISSION, "no", "b"), True),
        (BrokerError.of(RequestCode.GET_BROKER_CONFIG, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no", "b"), False),
        (NotAvailable("nothing here"), False),
    ],
)
def test_a_check_that_fails_does_not_end_the_others(problem: ClientError | NotAvailable, is_finding: bool) -> None:
    """A request that a broker of another version does not serve is no finding."""

    async def failing(_: Subject) -> Outcomes:
        yield note("here", "before", "nothing")
        raise problem

    report = examined(NOWHERE, Check("failing", failing), Check("quick", quick))
    assert [finding.check for finding in report.findings].count("failing") == 1 + int(is_finding)
    assert [each.check for each in report.not_examined] == ([] if is_finding else ["failing"])
    assert "quick" in {finding.check for finding in report.findings}
