"""mqadmin doctor: output, exit codes, and the schema of --json."""

import re
from pathlib import Path

import msgspec

from skylarkmq.broker.app.in_process import InProcessBroker
from skylarkmq.clients.mqadmin.doctor.examination import CHECKS
from skylarkmq.clients.mqadmin.doctor.findings import Finding, NotExamined, Report
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from tests.clients.mqadmin.conftest import RunCommand
from tests.clients.mqadmin.doctor.conftest import ScriptedCluster, parsed, route
from tests.clients.peer import refuse

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "run" / "mqadmin.md"


def test_a_cluster_without_problems_has_exit_code_0(cluster: ScriptedCluster) -> None:
    """One line says so, and the checks that need an option are named."""
    result = cluster.doctor()
    assert (result.code, result.err) == (0, "")
    first, *rest = result.out.splitlines()
    assert first == f"No problem found at {cluster.peer.address}."
    assert [re.split(r"\s{2,}", line.strip()) for line in rest] == [
        [""],
        ["Not examined"],
        ["Checks", "Where", "Reason"],
        ["group online, subscriptions, lag, dead letters", "no group is given (-g)"],
        ["access", "no metrics page is given (--metrics)"],
    ]


def test_warnings_and_errors_have_their_exit_codes(cluster: ScriptedCluster) -> None:
    """6 for warnings, 7 for errors. Each finding is one row with the next step, errors first."""
    cluster.runtime["commitLogDiskRatio"] = "0.80"
    warned = cluster.doctor()
    assert (warned.code, warned.err) == (6, "")
    cluster.routes["Closed"] = route(cluster.peer.address, perm=4)
    failed = cluster.doctor()
    assert (failed.code, failed.err) == (7, "")
    head, first, second = (re.split(r"\s{2,}", line.strip()) for line in failed.out.splitlines()[:3])
    assert head == ["Severity", "Where", "What is wrong", "Next step"]
    assert first[:3] == ["error", "Closed", "the topic cannot be written on any broker"]
    assert second[0] == "warning"
    assert second[1] == f"b:0 {cluster.peer.address}"
    assert "Free space" in second[3]


def test_our_own_broker_has_no_problem_but_its_disk(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """All checks can examine it. The disk of the test's machine may be full."""
    report = parsed(mqadmin("doctor", "--json", "--sample", "0.01"))
    assert [finding for finding in report.findings if finding.check != "disks"] == []
    assert {each.reason for each in report.not_examined} == {
        "no group is given (-g)",
        "no metrics page is given (--metrics)",
    }
    assert report.namesrv == broker.namesrv
    assert report.checks == [check.name for check in CHECKS]


def test_an_unreachable_name_server_is_an_error_and_no_traceback(run_mqadmin: RunCommand) -> None:
    """The other checks are not examined, with this reason."""
    report = parsed(run_mqadmin("doctor", "--json", "-n", "127.0.0.1:1"))
    (finding,) = report.findings
    assert (finding.severity.value, finding.where, finding.check) == ("error", "127.0.0.1:1", "name servers")
    assert {each.reason for each in report.not_examined if each.check == "disks"} == {"no name server responds"}


def test_names_from_the_cluster_are_printed_escaped(cluster: ScriptedCluster) -> None:
    """A topic with an escape sequence, and the remark of a name server."""
    cluster.routes["\x1b[2J"] = route(cluster.peer.address, perm=2)
    result = cluster.doctor()
    assert "\x1b" not in result.out
    assert "\\x1b[2J" in result.out
    cluster.peer.on(RequestCode.GET_BROKER_CLUSTER_INFO, refuse(ResponseCode.NO_PERMISSION, "no\x1b[2J"))
    result = cluster.doctor()
    assert result.code == 7
    assert "\x1b" not in result.out
    assert "refuses to list brokers" in result.out


def test_an_unknown_option_is_one_of_usage(run_mqadmin: RunCommand) -> None:
    """With exit code 1, as for all commands."""
    assert run_mqadmin("doctor", "--cure").code == 1
    assert run_mqadmin("doctor", "--sample", "-1").code == 1


def test_the_schema_is_documented() -> None:
    """docs/run/mqadmin.md lists each field of the report, of a finding, of what was not examined; and each check."""
    section = DOCUMENT.read_text().partition("\n## Doctor\n")[2].partition("\n## ")[0]
    fields = {field.encode_name for kind in (Report, Finding, NotExamined) for field in msgspec.structs.fields(kind)}
    documented = set(re.findall(r"^\| `(?:\w+\[\]\.)?(\w+)` \|", section, re.MULTILINE))
    assert documented == fields
    assert [check.name for check in CHECKS] == re.findall(r"^\| ([a-z][a-z ]+) \|", section, re.MULTILINE)
