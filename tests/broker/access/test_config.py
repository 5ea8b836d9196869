"""Settings of access control: combinations that are refused at the start, and secrets that no error contains."""

import pytest

from skylarkmq.broker.access.config import (
    AccessConfig,
    Credentials,
    check_access,
    initial_user,
    inner_client_credentials,
)
from skylarkmq.broker.base.errors import StartError


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (AccessConfig(acl_enable=True, authentication_enabled=True), "aclEnable=true: expected false, authentication"),
        (
            AccessConfig(migrate_auth_from_v1_enabled=True),
            "migrateAuthFromV1Enabled=true: expected authenticationEnabled",
        ),
        (AccessConfig(authorization_enabled=True), "authorizationEnabled=true: expected authenticationEnabled=true"),
    ],
)
def test_invalid_combinations(config: AccessConfig, reason: str) -> None:
    """One generation at a time; authorization needs authentication."""
    with pytest.raises(StartError, match=f"^{reason}"):
        check_access(config)


def test_valid_combinations() -> None:
    """None, the older generation, authentication alone, and both parts of the newer one."""
    check_access(AccessConfig())
    check_access(AccessConfig(acl_enable=True))
    check_access(AccessConfig(authentication_enabled=True))
    check_access(AccessConfig(authentication_enabled=True, authorization_enabled=True))


def test_credentials_in_json() -> None:
    """Also in the dialect of RocketMQ's JSON library; other members are ignored."""
    config = AccessConfig(
        init_authentication_user="{username:'root', password:'a b', userType:1}",
        inner_client_authentication_credentials='{"accessKey":"inner","secretKey":"s"}',
    )
    assert initial_user(config) == Credentials("root", "a b")
    assert inner_client_credentials(config) == Credentials("inner", "s")
    assert repr(initial_user(config)) == "<Credentials root>"
    assert initial_user(AccessConfig(init_authentication_user="")) is None


@pytest.mark.parametrize(
    "text",
    [
        "hunter2",
        '["hunter2"]',
        '{"username":"hunter2"}',
        '{"username":"hunter2","password":" "}',
        '{"username":1,"password":"hunter2"}',
        '{"username":"","password":"hunter2"}',
    ],
)
def test_invalid_credentials_are_refused_and_not_shown(text: str) -> None:
    """The error names the setting only."""
    with pytest.raises(StartError, match=r"^initAuthenticationUser: expected JSON") as raised:
        check_access(AccessConfig(init_authentication_user=text))
    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None
