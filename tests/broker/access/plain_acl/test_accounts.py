"""Accounts: values of YAML files, permissions, and secrets that are not shown."""

from typing import Any

import pytest

from skylarkmq.broker.access.plain_acl.accounts import account_of
from skylarkmq.broker.access.plain_acl.errors import AclError
from skylarkmq.broker.access.requests.needs import Permission

DENY, PUB, SUB = Permission.DENY, Permission.PUB, Permission.SUB
KEYS = {"accessKey": "account", "secretKey": "a-secret"}


@pytest.mark.parametrize(
    ("members", "resource", "granted"),
    [
        ({}, "T", []),
        ({"defaultTopicPerm": "PUB"}, "T", [PUB]),
        ({"defaultTopicPerm": "SUB|PUB"}, "T", [PUB, SUB]),
        ({"defaultTopicPerm": " PUB|SUB "}, "T", [PUB, SUB]),
        ({"defaultTopicPerm": "pub"}, "T", []),
        ({"defaultTopicPerm": "DENY"}, "T", []),
        ({"defaultTopicPerm": "PUB|SUB"}, "%RETRY%G", []),
        ({"defaultGroupPerm": "SUB"}, "%RETRY%G", [SUB]),
        ({"defaultTopicPerm": "PUB|SUB", "topicPerms": ["T=DENY"]}, "T", []),
        ({"defaultTopicPerm": "PUB|SUB", "topicPerms": ["T=SUB"]}, "T", [SUB]),
        ({"topicPerms": ["T=PUB|SUB"]}, "T", [PUB, SUB]),
        ({"topicPerms": [" T = PUB "]}, "T", [PUB]),
        ({"topicPerms": ["T==PUB"]}, "T", [PUB]),
        ({"topicPerms": ["T=nonsense"]}, "T", []),
        ({"topicPerms": ["T=PUB", "T=SUB"]}, "T", [SUB]),
        ({"groupPerms": ["G=SUB"]}, "%RETRY%G", [SUB]),
        ({"groupPerms": ["G=SUB"]}, "G", []),
        ({"topicPerms": ["%RETRY%G=SUB"]}, "%RETRY%G", [SUB]),
        ({"topicPerms": ["%RETRY%G=DENY"], "groupPerms": ["G=SUB"]}, "%RETRY%G", []),
    ],
)
def test_permissions(members: dict[str, Any], resource: str, granted: list[Permission]) -> None:
    """The permission of a topic or group in its list, else the default; DENY by default."""
    account = account_of(KEYS | members)
    assert [permission for permission in (PUB, SUB) if account.may(resource, permission)] == granted


@pytest.mark.parametrize(
    ("value", "is_admin"),
    [
        (True, True),
        (False, False),
        (None, False),
        ("true", True),
        ("TRUE", True),
        ("false", False),
        (1, True),
        (0, False),
    ],
)
def test_admin(value: object, is_admin: bool) -> None:
    """A flag in every form that RocketMQ reads."""
    assert account_of(KEYS | {"admin": value}).is_admin is is_admin


def test_numbers_count_as_their_text() -> None:
    """`secretKey: 12345678` without quotes is the text 12345678, as in RocketMQ."""
    account = account_of({"accessKey": 7654321, "secretKey": 12345678})
    assert account.access_key == "7654321"
    assert account.key.sign(b"content", b"") == account_of(KEYS | {"secretKey": "12345678"}).key.sign(b"content", b"")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("account", "an account must be a mapping"),
        ({}, "accessKey=None: accessKey and secretKey must be longer than 6 characters"),
        (KEYS | {"secretKey": "123456"}, "accessKey=account: accessKey and secretKey must be longer than 6 characters"),
        (KEYS | {"accessKey": "123456"}, "accessKey=123456: accessKey and secretKey must be longer than 6 characters"),
        (KEYS | {"secretKey": 1.5}, "secretKey must be a text, in quotes if it has the form of another value"),
        (KEYS | {"admin": "maybe"}, "admin must be true or false"),
        (KEYS | {"topicPerms": "T=PUB"}, "topicPerms must be a list"),
        (KEYS | {"topicPerms": ["T"]}, "Parse resource permission failed for topic:T"),
        (KEYS | {"groupPerms": ["G=SUB=SUB"]}, "Parse resource permission failed for group:G=SUB=SUB"),
        (KEYS | {"whiteRemoteAddress": "1.2"}, "Netaddress examine Exception netaddress is 1.2"),
    ],
)
def test_an_invalid_account_is_an_error_without_its_secret(value: object, text: str) -> None:
    """The text names the member."""
    with pytest.raises(AclError) as raised:
        account_of(value)
    assert str(raised.value) == text
    assert "a-secret" not in str(raised.value)


def test_no_representation_contains_the_secret() -> None:
    """Neither of the account nor of its key."""
    account = account_of(KEYS | {"admin": True})
    assert repr(account) == "<Account account admin>"
    assert "a-secret" not in repr(account.key)
