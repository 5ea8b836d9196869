"""Request and reply: replies in time, and requests that a service gets too late."""

import pytest

from tests.examples.program import run, started
from tests.examples.topics import create, lag, wait_for_message

pytestmark = pytest.mark.daemon

PROGRAM = "request_reply.py"
PATIENT_S = "60"


def ask(namesrv: str, item: str, timeout_s: str = PATIENT_S) -> tuple[int, str]:
    """Return the exit code and the output."""
    return run(PROGRAM, "--namesrv", namesrv, "ask", item, "--timeout-s", timeout_s)


def reply(namesrv: str, item: str) -> str:
    """Return the last line of the output: the reply."""
    code, output = ask(namesrv, item)
    assert code == 0, output
    return output.splitlines()[-1]


def test_requests_get_their_replies(namesrv: str) -> None:
    """Also a request that the service cannot serve. Nothing is left when the service has stopped."""
    with started(PROGRAM, "--namesrv", namesrv, "serve") as service:
        service.wait_for("ready")
        assert reply(namesrv, "coffee") == '{"cents": 420}'
        assert reply(namesrv, "milk") == '{"error": "there is no milk"}'
        assert service.stop() == 0
    assert lag(namesrv, "quotes", "Quotes") == 0


def test_a_request_without_a_service_times_out_and_is_ignored_later(namesrv: str) -> None:
    """The caller ends with 1. A service that starts later ignores the request, and serves the next one."""
    code, output = ask(namesrv, "tea", "0.5")
    assert code == 1
    assert "no reply to the request to Quotes within 0.5 s" in output
    with started(PROGRAM, "--namesrv", namesrv, "serve") as service:
        service.wait_for("ignored, expired item=tea")
        assert reply(namesrv, "coffee") == '{"cents": 420}'
        assert service.stop() == 0


def test_a_reply_to_a_caller_that_has_gone_is_logged(namesrv: str) -> None:
    """The caller was killed while it waited: the service acknowledges the request and goes on."""
    create(namesrv, "Quotes")
    with started(PROGRAM, "--namesrv", namesrv, "ask", "tea", "--timeout-s", "600") as caller:
        wait_for_message(namesrv, "Quotes")
        caller.kill()
    with started(PROGRAM, "--namesrv", namesrv, "serve") as service:
        service.wait_for("not delivered item=tea")
        assert service.stop() == 0
    assert lag(namesrv, "quotes", "Quotes") == 0
