"""The checks of the attack suite find violations: forged responses, and changed states."""

from typing import Any, Final

import pytest

from skylarkmq.protocol.codes import RequestCode
from tests.attack.accounts import ADMINISTRATOR, GENERATIONS
from tests.attack.callers import CALLERS, Caller
from tests.attack.generators import OddRequest, SigningGenerator
from tests.attack.normal_clients import BODY_MARK, KEPT
from tests.attack.refusals import Responses, must_be_refused
from tests.attack.state import State, changed
from tests.harness.raw import frame

REFUSALS: Final = {
    "4.9": {"code": 1, "remark": "org.apache.rocketmq.acl.common.AclException: No accessKey is configured, x"},
    "5.3": {"code": 16, "remark": "username cannot be null."},
}


def findings_of(access: str, header: dict[str, object], body: bytes = b"", **request: object) -> list[str]:
    """Return the findings of one response of the broker to a request to send to the normal topic."""
    fields = {"b": KEPT}
    values: dict[str, Any] = {"data": b"", "code": RequestCode.SEND_MESSAGE_V2, "opaque": 7, "fields": fields}
    values |= {"caller": Caller.ANONYMOUS} | request
    odd = OddRequest(**values)
    findings: list[str] = []
    responses = Responses(GENERATIONS[access], findings, is_broker=True)
    responses.expect([odd])
    responses.feed(frame({"opaque": 7, "flag": 1, **header}, body))
    assert responses.judged == 1
    return findings


@pytest.mark.parametrize("access", list(GENERATIONS))
def test_only_refusals_without_content_are_accepted(access: str) -> None:
    """The refusal is accepted; success, a refusal with a body or fields, and the other generation's are not."""
    refusal, other = REFUSALS[access], next(REFUSALS[name] for name in REFUSALS if name != access)
    assert findings_of(access, refusal) == []
    assert findings_of(access, {"code": 2}) == []
    assert len(findings_of(access, refusal, b"x")) == 1
    assert len(findings_of(access, {**refusal, "extFields": {"offset": "1"}})) == 1
    assert len(findings_of(access, {"code": 0})) == 1
    assert len(findings_of(access, other)) == 1


def test_a_verified_caller_may_get_another_error() -> None:
    """Without rights, an unreadable request may get its error, but not success."""
    assert findings_of("5.3", {"code": 29}, caller=Caller.WITHOUT_RIGHTS) == []
    assert len(findings_of("5.3", {"code": 0}, caller=Caller.WITHOUT_RIGHTS)) == 1
    assert len(findings_of("5.3", {"code": 29}, caller=Caller.UNKNOWN_ACCOUNT)) == 1


def test_leaks_are_found() -> None:
    """Bodies of normal messages, secret keys and names of topics are found, unless the request contains them."""
    refusal = REFUSALS["5.3"]
    allowed = {"caller": Caller.OTHER_TOPIC, "code": RequestCode.HEART_BEAT}
    assert any("secret" in found for found in findings_of("5.3", {"code": 0}, BODY_MARK, **allowed))
    assert any("secret" in found for found in findings_of("5.3", {**refusal, "remark": ADMINISTRATOR.secret_key}))
    assert any("names" in found for found in findings_of("5.3", {**refusal, "remark": KEPT}))
    by_offset = {"caller": Caller.WITHOUT_RIGHTS, "code": RequestCode.VIEW_MESSAGE_BY_ID}
    assert findings_of("4.9", {"code": 0}, BODY_MARK, **by_offset) == []
    assert any("secret" in found for found in findings_of("5.3", {"code": 0}, BODY_MARK, **by_offset))
    assert findings_of("5.3", {**refusal, "remark": KEPT}, data=KEPT.encode()) == []


def test_most_requests_must_be_refused() -> None:
    """The table refuses the greater part of every caller's requests to the broker."""
    generator = SigningGenerator(0)
    requests = [generator.request() for _ in range(3_000)]
    for access in GENERATIONS:
        for caller in CALLERS:
            own = [request for request in requests if request.caller is caller and request.code is not None]
            refused = sum(must_be_refused(access, request, is_broker=True) for request in own)
            assert refused > len(own) * 0.4, (access, caller)


def test_changes_are_found() -> None:
    """A new topic, a changed setting and a lost policy are found; offsets of normal clients may advance."""
    before: State = {("settings", "broker"): "a=1", ("policies", "User:x"): 1, ("offsets", f"{KEPT}@normal"): {"0": 1}}
    assert list(changed(before, before | {("offsets", f"{KEPT}@normal"): {"0": 2}})) == []
    assert list(changed(before, before | {("topic", "Attack0"): {"perm": 6}})) == []
    assert len(list(changed(before, before | {("topic", "Attack1"): {"perm": 6}}))) == 1
    assert len(list(changed(before, before | {("settings", "broker"): "a=2"}))) == 1
    assert len(list(changed(before, before | {("offsets", f"{KEPT}@attackers0"): {"0": 2}}))) == 1
    assert len(list(changed(before, {}))) == 3
