"""Access control of each generation responds like RocketMQ's: every request code, from many callers.

The expected responses are those of RocketMQ's own brokers (tests/golden/access). Skylark differs in the requests that
this module names: it refuses more of them.
"""

from pathlib import Path
from typing import Final

import pytest

from tests.harness.access_table import (
    AUTH,
    PLAIN,
    REQUESTS,
    Cell,
    Table,
    is_refusal,
    recorded,
    responses,
    without_frame,
)
from tests.interop.access import SKYLARK, guarded_broker, port_of

pytestmark = pytest.mark.daemon

NOT_SUPPORTED: Final = 3
OTHERWISE_REFUSED: Final = frozenset(
    (
        "an unknown code",  # REQUEST_CODE_NOT_SUPPORTED for every caller
        "GET_BROKER_CLUSTER_ACL_CONFIG",  # the same: its response has the secrets of all accounts
        "HEART_BEAT without a body",  # after the signature, with another remark
    )
)
UNCHECKED_BY_5_3: Final = frozenset(
    (
        "LITE_PULL_MESSAGE", "CHECK_CLIENT_CONFIG", "RESUME_CHECK_HALF_MESSAGE",
        "UPDATE_AND_CREATE_TOPIC_LIST", "GET_ALL_TOPIC_CONFIG", "UPDATE_BROKER_CONFIG", "GET_BROKER_CONFIG",
        "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP", "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST",
        "GET_ALL_SUBSCRIPTIONGROUP_CONFIG", "GET_BROKER_RUNTIME_INFO", "GET_ALL_CONSUMER_OFFSET",
        "GET_ALL_DELAY_OFFSET", "GET_SYSTEM_TOPIC_LIST_FROM_BROKER", "CLEAN_EXPIRED_CONSUMEQUEUE",
        "CLEAN_UNUSED_TOPIC", "DELETE_EXPIRED_COMMITLOG",
    )
)  # fmt: skip
"""RocketMQ 5.3.3 serves these to every user; Skylark only to users with a policy for them."""
FOR_ADMINISTRATORS: Final = frozenset(
    (
        "CLEAN_EXPIRED_CONSUMEQUEUE", "CLEAN_UNUSED_TOPIC", "DELETE_EXPIRED_COMMITLOG", "RESUME_CHECK_HALF_MESSAGE",
        "INVOKE_BROKER_TO_RESET_OFFSET", "CONSUME_MESSAGE_DIRECTLY", "UPDATE_AND_CREATE_ACL_CONFIG",
        "UPDATE_AND_CREATE_ACL_CONFIG, key too short", "DELETE_ACL_CONFIG", "DELETE_ACL_CONFIG, unknown",
        "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG",
    )
)  # fmt: skip
"""RocketMQ 4.9.7 serves these to every account; Skylark only to administrators, unless aclStrict is false."""
BY_PERMISSION: Final = frozenset(
    (
        "SEND_MESSAGE to a retry topic", "SEND_MESSAGE to a retry topic, with the key group", "SEND_BATCH_MESSAGE",
        "SEND_REPLY_MESSAGE", "SEND_REPLY_MESSAGE_V2", "END_TRANSACTION with a topic",
        "LOCK_BATCH_MQ", "UNLOCK_BATCH_MQ",
    )
)  # fmt: skip
"""The same, but Skylark serves these to accounts with the permissions that similar requests need in RocketMQ."""


def test_4_9_responds_as_rocketmq(tmp_path: Path) -> None:
    """Without aclStrict, exactly the requests that RocketMQ refuses are refused, with its codes and remarks."""
    with guarded_broker(SKYLARK, PLAIN, tmp_path, {"aclStrict": "false"}) as broker:
        found = responses(PLAIN, port_of(broker))
    assert differences(PLAIN, found) == {}


def test_4_9_strict_checks_every_change(tmp_path: Path) -> None:
    """With aclStrict, the default, more requests need an administrator or permissions; no other response differs."""
    with guarded_broker(SKYLARK, PLAIN, tmp_path) as broker:
        found = responses(PLAIN, port_of(broker))
    differing = differences(PLAIN, found)
    assert {request for request, _ in differing} == FOR_ADMINISTRATORS | BY_PERMISSION
    codes = {request.name: request.code for request in REQUESTS}
    for (request, caller), cell in differing.items():
        need = f"Need admin permission for request code={codes[request]}, but accessKey={caller} is not"
        assert (need if request in FOR_ADMINISTRATORS else "No default permission for ") in (cell.remark or "")


def test_5_3_responds_as_rocketmq(tmp_path: Path) -> None:
    """The requests that RocketMQ refuses are refused, with its codes and remarks. So are some that it admits."""
    with guarded_broker(SKYLARK, AUTH, tmp_path) as broker:
        found = responses(AUTH, port_of(broker))
    differing = differences(AUTH, found)
    assert {request for request, _ in differing} == UNCHECKED_BY_5_3
    assert all("has no permission to access" in (cell.remark or "") for cell in differing.values())


def differences(version: str, found: Table) -> dict[tuple[str, str], Cell]:
    """Return the responses that differ from the recorded ones, by request and caller."""
    return {
        (request, caller): found[request][caller]
        for request, cells in recorded(version).items()
        if request not in OTHERWISE_REFUSED
        for caller, expected in cells.items()
        if expected.code != NOT_SUPPORTED
        if not agree(version, expected, found[request][caller])
    }


def agree(version: str, expected: Cell, found: Cell) -> bool:
    """Return whether both are the same refusal, or neither is one."""
    if is_refusal(version, expected):
        return without_frame(version, expected) == without_frame(version, found)
    return not is_refusal(version, found)
